"""A machine's disk as files: copied as a snapshot, exchanged for one, set aside while its successor is tried.

Every step becomes true by one rename, and `settle` ends or undoes whatever a kill left in between. Nothing here knows
whether the machine runs: its callers freeze or stop it first (lifecycle.py).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import image
from errors import LabError, run
from topology import Lab

DISK_SECONDS = 300.0
# As Proxmox VE takes them, which names its own present state `current`.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,39}")
Snapshot = dict[str, Any]


def check_name(name: str) -> None:
    """Raise LabError for a name that a snapshot cannot have."""
    if not NAME.fullmatch(name) or name == "current":
        raise LabError(
            f"snapshot name {name!r}: use 2 to 40 letters, digits, - and _, beginning with a letter, and not `current`"
        )


def previous(folder: Path) -> Path:
    """Where a machine lies while its successor is tried."""
    return folder.with_name(f"{folder.name}.previous")


def settle(folder: Path) -> None:
    """End or undo what was interrupted in a machine's folder. Expects that no other verb is at work on it."""
    upper, incoming = folder / "upper", folder / "incoming"
    if not upper.exists() and incoming.exists():
        incoming.replace(upper)  # the exchange had begun, and what comes in is whole
    leftovers = [incoming, folder / "incoming.part", folder / "outgoing", *folder.glob("snapshots/.new-*")]
    for old in folder.glob("snapshots/.old-*"):
        final = old.with_name(old.name.removeprefix(".old-"))
        if final.exists():
            leftovers.append(old)
        else:
            old.replace(final)
    leftovers += folder.parent.glob(f".gone-{folder.name}")
    for leftover in leftovers:
        if leftover.exists():
            discard(leftover)


def discard(place: Path) -> None:
    """Remove a folder of ours, never following a mount that has stayed in it."""
    # Killed, we take rm along: the next verb makes things in this place.
    run(["setpriv", "--pdeathsig", "KILL", "rm", "-rf", "--one-file-system", str(place)], timeout=DISK_SECONDS)


def _copy(source: Path, target: Path) -> None:
    """Copy a tree as it is, white-outs, capabilities and the overlay's own attributes included."""
    argv = ["setpriv", "--pdeathsig", "KILL", "cp", "-a", "--reflink=auto", str(source), str(target)]
    try:
        run(argv, timeout=DISK_SECONDS)
    except LabError as error:
        raise LabError(f"{error}: make room in {target.parent}, or see whether its disk is failing") from None


def snapshots(folder: Path) -> list[Snapshot]:
    """The machine's snapshots, the oldest first."""
    found = []
    for place in folder.glob("snapshots/[!.]*"):
        try:
            found.append({"name": place.name, **json.loads((place / "about.json").read_text())})
        except (OSError, ValueError):
            continue  # it is being removed at this moment
    return sorted(found, key=lambda one: float(one["at"]))


def find(folder: Path, name: str) -> Snapshot:
    """The machine's snapshot of that name. Raises LabError naming those that there are."""
    there = snapshots(folder)
    for one in there:
        if one["name"] == name:
            return one
    if not there:
        taking = Lab(folder.parents[1].name).make("snapshot")
        raise LabError(
            f"{folder.name} has no snapshot: `{taking}` takes one, named clean unless SNAPSHOT=... says else"
        )
    names = ", ".join(one["name"] for one in there)
    raise LabError(f"{folder.name} has no snapshot {name!r}: it has {names}")


def take(folder: Path, name: str) -> None:
    """Copy the disk; the copy is no snapshot yet."""
    place = folder / "snapshots" / f".new-{name}"
    place.mkdir(parents=True)
    _copy(folder / "upper", place / "upper")


def publish(folder: Path, name: str, about: Snapshot) -> None:
    """Make the copy the snapshot of that name, in the place of one that has it."""
    final = folder / "snapshots" / name
    new, old = final.with_name(f".new-{name}"), final.with_name(f".old-{name}")
    run(["sync", "--file-system", str(new)], timeout=DISK_SECONDS)
    (new / "about.json").write_text(json.dumps({"at": round(time.time(), 3), "image": image.identity(), **about}))
    if final.exists():
        final.replace(old)
    new.replace(final)
    if old.exists():
        discard(old)


def remove(folder: Path, name: str) -> bool:
    """Remove a snapshot; False when there is none of that name."""
    final = folder / "snapshots" / name
    if not final.exists():
        return False
    gone = folder.parent / f".gone-{folder.name}"
    final.replace(gone)
    discard(gone)
    return True


def bring(folder: Path, name: str) -> None:
    """Copy a snapshot beside the disk. Raises LabError when it does not fit the base image of today."""
    if find(folder, name)["image"] != image.identity():
        raise LabError(f"snapshot {name!r} of {folder.name} lies on another base image: take a new one")
    part = folder / "incoming.part"
    _copy(folder / "snapshots" / name / "upper", part)
    part.replace(folder / "incoming")


def exchange(folder: Path) -> None:
    """Put what was brought in the disk's place. Expects the machine to be stopped and its file system unmounted."""
    outgoing = folder / "outgoing"
    (folder / "upper").replace(outgoing)
    (folder / "incoming").replace(folder / "upper")
    discard(outgoing)
    discard(folder / "work")  # what the kernel keeps there belongs to the disk that went
    (folder / "work").mkdir()


def set_aside(folder: Path) -> bool:
    """Make room for a successor; False when that has been done already."""
    if previous(folder).exists():
        return False
    folder.replace(previous(folder))
    return True


def put_back(folder: Path) -> None:
    """Undo set_aside: the successor goes. Raises LabError when nothing was set aside."""
    if not previous(folder).exists():
        raise LabError(f"no predecessor of {folder.name} is kept: there is nothing to put back")
    gone = folder.parent / f".gone-{folder.name}"
    if folder.exists():
        folder.replace(gone)
    previous(folder).replace(folder)
    if gone.exists():
        discard(gone)


def let_go(folder: Path) -> bool:
    """Remove what was set aside; False when nothing was."""
    if not previous(folder).exists():
        return False
    gone = folder.parent / f".gone-{folder.name}"
    previous(folder).replace(gone)
    discard(gone)
    return True
