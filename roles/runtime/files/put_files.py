"""Puts files where they belong: JSON on stdin, a list of entries; prints the places that differ, one a line.

Usage: put_files.py [--check]   (--check: changes nothing). An entry is {dest, mode} with `content` (text), `data`
(base64 of bytes), or neither for a folder; `owner` and `group` when they are others than its caller's, which is root;
for a folder `alone`: what lies in it and is in no entry goes. Each file takes the place of the old one whole. One
program for what would be a round trip or two for each file.
"""

import base64
import grp
import json
import os
import pwd
import shutil
import stat
import sys
from pathlib import Path
from typing import Any


def number_of(kind: str, name: str | None) -> int:
    """The user's or group's number, the caller's own without a name; -1, which none has, for one still to be made."""
    try:
        if kind == "user":
            return os.geteuid() if name is None else pwd.getpwnam(name).pw_uid
        return os.getegid() if name is None else grp.getgrnam(name).gr_gid
    except KeyError:
        if "--check" in sys.argv[1:]:
            return -1
        sys.exit(f"put_files.py: there is no {kind} {name}: the role makes users and groups before their files")


def wanted(entry: dict[str, Any]) -> bytes | None:
    """What the file has to hold; None for a folder."""
    if "data" in entry:
        return base64.b64decode(entry["data"])
    return entry["content"].encode() if "content" in entry else None


def differs(path: Path, mode: int, who: tuple[int, int], content: bytes | None) -> bool:
    """Whether a file or folder is not as it has to be."""
    try:
        about = path.lstat()
        kind = stat.S_ISDIR if content is None else stat.S_ISREG
        if not kind(about.st_mode) or (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) != (*who, mode):
            return True
        return content is not None and path.read_bytes() != content
    except OSError:
        return True


def install(path: Path, mode: int, who: tuple[int, int], content: bytes | None) -> None:
    """Make a folder; write a file beside its place, then move it there."""
    if content is None:
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, *who)
        path.chmod(mode)
        return
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        os.fchown(file.fileno(), *who)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    part.replace(path)


def left_over(entries: list[dict[str, Any]]) -> list[Path]:
    """What lies in a folder that is to be alone; of a whole folder the folder."""
    known = {entry["dest"] for entry in entries}
    folders = [Path(entry["dest"]) for entry in entries if entry.get("alone")]
    there = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    return [path for path in there if str(path) not in known]


def remove(path: Path) -> None:
    """Take it away, whatever it is; of a link the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def main() -> None:
    """Compare, install what differs, remove what is left over."""
    entries = json.load(sys.stdin)
    check = "--check" in sys.argv[1:]
    for entry in entries:
        path, mode = Path(entry["dest"]), int(entry["mode"], 8)
        who = (number_of("user", entry.get("owner")), number_of("group", entry.get("group")))
        content = wanted(entry)
        if differs(path, mode, who, content):
            print(path)
            if not check:
                try:
                    install(path, mode, who, content)
                except OSError as error:
                    sys.exit(f"put_files.py: {path}: {error.strerror}")
    for path in left_over(entries):
        print(path)
        if not check:
            remove(path)


main()
