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


def read_bounded(path: Path, most: int = MAX_FILE_BYTES, *, secret: bool = False) -> bytes:
    """Return what is in a file, a pipe or a device.

    Raises OSError; ValueError beyond the bounds, and for a file that anybody may write, or, when it is `secret`, read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check_mode(descriptor, secret)
        data, deadline = b"", time.monotonic() + PIPE_SECONDS
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        while len(data) <= most:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise ValueError(f"is a pipe that did not end within {PIPE_SECONDS:g} s; give a file")
            piece = os.read(descriptor, most + 1 - len(data))
            if not piece:
                return data
            data += piece
    finally:
        os.close(descriptor)
    raise ValueError(f"is larger than {most} bytes; give the file that is meant")


def _check_mode(descriptor: int, secret: bool) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        return
    if mode & stat.S_IWOTH:
        raise ValueError("may be written by anybody; chmod o-w it")
    # Containers mount their secrets read-only and readable by all: nobody could change that from the inside, and those
    # who are there are one program.
    if secret and mode & stat.S_IROTH and not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        raise ValueError("may be read by anybody; chmod o-r it")


def read_text(path: Path, what: str, *, secret: bool) -> str:
    """Return a file's text. Raises ValueError as `read_object` does."""
    try:
        data = read_bounded(path, secret=secret)
    except OSError as error:
        raise ValueError(f"{what} cannot be read ({error.strerror}); give a readable file") from None
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8 text") from None
