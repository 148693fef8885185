"""A real model for the lab: does its address answer, and where is its key? Looked at before anything is built."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

import given
from lab import STATE, fail

CONNECT_SECONDS = 10.0
KEY_NAMES = ("MODEL_API_KEY", "OPENAI_API_KEY")


def check() -> None:
    """End with one line when MODEL_BASE_URL is none, does not answer or shows a certificate that nobody vouches for."""
    url = os.environ.get("MODEL_BASE_URL", "")
    if not url:
        for name in ("MODEL", "MODEL_CA"):
            if value := given.text(name):  # the scripted model would answer, as if it were that one
                fail(
                    f"{name}={value} is given without MODEL_BASE_URL; give the address of its API too, "
                    f"http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH, or leave {name} away for the scripted model"
                )
        return
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        fail(f"MODEL_BASE_URL={url!r}: {error}; give http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
    if parts.username or parts.password or parts.query or parts.fragment:
        fail("MODEL_BASE_URL holds a user, password, query or fragment; give the key as MODEL_API_KEY or in a file")
    if parts.scheme not in ("http", "https") or not host:
        fail(f"MODEL_BASE_URL={url!r}: give http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
    ca = _absolute("MODEL_CA")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        fail(f"MODEL_CA={ca}: {error.strerror or error}; give a file of CA certificates in PEM")
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS) as plain:
            if parts.scheme == "https":
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        fail(
            f"MODEL_BASE_URL={url}: its certificate is not accepted ({error.verify_message}); "
            "name the CA that issued it: MODEL_CA=/path/to/ca.crt"
        )
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        fail(f"MODEL_BASE_URL={url} does not answer ({why}); start the model, or correct the address")


def _absolute(name: str) -> str | None:
    """A file's name as what is started from here can use it, from any directory."""
    path = os.environ.get(name)
    if not path:
        return None
    os.environ[name] = str(given.file(name, path, "CA certificates in PEM"))
    return os.environ[name]


def keep_key() -> None:
    """Put the model's key where the inventory finds it (0600); it appears in no process list and in no log."""
    if not os.environ.get("MODEL_BASE_URL"):
        return
    key = _key()
    if not (key.isascii() and key.isprintable() and " " not in key):
        fail("the model's key holds blanks, control or non-ASCII characters; check MODEL_API_KEY or the file it is in")
    target = STATE / "secrets" / "model_api_key"
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    part = target.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(key + "\n", encoding="utf-8")
    part.rename(target)


def _key() -> str:
    """The key: from the environment, else ~/lab/.env, each also as the name of a file; a word when none is given."""
    for place in (dict(os.environ), _env_file()):
        for name in KEY_NAMES:
            if key := place.get(name):
                return key.strip()
        if path := place.get("MODEL_API_KEY_FILE"):
            return given.content("MODEL_API_KEY_FILE", path, "the key")
    return "no-key-needed"


def _env_file() -> dict[str, str | None]:
    path = Path("~/lab/.env").expanduser()
    try:
        return dict(dotenv_values(path, interpolate=False)) if path.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read ({error}); mend it, or move it away")
