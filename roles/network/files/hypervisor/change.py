"""Changes that undo themselves: what stood before is kept, and comes back unless the change is confirmed in time.

backup    keep our files and /etc/network/interfaces as they are
arm       backup, and a rollback after --seconds; armed again: the same backup, a new deadline
activate  bring into effect what was written: rules, bridge, units
confirm   keep the change
rollback  the former files, brought into effect; where there was nothing before, ours are taken away
withdraw  undo what the program has done; the files stay; prints the packages that may go with them
status    what is armed, as JSON

What a change is about comes as JSON on standard input: {"paths": [...], "folders": [...], "bridge": "..."}.
This file and effect.py are kept beside the backups as well: the change that they undo may be one of the program.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

try:
    from .effect import ETC, INTERFACES, LAUNCHER, UNITS, Failure, activate, run, say, withdraw
except ImportError:  # started by its path, from beside the backups
    from effect import ETC, INTERFACES, LAUNCHER, UNITS, Failure, activate, run, say, withdraw

STATE = pathlib.Path("/var/lib/glasslab-network")
RUN = pathlib.Path("/run/glasslab-network")
LOGS = pathlib.Path("/var/log/glasslab")
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
TIMER = "glasslab-network-rollback"
VERBS = ("backup", "arm", "activate", "confirm", "rollback", "withdraw", "status")
KEPT = 10
Record = dict[str, Any]


def boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def now() -> float:
    """Seconds since the boot, suspended ones included: no clock that somebody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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


def pending() -> Record | None:
    """The change that is armed; None when none is."""
    try:
        found: Record = json.loads((STATE / "pending.json").read_text(encoding="utf-8"))
        return {"backup": found["backup"], "boot": found["boot"], "deadline": found["deadline"], **found}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        # Written whole or not at all; a damaged one is no reason to leave an unconfirmed change standing.
        saved = backups()
        return {"backup": saved[-1].name, "boot": "", "deadline": 0.0, "bridge": "vmbr1"} if saved else None


