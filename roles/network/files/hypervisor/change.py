"""Changes that undo themselves: what stood before is kept, and comes back unless the change is confirmed in time.

backup    keep our files and /etc/network/interfaces as they are
arm       backup, and a rollback after --seconds; armed again: the same backup, a new deadline
activate  bring into effect what was written: rules, bridge, units
confirm   keep the change
rollback  the former files, brought into effect; where there was nothing before, ours are taken away
withdraw  undo what the program has done; the files stay; prints the packages that may go with them
status    what is armed, as JSON

What a change is about comes as JSON on standard input: {"paths": [...], "folders": [...], "bridge": "..."}.
This file, backups.py and effect.py are kept beside the backups as well: the change that they undo may be one of the
program.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

try:
    from . import backups
    from .effect import ETC, INTERFACES, LAUNCHER, Failure, activate, run, say, settled, withdraw
except ImportError:  # started by its path, from beside the backups
    import backups
    from effect import ETC, INTERFACES, LAUNCHER, Failure, activate, run, say, settled, withdraw

RUN = pathlib.Path("/run/glasslab-network")
LOGS = pathlib.Path("/var/log/glasslab")
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
TIMER = "glasslab-network-rollback"
VERBS = ("backup", "arm", "activate", "confirm", "rollback", "withdraw", "status")
Record = dict[str, Any]


def boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def now() -> float:
    """Seconds since the boot, suspended ones included: no clock that somebody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pending() -> Record | None:
    """The change that is armed; None when none is."""
    try:
        found: Record = json.loads((backups.STATE / "pending.json").read_text(encoding="utf-8"))
        if is_whole(found):
            return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, IsADirectoryError):
        pass
    # Written whole or not at all; a damaged one is no reason to leave an unconfirmed change standing.
    saved, bridge = backups.there(), settled("bridge")
    lab = bridge if isinstance(bridge, str) else None  # never by a name that may be somebody else's bridge
    return {"backup": saved[-1].name, "boot": "", "deadline": 0.0, "bridge": lab} if saved else None


def is_whole(found: Record) -> bool:
    """Whether what pending.json says can be acted on. Raises KeyError and TypeError for what is none."""
    texts = [found["backup"], found["boot"], found["bridge"]]
    return all(isinstance(text, str) and text not in ("", ".", "..") and "/" not in text for text in texts) and (
        math.isfinite(found["deadline"])
    )


def overdue() -> bool:
    """Whether an armed change has neither been confirmed in its time nor in the boot that it was made in."""
    armed = pending()
    return armed is not None and (armed["boot"] != boot_id() or now() >= armed["deadline"])


