"""The double of the Molecule scenario, which stands from `prepare` to `cleanup`: standing.py start|stop FOLDER.

With GLASSLAB_PROXMOX_PLACE in the environment there is nothing to start: it names a live host. In either case
the lab's inventory is put into FOLDER/inventory, which is Molecule's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import place
from pvehost import states

START_SECONDS = 120.0
END_SECONDS = 30.0
# Who starts it may be killed: it ends by itself when nobody has asked it anything for so long.
IDLE_SECONDS = 900.0
PLACE, BEFORE, PID = "place.json", "before.json", "pid"


def folder_of(text: str) -> Path:
    """Where the standing double keeps its state."""
    return Path(text).resolve() / "double"


def serve(folder: Path) -> None:
    """Run the double until SIGTERM, or until it has been idle for too long."""
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: ended.append(got))
    (folder / PID).write_text(str(os.getpid()), encoding="utf-8")
    with place.own_place(folder / "state", by_playbook=True) as (one, where):
        before = {vmid: text.decode() for vmid, text in states(one.state).items()}
        (folder / BEFORE).write_text(json.dumps(before), encoding="utf-8")
        where.save(folder / PLACE)
        log = one.state / "requests.jsonl"
        while not ended and one.process.poll() is None and time.time() - log.stat().st_mtime < IDLE_SECONDS:
            time.sleep(0.2)


def join(where: place.Place, folder: Path) -> None:
    """Add the place's inventory to Molecule's, the token's secret in it."""
    tree = json.loads((where.inventory / "hosts.yml").read_text(encoding="utf-8"))
    tree["all"]["vars"]["machine_proxmox_token_secret"] = where.lab.token.secret
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "lab.yml"
    file.touch(0o600)
    file.write_text(json.dumps(tree, indent=1), encoding="utf-8")


def start(folder: Path) -> None:
    """Start it in the background; it is ready when this returns."""
    named = os.environ.get("GLASSLAB_PROXMOX_PLACE", "")
    if not named:
        start_double(folder)
    join(place.load(Path(named) if named else folder / PLACE), folder.parent / "inventory")


def start_double(folder: Path) -> None:
    """A process of its own, which outlives this one."""
    stop(folder)
    folder.mkdir(parents=True, mode=0o700)
    with (folder / "serve.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, "serve", str(folder.parent)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    end = time.monotonic() + START_SECONDS
    while not (folder / PLACE).is_file():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            sys.exit(f"standing.py: the double did not start: {(folder / 'serve.log').read_text(encoding='utf-8')}")
        time.sleep(0.05)


def stop(folder: Path) -> None:
    """End it, when it is there, and remove what it kept."""
    if (folder / PID).is_file():
        pid = int((folder / PID).read_text(encoding="utf-8"))
        ours = Path(f"/proc/{pid}/cmdline")
        end = time.monotonic() + END_SECONDS
        # A number may have been given to another process meanwhile: only one with our command line is ended.
        while ours.exists() and str(folder.parent).encode() in ours.read_bytes():
            os.kill(pid, signal.SIGTERM)
            if time.monotonic() > end:
                sys.exit(f"standing.py: process {pid} does not end; end it by hand: kill -9 {pid}")
            time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / "inventory" / "lab.yml").unlink(missing_ok=True)


def main() -> None:
    """One verb."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop", "serve"):
        sys.exit("usage: standing.py start|stop FOLDER")
    verb = {"start": start, "stop": stop, "serve": serve}[sys.argv[1]]
    verb(folder_of(sys.argv[2]))


if __name__ == "__main__":
    main()
