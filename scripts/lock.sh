#!/bin/sh
# Renews the hash-locked requirements from the .in files. No addresses are written: where packages come from is the machine's own matter.
set -eu
cd "$(dirname "$0")/.."
for name in bootstrap appliance control conformance appinspect; do
    .venv/.bootstrap/bin/uv pip compile -q --upgrade --universal --generate-hashes --no-emit-index-url --python-version 3.12 \
        --custom-compile-command 'make lock' "requirements/$name.in" -o "requirements/$name.txt"
done