def overdue() -> bool:
    """Whether an armed change has neither been confirmed in its time nor in the boot that it was made in."""
    armed = pending()
    return armed is not None and (armed["boot"] != boot_id() or now() >= armed["deadline"])


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """One change at a time. Not the program's own lock, which it takes when it is called from here."""
    RUN.mkdir(mode=0o755, exist_ok=True)
    with (RUN / "change.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def honour() -> bool:
    """For the program, before each of its rounds: undo what is overdue; True when that was done and nothing is left.

    While another one is at it (it calls the program itself), False: the round goes on.
    """
    if not overdue():
        return False
    RUN.mkdir(mode=0o755, exist_ok=True)
    with (RUN / "change.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            return overdue() and rollback()
        except Failure as error:
            say(f"rollback: {error}")
            return False


def save(folder: pathlib.Path, paths: list[str], manifest: Record) -> None:
    """Copy what is at the paths into the folder, and note it; a path noted before stays as it was then."""
    for path in map(pathlib.Path, paths):
        if str(path) in manifest["paths"]:
            continue
        if path.is_symlink():
            found = {"link": str(path.readlink())}
        elif path.exists():
            copy = f"{len(manifest['paths']):03}-{path.name}"
            write(folder / copy, path.read_bytes(), 0o600)
            found = {"copy": copy, "mode": path.stat().st_mode & 0o7777}
        else:
            found = {}
        manifest["paths"][str(path)] = found
    write(folder / "manifest.json", json.dumps(manifest, indent=1).encode(), 0o600)


def place(name: str) -> tuple[str, int]:
    """By what backups are ordered: the time in the name, and the number behind it."""
    stamp, _, number = name.partition("-")
    return stamp, int(number) if number.isdecimal() else 0


def backups() -> list[pathlib.Path]:
    """Those that there are, the last one last."""
    return sorted((STATE / "backup").glob("*"), key=lambda path: place(path.name))


def next_name() -> str:
    """A name behind all others, also when the clock was set back: the last is what a damaged marker falls back on."""
    stamp, number = time.strftime("%Y%m%dT%H%M%S", time.gmtime()), 0
    if there := backups():
        stamp, number = max((stamp, 0), place(there[-1].name))
    return f"{stamp}-{number + 1}"


def backup(change: Record, keep: str | None = None) -> str:
    """A new backup's name, or the given one's, with the change's paths added."""
    name = keep or next_name()
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
    armed = pending()
    for old in backups()[:-KEPT]:
        if old.name != name and (armed is None or old.name != armed["backup"]):
            shutil.rmtree(old)
    return name


def note_interfaces() -> None:
    """What we have made of the one file that is not ours alone: a rollback must not undo somebody else's edit of it."""
    armed = pending()
    if armed is not None:
        armed["interfaces"] = digest(INTERFACES)
        write(STATE / "pending.json", json.dumps(armed).encode(), 0o600)


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()


def arm(change: Record, seconds: int) -> Record:
    """Armed on disk first, then the timer: without the timer the minute's round and the next boot still see it."""
    former = pending()
    name = backup(change, former["backup"] if former else None)
    armed = {
        "backup": name,
        "boot": boot_id(),
        "deadline": now() + seconds,
        "until": time.strftime("%H:%M:%S", time.gmtime(time.time() + seconds)) + " UTC",
        "bridge": change["bridge"],
        "interfaces": former.get("interfaces") if former else None,
    }
    write(STATE / "pending.json", json.dumps(armed).encode(), 0o600)
    run("systemctl", "stop", f"{TIMER}.timer", check=False)
    run(
        *("systemd-run", "--quiet", "--collect", f"--unit={TIMER}", f"--on-active={seconds}"),
        *("--timer-property=AccuracySec=100ms", f"--description=Glasslab: undo an unconfirmed change of {name}"),
        *("/usr/bin/python3", "-B", str(STATE / "change.py"), "rollback", "--due"),
    )
    return armed


def disarm() -> None:
    (STATE / "pending.json").unlink(missing_ok=True)
    run("systemctl", "stop", f"{TIMER}.timer", check=False)


def confirm() -> None:
    """Failure when nothing is armed any more: the change has gone back."""
    if pending() is None:
        raise Failure("nothing is armed: the change was not confirmed in time and has gone back")
    disarm()


def idle_packages() -> list[str]:
    """Packages that the role has installed and nobody else uses: the service of theirs is off, as the role left it."""
    record = STATE / "packages"
    names = record.read_text(encoding="ascii").split() if record.exists() else []
    return [name for name in names if run("systemctl", "is-enabled", name, check=False).stdout.strip() != "enabled"]


def restore(folder: pathlib.Path, manifest: Record, interfaces: str | None) -> list[str]:
    """Put the files back that differ from the backup; which they were. Interfaces go first, units last.

    `interfaces`: the digest of INTERFACES as the change left it. Edited since, it stays: the edit is somebody else's.
    """
    changed = []
    order = sorted(manifest["paths"], key=lambda path: (path != str(INTERFACES), path.startswith(str(UNITS))))
    for path in map(pathlib.Path, order):
        former = manifest["paths"][str(path)]
        if path == INTERFACES and interfaces not in (None, digest(path)):
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
        changed.append(str(path))
    return changed


def rollback() -> bool:
    """Back to what stood before the armed change; False when none is armed. Killed half-way, it begins again."""
    armed = pending()
    if armed is None:
        return False
    folder = STATE / "backup" / armed["backup"]
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    program = [path for path in manifest["paths"] if path.startswith(("/usr/local/lib/glasslab/", str(LAUNCHER)))]
    if manifest["first"] or program:
        # The former program would not know what the later one has made.
        try:
            withdraw(None if manifest["bridge"] else armed["bridge"], for_good=manifest["first"])
        except Failure as error:
            say(f"rollback: {error}")
    changed = restore(folder, manifest, armed.get("interfaces"))
    if manifest["first"]:
        for log in LOGS.glob("drift.json*"):
            log.unlink()
    for path in manifest["folders"]:
        one = pathlib.Path(path)
        if one.is_dir() and all(left.name == "__pycache__" for left in one.iterdir()):
            shutil.rmtree(one)
    if manifest["first"]:
        run("systemctl", "daemon-reload", check=False)
        run("systemctl", "reset-failed", "glasslab-*", check=False)
        for left in STATE.iterdir():
            # Which packages the role has installed is true all the same.
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != "packages":
                left.unlink()
        with contextlib.suppress(OSError):
            STATE.rmdir()
        for left in RUN.iterdir():
            left.unlink()
        RUN.rmdir()
        run("systemctl", "stop", f"{TIMER}.timer", check=False)
    else:
        activate(changed or [str(ETC / "settings.json")], armed["bridge"])
        disarm()
    say(f"rollback: the change of {armed['backup']} was not confirmed: {len(changed)} files are as they were before")
    return True


def main(arguments: list[str]) -> int:
    """The verbs. 0 done, 1 not done, with one line that says why."""
    parser = argparse.ArgumentParser(prog="glasslab-network", description="Changes that undo themselves.")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--bridge", help="withdraw: the bridge that goes with it")
    parser.add_argument("--due", action="store_true", help="rollback: only when its time has come")
    given = parser.parse_args(arguments)
    try:
        if given.verb == "status":
            print(json.dumps(pending()))
            return 0
        with lock():
            if given.verb == "confirm":
                confirm()
            elif given.verb == "withdraw":
                print("\n".join(idle_packages()))
                withdraw(given.bridge, for_good=True)
                disarm()
            elif given.verb == "rollback":
                if not given.due or overdue():
                    rollback()
            else:
                change = json.load(sys.stdin)
                if given.verb == "backup":
                    print(backup(change))
                elif given.verb == "arm":
                    print(json.dumps(arm(change, given.seconds)))
                else:
                    if str(INTERFACES) in change["paths"]:
                        note_interfaces()
                    activate(change["paths"], change["bridge"])
    except Failure as error:
        say(f"{given.verb}: {error}")
        return 1
    except OSError as error:
        say(f"{given.verb}: {error.filename}: {error.strerror}: mend that")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
