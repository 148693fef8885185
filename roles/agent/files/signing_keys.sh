#!/bin/sh
# Makes a writer's Ed25519 signing key where there is none (0600) and prints the public half, a writer after the other.
# Usage: signing_keys.sh DIRECTORY WRITER...   The first line says whether a key was made.
set -eu
umask 077
directory=$1
shift
made=no
for writer in "$@"; do
    key="$directory/$writer/signing_key"
    [ -s "$key" ] || {
        openssl genpkey -algorithm ed25519 -out "$key.part"
        mv "$key.part" "$key"
        made=yes
    }
done
echo "made $made"
for writer in "$@"; do
    openssl pkey -in "$directory/$writer/signing_key" -pubout
done
