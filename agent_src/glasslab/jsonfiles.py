"""Files of settings that are one JSON object: read whole, bounded, refused where others could have written them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, Final

MAX_FILE_BYTES: Final = 1_000_000


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
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0][:60]!r} is given twice; keep one")
    return dict(pairs)


def read_text(path: Path, what: str, *, secret: bool) -> str:
    """Return a file's text. Raises ValueError as `read_object` does."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            if mode & stat.S_IWOTH:
                raise ValueError(f"{what}: anybody may write it; chmod o-w it")
            if secret and mode & stat.S_IROTH:
                raise ValueError(f"{what}: anybody may read it; chmod o-r it")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{what} cannot be read ({error.strerror}); give a readable file") from None
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"{what} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8 text") from None
