"""What happens to guests that stand: snapshot, rollback, a successor and the way back; and what is known of them.

A verb that is killed loses nothing: what it had not finished is ended or undone by the next one. While it copies a disk
its machine is frozen, by the supervisor, which thaws it when this program goes away.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import control
import disks
import image
import keys
import machine
import state
from errors import LabError
from topology import MACHINES, Lab

HYPERVISOR = "pve"


def need(lab: Lab, wanted: list[str]) -> None:
    """Raise LabError unless the lab lives and the machines are guests of it."""
    if not wanted:
        raise LabError("no machine named: give --machines with one or more of its guests: agent, logs")
    if HYPERVISOR in wanted:
        raise LabError(f"{HYPERVISOR} is the hypervisor: snapshots and successors are its guests' (agent, logs)")
    if not state.alive(lab):
        raise LabError(f"no lab {lab.lab_id} stands on this machine: `{lab.make('demo')}` builds one")
    for name in wanted:
        marker = lab.machine(name) / "seeded"
        if not marker.exists() and not disks.previous(lab.machine(name)).exists():
            raise LabError(f"lab {lab.lab_id} has no machine {name} yet: `{lab.make('demo')}` goes on with building")


def settle(lab: Lab) -> None:
    """End or undo what a killed verb left of each machine, its host key included."""
    for name in MACHINES:
        folder = lab.machine(name)
        disks.settle(folder)
        if (folder / "identity").exists() and not disks.previous(folder).exists():
            _restore_identity(lab, name)


def taken(lab: Lab, wanted: list[str], name: str) -> list[str]:
    """Which of the machines have a snapshot of that name."""
    return [one for one in wanted if any(found["name"] == name for found in disks.snapshots(lab.machine(one)))]


def lacking(lab: Lab, wanted: list[str], name: str, *, replace: bool) -> list[str]:
    """The machines of which a snapshot is to be taken: all, or those that an interrupted verb left without.

    Raises LabError when each has one of that name and it is not to be replaced.
    """
    disks.check_name(name)
    there = taken(lab, wanted, name)
    if replace or not there:
        return wanted
    if there == wanted:
        raise LabError(
            f"the name {name!r} is taken by a snapshot of {', '.join(there)}: choose another (SNAPSHOT=...), or have "
            "it replaced (REPLACE=1)"
        )
    return [one for one in wanted if one not in there]


def plan(lab: Lab, wanted: list[str], options: argparse.Namespace) -> list[str]:
    """The machines on which the verb would do something. Raises LabError where it would."""
    kept = [one for one in wanted if disks.previous(lab.machine(one)).exists()]
    if options.verb == "snapshot":
        if options.remove:
            return taken(lab, wanted, options.name)
        return lacking(lab, wanted, options.name, replace=options.replace)
    if options.verb == "rollback":
        for one in wanted:
            disks.find(lab.machine(one), options.name)
        return wanted
    if options.verb == "put-back" and not kept:
        raise LabError(f"no predecessor of {', '.join(wanted)} is kept: there is nothing to put back")
    return [one for one in wanted if one not in kept] if options.verb == "renew" else kept


def snapshot(lab: Lab, wanted: list[str], name: str, about: dict[str, Any], *, replace: bool) -> list[str]:
    """Take a snapshot of the machines at one moment; returns those of which one was taken."""
    settle(lab)
    due = lacking(lab, wanted, name, replace=replace)
    with control.frozen(lab, due):
        for one in due:
            disks.take(lab.machine(one), name)
    for one in due:
        disks.publish(lab.machine(one), name, about)
    return due


def forget(lab: Lab, wanted: list[str], name: str) -> list[str]:
    """Remove a snapshot; returns the machines that had it."""
    settle(lab)
    return [one for one in wanted if disks.remove(lab.machine(one), name)]


def rollback(lab: Lab, wanted: list[str], name: str) -> list[str]:
    """Put the machines' disks back to a snapshot and boot them. What they did since is gone, running or not."""
    settle(lab)
    for one in wanted:
        disks.find(lab.machine(one), name)
    for one in wanted:
        disks.bring(lab.machine(one), name)
    control.ask(lab, verb="cut", machines=wanted)
    for one in wanted:
        machine.unmount(lab, one)
        disks.exchange(lab.machine(one))
    _boot(lab, wanted)
    return wanted


