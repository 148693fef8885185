"""Files of settings: read whole, within bounds of size and time, refused where others could have written them."""

from __future__ import annotations

import json
import os
import select
import stat
import time
from pathlib import Path
from typing import Any, Final

MAX_FILE_BYTES: Final = 1_000_000
PIPE_SECONDS: Final = 5.0  # for what a pipe brings: a file may be one, and nobody need write into it


def read_object(path: Path, what: str, *, secret: bool = False) -> dict[str, Any]:
    """Return the object in a file; `what` names it in messages, `secret` files may not be readable by everybody.

    Raises ValueError: one line that says what is wrong.
    """
    try:
        value = json.loads(read_text(path, what, secret=secret), object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} holds no JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:60]!r} is given twice; keep one")
        found[name] = value
    return found


def read_bounded(path: Path, most: int = MAX_FILE_BYTES) -> tuple[bytes, os.stat_result]:
    """Return what is in a file, a pipe or a device, and what it is. Raises OSError; ValueError beyond the bounds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        data, deadline = b"", time.monotonic() + PIPE_SECONDS
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        while len(data) <= most:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise ValueError(f"is a pipe that did not end within {PIPE_SECONDS:g} s; give a file")
            piece = os.read(descriptor, most + 1 - len(data))
            if not piece:
                return data, os.fstat(descriptor)
            data += piece
    finally:
        os.close(descriptor)
    raise ValueError(f"is larger than {most} bytes; give the file that is meant")


def read_text(path: Path, what: str, *, secret: bool) -> str:
    """Return a file's text. Raises ValueError as `read_object` does."""
    try:
        data, found = read_bounded(path)
    except OSError as error:
        raise ValueError(f"{what} cannot be read ({error.strerror}); give a readable file") from None
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None
    if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
        raise ValueError(f"{what}: anybody may write it; chmod o-w it")
    if secret and stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH:
        raise ValueError(f"{what}: anybody may read it; chmod o-r it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8 text") from None