@contextlib.contextmanager
def lock(wait: int = 0) -> Iterator[None]:
    """One change at a time. Not the program's own lock, which it takes when it is called from here.

    Root's alone: whoever may read a file may lock it. Raises BlockingIOError with LOCK_NB for `wait`.
    """
    RUN.mkdir(mode=0o755, exist_ok=True)
    handle = os.open(RUN / "change.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | wait)
        yield
    finally:
        os.close(handle)


def honour() -> bool:
    """For the program, before each of its rounds: undo what is overdue; True when that was done and nothing is left.

    While another one is at it (it calls the program itself), False: the round goes on.
    """
    if not overdue():
        return False
    try:
        with lock(fcntl.LOCK_NB):
            return overdue() and rollback()
    except BlockingIOError:
        return False
    except Failure as error:
        say(f"rollback: {error}")
        return False


def note_interfaces() -> None:
    """What we have made of the one file that is not ours alone: a rollback must not undo somebody else's edit of it."""
    armed = pending()
    if armed is not None:
        armed["interfaces"] = backups.digest(INTERFACES)
        backups.write(backups.STATE / "pending.json", json.dumps(armed).encode(), 0o600)


def arm(change: Record, seconds: int) -> Record:
    """Armed on disk first, then the timer: without the timer the minute's round and the next boot still see it."""
    former = pending()
    name = backups.make(change, former)
    armed = {
        "backup": name,
        "boot": boot_id(),
        "deadline": now() + seconds,
        "until": time.strftime("%H:%M:%S", time.gmtime(time.time() + seconds)) + " UTC",
        "bridge": change["bridge"],
        "interfaces": former.get("interfaces") if former else None,
    }
    backups.write(backups.STATE / "pending.json", json.dumps(armed).encode(), 0o600)
    run("systemctl", "stop", f"{TIMER}.timer", check=False)
    run(
        *("systemd-run", "--quiet", "--collect", f"--unit={TIMER}", f"--on-active={seconds}"),
        *("--timer-property=AccuracySec=100ms", f"--description=Glasslab: undo an unconfirmed change of {name}"),
        *("/usr/bin/python3", "-B", str(backups.STATE / "change.py"), "rollback", "--due"),
    )
    return armed


def disarm() -> None:
    marker = backups.STATE / "pending.json"
    shutil.rmtree(marker) if marker.is_dir() else marker.unlink(missing_ok=True)
    run("systemctl", "stop", f"{TIMER}.timer", check=False)


def confirm() -> None:
    """Failure when nothing is armed any more: the change has gone back."""
    if pending() is None:
        raise Failure("nothing is armed: the change was not confirmed in time and has gone back")
    disarm()


def idle_packages() -> list[str]:
    """Packages that the role has installed and nobody else uses: the service of theirs is off, as the role left it."""
    record = backups.STATE / "packages"
    names = record.read_text(encoding="ascii").split() if record.exists() else []
    return [name for name in names if run("systemctl", "is-enabled", name, check=False).stdout.strip() != "enabled"]


def shut_in(bridge: str | None, why: Failure) -> None:
    """Where nothing can go back, neither the guests nor whoever looks after this host may depend on the change."""
    taken = f"the bridge {bridge} and the rules" if bridge else "the rules"
    say(f"rollback: {why}: {taken} are taken away; run playbooks/network.yml again")
    withdraw(bridge, for_good=True)
    disarm()


def rollback() -> bool:
    """Back to what stood before the armed change; False when none is armed. Killed half-way, it begins again."""
    armed = pending()
    if armed is None:
        return False
    try:
        manifest = backups.load(armed["backup"])
    except Failure as error:
        shut_in(armed["bridge"], error)
        return True
    program = [path for path in manifest["paths"] if path.startswith(("/usr/local/lib/glasslab/", str(LAUNCHER)))]
    if manifest["first"] or program:
        # The former program would not know what the later one has made.
        try:
            withdraw(None if manifest["bridge"] else armed["bridge"], for_good=manifest["first"])
        except Failure as error:
            say(f"rollback: {error}")
    changed = backups.restore(armed["backup"], manifest, armed.get("interfaces"))
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
        for left in backups.STATE.iterdir():
            # Which packages the role has installed is true all the same.
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != "packages":
                left.unlink()
        with contextlib.suppress(OSError):
            backups.STATE.rmdir()
        for left in RUN.iterdir():
            left.unlink()
        RUN.rmdir()
        run("systemctl", "stop", f"{TIMER}.timer", check=False)
    else:
        activate(changed or [str(ETC / "settings.json")], armed["bridge"])
        disarm()
    say(f"rollback: the change of {armed['backup']} was not confirmed: {len(changed)} files are as they were before")
    return True


def told(text: str) -> Record:
    """What a change is about. Raises Failure for what is no such thing."""
    try:
        change = json.loads(text)
        lists, bridge = (change["paths"], change["folders"]), change["bridge"]
    except (ValueError, KeyError, TypeError, RecursionError):
        lists, bridge = ((None,),), ""
    if not all(isinstance(one, list) and all(isinstance(path, str) for path in one) for one in lists) or not bridge:
        raise Failure('standard input has to be JSON, {"paths": [...], "folders": [...], "bridge": "..."}')
    found: Record = change
    return found


def main(arguments: list[str]) -> int:
    """The verbs. 0 done, 1 not done, with one line that says why."""
    parser = argparse.ArgumentParser(prog="glasslab-network", description="Changes that undo themselves.")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--bridge", help="withdraw: the bridge that goes with it")
    parser.add_argument("--due", action="store_true", help="rollback: only when its time has come")
    given = parser.parse_args(arguments)
    if given.seconds < 1:
        parser.error(f"--seconds {given.seconds}: give 1 or more")
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
                change = told(sys.stdin.read())
                if given.verb == "backup":
                    print(backups.make(change, pending(), anew=True))
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
