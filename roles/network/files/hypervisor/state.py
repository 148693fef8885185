"""What is kept for this boot, under /run, and the one lock. Sysctls and rules do not outlive a boot either."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

RUN = pathlib.Path("/run/glasslab-network")
FORMER = "former.json"  # what `remove` puts back: {"sysctl": {path: value}, "tables": [...], "forwarding": bool}
LOADED = "loaded.json"  # what was loaded last: {"digest", "texts", "settings", "kernel", "routes"}
SEEN = "seen.json"  # the packet rules were whole at this state of the kernel's: {"generation"}
LINKS = "links.json"  # interfaces that have been as they should be: {name: index and bridge's index}
AWAY = "away.json"  # guests' ports that are down because they are in another bridge: {"links"}
CLOSED = "closed.json"  # the guests are shut in: {"verb", "why", "links"}
Record = dict[str, Any]
_cached: Record = {}  # the record loaded last, which is large and read twice a second


def state(name: str) -> Record | None:
    """A record of this boot; None when there is none."""
    try:
        found: Record = json.loads((RUN / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found


def store(name: str, value: Record) -> None:
    """Keep a record; it is replaced whole."""
    (RUN / f"{name}.new").write_text(json.dumps(value), encoding="utf-8")
    (RUN / f"{name}.new").rename(RUN / name)


def forget(*names: str) -> None:
    """Take records away."""
    for name in names:
        (RUN / name).unlink(missing_ok=True)


def loaded() -> Record | None:
    """What was loaded last; None when nothing was, or by a version that kept less."""
    try:
        there = (RUN / LOADED).stat()
    except FileNotFoundError:
        return None
    key = (there.st_ino, there.st_mtime_ns)
    if _cached.get("key") != key:
        record = state(LOADED)
        whole = record and record.keys() >= {"digest", "texts", "settings", "kernel"}
        _cached.update(key=key, record=record if whole else None)
    found: Record | None = _cached["record"]
    return found


@contextlib.contextmanager
def lock(meanwhile: Callable[[], None] | None = None) -> Iterator[None]:
    """One at a time: the unit, ifupdown2, the role, the watcher and the timer may come at the same moment.

    `meanwhile` is called every few milliseconds while another one has it; without it the wait is the kernel's.
    Root's alone: whoever may read a file may lock it, and keep the watcher waiting.
    """
    RUN.mkdir(mode=0o755, exist_ok=True)
    with open(os.open(RUN / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as handle:  # noqa: PTH123 (a descriptor)
        os.fchmod(handle.fileno(), 0o600)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if meanwhile else 0))
                break
            except BlockingIOError:
                assert meanwhile is not None  # only LOCK_NB raises this
                meanwhile()
                time.sleep(0.003)
        yield