def renew(lab: Lab, wanted: list[str], version: str) -> list[str]:
    """Boot a successor of each machine, with a new disk and a new host key; the machine itself is kept, stopped.

    Done again, it goes on with the successor that there is. Returns the machines that were set aside now.
    """
    settle(lab)
    began = []
    for one in wanted:
        folder = lab.machine(one)
        if not disks.previous(folder).exists():
            control.ask(lab, verb="halt", machines=[one])
            machine.unmount(lab, one)
            _keep_identity(lab, one)
            disks.set_aside(folder)
            began.append(one)
        _forget_identity(lab, one)
    keys.ensure(lab)
    _boot(lab, wanted, version)
    return began


def put_back(lab: Lab, wanted: list[str]) -> list[str]:
    """Undo renew: the successor goes, the machine that was set aside is booted."""
    settle(lab)
    back = [one for one in wanted if disks.previous(lab.machine(one)).exists()]
    if not back:
        raise LabError(f"no predecessor of {', '.join(wanted)} is kept: there is nothing to put back")
    for one in back:
        if (disks.previous(lab.machine(one)) / "seeded").read_text() != f"{image.identity()}\n":
            raise LabError(f"the predecessor of {one} lies on another base image than today's: keep the successor")
    control.ask(lab, verb="cut", machines=back)
    for one in back:
        machine.unmount(lab, one)
        disks.put_back(lab.machine(one))
        _restore_identity(lab, one)
    keys.ensure(lab)
    _boot(lab, back)
    return back


def let_go(lab: Lab, wanted: list[str]) -> list[str]:
    """Remove the machines that were set aside, their snapshots included; returns those."""
    settle(lab)
    return [one for one in wanted if disks.let_go(lab.machine(one))]


def _boot(lab: Lab, wanted: list[str], version: str = "") -> None:
    for one in wanted:
        machine.prepare(lab, one, version)
    control.ask(lab, verb="boot", machines=wanted)


def _identity(lab: Lab, name: str, folder: Path) -> list[tuple[Path, Path]]:
    return [(lab.ssh / file, folder / "identity" / file) for file in (f"host-{name}", f"host-{name}.pub")]


def _keep_identity(lab: Lab, name: str) -> None:
    folder = lab.machine(name)
    (folder / "identity").mkdir(mode=0o700, exist_ok=True)
    for own, kept in _identity(lab, name, folder):
        if own.exists():
            shutil.copy2(own, kept)


def _forget_identity(lab: Lab, name: str) -> None:
    """Take the predecessor's host key away, and no other."""
    pairs = _identity(lab, name, disks.previous(lab.machine(name)))
    if any(own.exists() and kept.exists() and own.read_bytes() == kept.read_bytes() for own, kept in pairs):
        for own, _ in pairs:
            own.unlink(missing_ok=True)


def _restore_identity(lab: Lab, name: str) -> None:
    folder = lab.machine(name)
    for own, kept in _identity(lab, name, folder):
        if kept.exists():
            partial = own.with_name(f".{own.name}.new")
            shutil.copy2(kept, partial)
            partial.replace(own)
    disks.discard(folder / "identity")


def version(checkout: Path) -> str:
    """The checkout's commit, as receipts name it."""
    argv = ["git", "-c", "safe.directory=*", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def known(lab: Lab) -> dict[str, dict[str, Any]]:
    """What the disks say of each machine, of a lab that is down too: when and by what it was made, its snapshots."""
    found: dict[str, dict[str, Any]] = {}
    for name in MACHINES:
        folder = lab.machine(name)
        if not (folder / "seeded").exists():
            continue
        try:
            built = json.loads((folder / "built.json").read_text())
        except (OSError, ValueError):
            built = {"at": (folder / "seeded").stat().st_mtime, "version": "unknown"}
        fits = image.ready() and (folder / "seeded").read_text() == f"{image.identity()}\n"
        shown = [
            {key: one.get(key, "") for key in ("name", "at", "version", "description")}
            for one in disks.snapshots(folder)
        ]
        found[name] = {
            **built,
            "image_current": fits,
            "snapshots": shown,
            "predecessor": disks.previous(folder).exists(),
        }
    return found
