"""Puts files where they belong: JSON on stdin, a list of entries; prints the places that differ, one a line.

Usage: put_files.py [--check]   (--check: changes nothing). An entry is {dest, mode} with `content` (text), `data`
(base64 of bytes), or neither for a folder; `group` when that is another than its caller's. The owner is its caller,
which is root. Each file takes the place of the old one whole. One program for what would be a round trip or two for
each file.
"""

import base64
import grp
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any


def group_id(name: str | None) -> int:
    """The group's number, the caller's own without a name; -1, which nothing has, for one that is still to be made."""
    if name is None:
        return os.getegid()
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if "--check" in sys.argv[1:]:
            return -1
        sys.exit(f"put_files.py: there is no group {name}: the role makes it with its users")


def wanted(entry: dict[str, Any]) -> bytes | None:
    """What the file has to hold; None for a folder."""
    if "data" in entry:
        return base64.b64decode(entry["data"])
    return entry["content"].encode() if "content" in entry else None


def differs(path: Path, mode: int, gid: int, content: bytes | None) -> bool:
    """Whether a file or folder is not as it has to be."""
    try:
        about = path.lstat()
        kind = stat.S_ISDIR if content is None else stat.S_ISREG
        if not kind(about.st_mode) or (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) != (
            os.geteuid(),
            gid,
            mode,
        ):
            return True
        return content is not None and path.read_bytes() != content
    except OSError:
        return True


def install(path: Path, mode: int, gid: int, content: bytes | None) -> None:
    """Make a folder; write a file beside its place, then move it there."""
    if content is None:
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, os.geteuid(), gid)
        path.chmod(mode)
        return
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        os.fchown(file.fileno(), os.geteuid(), gid)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    part.replace(path)


def main() -> None:
    """Compare, and install what differs."""
    for entry in json.load(sys.stdin):
        path, mode, gid = Path(entry["dest"]), int(entry["mode"], 8), group_id(entry.get("group"))
        content = wanted(entry)
        if differs(path, mode, gid, content):
            print(path)
            if "--check" not in sys.argv[1:]:
                try:
                    install(path, mode, gid, content)
                except OSError as error:
                    sys.exit(f"put_files.py: {path}: {error.strerror}")


main()
