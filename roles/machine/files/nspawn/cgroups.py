"""Control groups of our own: what runs in them is the lab's, and dies by one write however it was started."""

from __future__ import annotations

import os
import time
from pathlib import Path

from errors import LabError
from topology import Lab


def _mounts() -> tuple[Path | None, Path | None]:
    """Mount points of the v2 tree and of v1's name=systemd tree, where there is one (hybrid layouts)."""
    unified = named = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2" and unified is None:
            unified = Path(left.split()[4])
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            named = Path(left.split()[4])
    return unified, named


def roots() -> list[Path]:
    """The trees that a process of the lab is moved in, v2 first. Raises LabError on a machine without cgroup v2."""
    unified, named = _mounts()
    if unified is None:
        raise LabError("no cgroup v2 tree is mounted: boot with it (systemd.unified_cgroup_hierarchy=1)")
    return [unified] + ([named] if named else [])


def directory(lab: Lab, root: Path) -> Path:
    """The lab's own directory in that tree. systemd leaves directories alone that it did not make."""
    return root / f"glasslab.{lab.lab_id}"


def create(lab: Lab, name: str) -> list[Path]:
    """Make the control group of one machine, of the stand-ins or of the supervisor; returns its directories."""
    made = [directory(lab, root) / name for root in roots()]
    for where in made:
        where.mkdir(parents=True, exist_ok=True)
    return made


def launcher(lab: Lab, name: str, argv: list[str]) -> list[str]:
    """The command that runs `argv` inside the control group, itself and all its children from the first instruction."""
    files = [str(where / "cgroup.procs") for where in create(lab, name)]
    script = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 97; shift; n=$((n - 1)); done; exec "$@"'
    return ["/bin/sh", "-c", script, "launcher", str(len(files)), *files, *argv]


def processes(where: Path) -> list[int]:
    """Processes in a control group and below."""
    found: list[int] = []
    for file in where.rglob("cgroup.procs"):
        try:
            found += [int(line) for line in file.read_text().split()]
        except OSError:
            continue  # the group went away, or it is a threaded one
    return found


def kill(lab: Lab, name: str | None = None, deadline: float = 10.0) -> None:
    """Kill everything in one control group of the lab (or in all of them) and remove its directories.

    Raises LabError when processes are still there after `deadline` seconds.
    """
    for root in roots():
        where = directory(lab, root) / name if name else directory(lab, root)
        end = time.monotonic() + deadline
        while where.is_dir():
            _kill_once(where)
            if _remove(where):
                break
            if time.monotonic() > end:
                raise LabError(f"control group {where} is still busy after {deadline:.0f} s: {processes(where)[:5]}")
            time.sleep(0.02)


def freeze(lab: Lab, name: str, *, on: bool, deadline: float = 5.0) -> bool:
    """Stop everything in one control group between two instructions, or let it go on; False when there is none.

    Raises LabError when it has not come to rest after `deadline` seconds.
    """
    where = directory(lab, roots()[0]) / name
    switch = where / "cgroup.freeze"
    if not switch.exists():
        return False
    switch.write_text("1" if on else "0")
    end = time.monotonic() + deadline
    while on and "frozen 1" not in (where / "cgroup.events").read_text().splitlines():
        if time.monotonic() > end:
            raise LabError(f"control group {where} is not frozen after {deadline:.0f} s: {processes(where)[:5]}")
        time.sleep(0.005)
    return True


def _kill_once(where: Path) -> None:
    switch = where / "cgroup.kill"
    if switch.exists():
        switch.write_text("1")
        return
    for pid in processes(where):  # the v1 tree has no switch
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def _remove(where: Path) -> bool:
    """Remove a tree of control groups from its leaves up; False while a process is in one."""
    for folder in sorted((f for f in where.rglob("*") if f.is_dir()), key=lambda f: -len(f.parts)):
        try:
            folder.rmdir()
        except OSError:
            return False
    try:
        where.rmdir()
    except OSError:
        return False
    return True


def empty(lab: Lab) -> bool:
    """True when no directory of the lab is left in any tree."""
    return not any(directory(lab, root).exists() for root in roots())
