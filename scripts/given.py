"""What the environment gives a script: texts, switches, ports, files, secrets. What is none ends in one line."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from lab import fail

SECRET_BYTES = 16_384


def text(name: str, default: str = "") -> str:
    """A value of the environment, without blanks around it."""
    return os.environ.get(name, "").strip() or default


def switch(name: str) -> bool:
    """Whether it is on: 1. A word that is neither 1 nor 0 could mean either, and one of the two may not be undone."""
    value = text(name)
    if value not in ("", "0", "1"):
        fail(f"{name}={value!r}: give 1, or leave it away")
    return value == "1"


def number(name: str, default: int, most: int, what: str) -> int:
    """A whole number from 1 to `most`."""
    value = text(name, str(default))
    # By its length first: Python reads no number of thousands of digits.
    if not (value.isascii() and value.isdigit() and len(value) < 20 and 0 < int(value) <= most):
        fail(f"{name}={value[:40]!r}: give {what}, 1 to {most}")
    return int(value)


def port(name: str, default: int) -> int:
    """A TCP port."""
    return number(name, default, 65535, "a port")


def https(name: str, default: str, what: str) -> str:
    """An https address without the slash at its end; `what` says what it is to be, with an example."""
    value = text(name, default).rstrip("/")
    try:
        parts = urlsplit(value)
        right = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        fail(f"{name}={value!r}: give {what}")
    return value


def file(name: str, path: str, what: str) -> Path:
    """The file that a setting names; `what` says what it is to hold."""
    try:
        found = Path(path).expanduser().absolute()
        if not found.is_file():
            fail(f"{name}={path} is no file; give one that holds {what}")
    except RuntimeError:
        fail(f"{name}={path} begins with a ~ of somebody whom this machine does not know; give the whole path")
    except (OSError, ValueError) as error:
        fail(f"{name}={path} cannot be read ({error}); give a file that holds {what}")
    return found


def content(name: str, path: str, what: str) -> str:
    """What that file holds, without blanks around it."""
    try:
        with file(name, path, what).open(encoding="utf-8") as opened:
            held = opened.read(SECRET_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{name}={path} cannot be read ({error}); give a file that holds {what}")
    if not held:
        fail(f"{name}={path} is empty; put {what} into it")
    return held


def secret(name: str) -> str:
    """A secret of the environment, or of the file that NAME_FILE names; empty when neither is given."""
    path = text(f"{name}_FILE")
    return content(f"{name}_FILE", path, "the secret") if path else text(name)
