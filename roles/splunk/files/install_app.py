"""The app's files where Splunk looks for them: run with a call of main() at its end.

What differs in content, owner or mode is put right, each file as a whole or not at all, and its path printed. What the
app no longer has goes from the folders that nobody else writes to: in `local`, `lookups` and `metadata` Splunk keeps
what its users make.
"""

import base64
import grp
import io
import json
import os
import pwd
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

FILE_MODE, FOLDER_MODE = 0o640, 0o750
OURS_ALONE = ("default", "sqlite")


def wanted(archive: str) -> dict[Path, bytes | None]:
    """What the archive (base64 of a tar file) holds: each file's content by its path, None for a folder."""
    found: dict[Path, bytes | None] = {}
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive)), mode="r:") as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            found[Path(entry.name)] = content.read() if content else None
    return found


def differs(path: Path, content: bytes | None, uid: int, gid: int) -> bool:
    """Whether it is not there, or another, or another's."""
    if path.is_symlink() or not path.exists() or path.is_dir() != (content is None):
        return True
    stat = path.stat()
    mode = FOLDER_MODE if content is None else FILE_MODE
    if (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) != (uid, gid, mode):
        return True
    return content is not None and path.read_bytes() != content


def put(path: Path, content: bytes | None, uid: int, gid: int) -> None:
    """Put it there, as a whole or not at all."""
    if path.is_symlink() or (path.exists() and path.is_dir() != (content is None)):
        remove(path)
    if content is None:
        path.mkdir(exist_ok=True)
        os.chown(path, uid, gid)
        path.chmod(FOLDER_MODE)
        return
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.chown(new, uid, gid)
    new.chmod(FILE_MODE)
    new.replace(path)


def remove(path: Path) -> None:
    """Take it away, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def stale(root: Path, files: dict[Path, bytes | None]) -> list[Path]:
    """What lies in those folders and is not the app's; of a whole folder the folder."""
    there = [path for name in OURS_ALONE for path in sorted((root / name).rglob("*"))]
    return [path for path in there if path not in files and files.get(path.parent, b"") is None]


def main(order: dict[str, Any]) -> None:
    """Carry the order out: `archive`, `apps` (a folder), `owner`, `group`, `check` (say what would change, no more)."""
    apps = Path(order["apps"])
    try:
        uid, gid = pwd.getpwnam(order["owner"]).pw_uid, grp.getgrnam(order["group"]).gr_gid
    except KeyError as error:
        if not order["check"]:
            who = f"splunk_owner={order['owner']}, splunk_user={order['group']}"
            sys.exit(f"{who}: {error.args[0]}; the role makes them in home.yml")
        uid = gid = -1  # in check mode nobody has made them yet: all of it is to come
    files = {apps / path: content for path, content in wanted(order["archive"]).items()}
    for path, content in files.items():
        if differs(path, content, uid, gid):
            print(path)
            if not order["check"]:
                put(path, content, uid, gid)
    for path in stale(min(files), files):
        print(path)
        if not order["check"]:
            remove(path)


_ = json  # for the call at its end
