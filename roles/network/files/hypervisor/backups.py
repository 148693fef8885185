"""What stood before a change: copies of our files and of /etc/network/interfaces, and how they are put back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import time
from typing import Any

try:
    from .effect import INTERFACES, LAUNCHER, UNITS, Failure, run, say
except ImportError:  # imported by its path, from beside the backups
    from effect import INTERFACES, LAUNCHER, UNITS, Failure, run, say

STATE = pathlib.Path("/var/lib/glasslab-network")
KEPT = 10
Record = dict[str, Any]


def at(path: pathlib.Path) -> pathlib.Path:
    """Where a file is. The one that is not ours alone may be a link, and then what it leads to is what we edit."""
    return path.resolve() if path == INTERFACES else path


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()


def write(path: pathlib.Path, text: bytes, mode: int) -> None:
    """Replace a file whole, on disk before this returns."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.glasslab-new")
    with new.open("wb") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    new.chmod(mode)
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def place(name: str) -> tuple[str, int]:
    """By what backups are ordered: the time in the name, and the number behind it."""
    stamp, _, number = name.partition("-")
    return stamp, int(number) if number.isdecimal() else 0


def there() -> list[pathlib.Path]:
    """Those that there are, the last one last."""
    return sorted((STATE / "backup").glob("*"), key=lambda path: place(path.name))


def next_name() -> str:
    """A name behind all others, also when the clock was set back: the last is what a damaged marker falls back on."""
    stamp, number = time.strftime("%Y%m%dT%H%M%S", time.gmtime()), 0
    if saved := there():
        stamp, number = max((stamp, 0), place(saved[-1].name))
    return f"{stamp}-{number + 1}"


def save(folder: pathlib.Path, paths: list[str], manifest: Record) -> None:
    """Copy what is at the paths into the folder, and note it; a path noted before stays as it was then."""
    for name in map(pathlib.Path, paths):
        if str(name) in manifest["paths"]:
            continue
        path = at(name)
        if path.is_symlink():
            found = {"link": str(path.readlink())}
        elif path.exists():
            copy = f"{len(manifest['paths']):03}-{path.name}"
            write(folder / copy, path.read_bytes(), 0o600)
            found = {"copy": copy, "mode": path.stat().st_mode & 0o7777, "sha256": digest(folder / copy)}
        else:
            found = {}
        manifest["paths"][str(name)] = found
    write(folder / "manifest.json", json.dumps(manifest, indent=1).encode(), 0o600)


def make(change: Record, armed: Record | None, *, anew: bool = False) -> str:
    """A backup's name: the armed change's, with the new change's paths added, or a new one's.

    The last KEPT stay, and the armed change's in any case.
    """
    name = armed["backup"] if armed and not anew else next_name()
    folder = STATE / "backup" / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        manifest: Record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        save(folder, change["paths"], manifest)
        return name
    units = ["glasslab-resolver.service", "glasslab-proxy.service", "glasslab-network-watch.service"]
    active = run("systemctl", "is-active", *units, check=False).stdout.split("\n")
    manifest = {
        "paths": {},
        "folders": [folder for folder in change["folders"] if not pathlib.Path(folder).exists()],
        "first": not LAUNCHER.exists(),
        "bridge": pathlib.Path("/sys/class/net", change["bridge"]).exists(),
        "active": [unit for unit, state in zip(units, active, strict=False) if state == "active"],
    }
    save(folder, change["paths"], manifest)
    for old in there()[:-KEPT]:
        if old.name not in (name, armed and armed["backup"]):
            shutil.rmtree(old)
    return name


def load(name: str) -> Record:
    """What a backup holds. Raises Failure unless all of it can be put back."""
    folder = STATE / "backup" / name
    try:
        manifest: Record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        copies = [found["copy"] for found in manifest["paths"].values() if "copy" in found]
        missing = [copy for copy in copies if not (folder / copy).is_file()]
        if missing:
            raise Failure(f"of the backup {folder} {missing[0]} is missing")
        for found in manifest["paths"].values():
            if "sha256" in found and digest(folder / found["copy"]) != found["sha256"]:
                raise Failure(f"of the backup {folder} {found['copy']} is damaged")
        return {"first": manifest["first"], "bridge": manifest["bridge"], "folders": manifest["folders"], **manifest}
    except OSError as error:
        raise Failure(f"the backup {error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Failure(f"the backup {folder} is damaged") from None


def restore(name: str, manifest: Record, interfaces: str | None) -> list[str]:
    """Put the files back that differ from the backup; which they were. Interfaces go first, units last.

    `interfaces`: the digest of INTERFACES as the change left it. Edited since, it stays: the edit is somebody else's.
    """
    folder, changed = STATE / "backup" / name, []
    order = sorted(manifest["paths"], key=lambda path: (path != str(INTERFACES), path.startswith(str(UNITS))))
    for name in map(pathlib.Path, order):
        former, path = manifest["paths"][str(name)], at(name)
        if name == INTERFACES and interfaces not in (None, digest(path)):
            say(f"rollback: {path} was edited since and stays as it is: run playbooks/network.yml again")
            continue
        is_link, there = path.is_symlink(), path.is_symlink() or path.exists()
        if "link" in former:
            if is_link and str(path.readlink()) == former["link"]:
                continue
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(former["link"])
        elif "copy" in former:
            text = (folder / former["copy"]).read_bytes()
            if there and not is_link and path.read_bytes() == text and path.stat().st_mode & 0o7777 == former["mode"]:
                continue
            if is_link:
                path.unlink()
            write(path, text, former["mode"])
        elif there:
            path.unlink()
        else:
            continue
        changed.append(str(name))
    return changed
