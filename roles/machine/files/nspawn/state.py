"""Who owns a lab: the lock of a running verb, the supervisor's lock that says a lab lives, and state.json."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from errors import LabError
from topology import Lab


def verb_lock(lab: Lab) -> Path:
    """The file that a verb holds a lock on; beside the lab's runtime folder, which comes and goes."""
    return lab.runtime.with_suffix(".lock")


@contextmanager
def locked(lab: Lab) -> Iterator[None]:
    """Hold the lab for one verb; another verb on the same lab waits. A killed holder's lock is free at once."""
    where = verb_lock(lab)
    while True:
        where.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(where, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"lab {lab.lab_id}: another command is at work on it, waiting", file=sys.stderr, flush=True)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _same(where, descriptor):
                continue  # the holder before us was a destroy: it took the file away
            yield
            return
        finally:
            os.close(descriptor)


def _same(where: Path, descriptor: int) -> bool:
    try:
        return where.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def supervisor_lock(lab: Lab) -> Path:
    """The file on which a living supervisor holds a lock."""
    return lab.runtime / "supervisor.lock"


def alive(lab: Lab) -> bool:
    """True when the lab's supervisor lives, as its lock says: a pid could be somebody else's by now."""
    try:
        with supervisor_lock(lab).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except FileNotFoundError:
        return False
    return False


def load(lab: Lab) -> dict[str, Any]:
    """What state.json says, empty when there is none or when it cannot be read."""
    try:
        content = json.loads((lab.state / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def save(lab: Lab, content: dict[str, Any]) -> None:
    """Write state.json, whole or not at all."""
    lab.state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    lab.state.mkdir(mode=0o700, exist_ok=True)
    write(lab.state / "state.json", json.dumps(content, indent=1, sort_keys=True) + "\n")


def write(where: Path, text: str, mode: int = 0o600) -> bool:
    """Write a file, whole or not at all; False when it held that text already."""
    if where.exists() and where.read_text() == text:
        return False
    partial = where.with_name(f".{where.name}.new")
    partial.touch(mode)
    partial.write_text(text)
    partial.replace(where)
    return True


def refuse_foreign(lab: Lab, checkout: Path, force: bool) -> None:
    """Raise LabError when the lab lives and another checkout built it, unless forced."""
    owner = load(lab).get("checkout")
    if not force and owner not in (None, str(checkout)) and alive(lab):
        remedy = "use that one, or remove it" if Path(owner).is_dir() else "which is gone: remove it"
        raise LabError(
            f"lab {lab.lab_id!r} is running and belongs to the checkout {owner}, {remedy} with: "
            f"{lab.make('destroy FORCE=1')}"
        )


# What a lab has in its folder; without state.json when it is only begun (by Ansible) or half removed.
KNOWN = {"ca", "secrets", "ssh", "log", "machines", "receipts", "verify_keys", "state.json", ".state.json.new"}


def refuse_unknown(lab: Lab) -> None:
    """Raise LabError when the folder where the lab's state belongs is something else: destroy would remove it."""
    for place in (lab.state.parent, lab.state, lab.runtime.parent, lab.runtime):
        if (place.exists() or place.is_symlink()) and not place.is_dir():
            raise LabError(f"{place} is there and is no folder: move it away, or choose another lab_id")
    try:
        found = {one.name for one in lab.state.iterdir()}
    except FileNotFoundError:  # not there, or another verb removes it at this moment
        return
    if found and not found & KNOWN:
        raise LabError(
            f"{lab.state} holds {min(found)!r} and nothing of a lab: move it away, choose another lab_id than "
            f"{lab.lab_id!r}, or have it removed with: {lab.make('destroy FORCE=1')}"
        )


def presence(lab: Lab) -> str:
    """One word for what is there: absent, dead (state without a living supervisor) or alive."""
    if alive(lab):
        return "alive"
    return "dead" if lab.state.exists() or lab.runtime.exists() else "absent"
