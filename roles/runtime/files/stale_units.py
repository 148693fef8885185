"""Prints the units that started before something they run with was last changed, one a line.

Usage: stale_units.py UNIT[,UNIT...] PATH...    A run that was interrupted between a change and its handler leaves such
units; the clock compared is the file's change time, which no copy preserves.
"""

import subprocess
import sys
import time
from pathlib import Path


def started(unit: str) -> float | None:
    """When the unit became active, in seconds of the epoch; None when it is not active."""
    command = ["systemctl", "show", unit, "-p", "ActiveEnterTimestampMonotonic,ActiveState"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = dict(line.split("=", 1) for line in shown.splitlines())
    if values["ActiveState"] != "active":
        return None
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + int(values["ActiveEnterTimestampMonotonic"]) / 1e6


def changed(path: Path) -> float:
    """The latest change at or below a path; 0 for one that is not there."""
    if not path.exists():
        return 0.0
    below = path.rglob("*") if path.is_dir() and not path.is_symlink() else []
    return max(entry.lstat().st_ctime for entry in [path, *below])


def main() -> None:
    """Compare and print."""
    latest = max(changed(Path(path)) for path in sys.argv[2:])
    for unit in sys.argv[1].split(","):
        when = started(unit)
        if when is not None and when < latest:
            print(unit)


main()
