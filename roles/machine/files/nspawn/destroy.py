"""Taking a lab away, in whatever state it is: half built, running, killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import cgroups
import control
import disks
import image
import keys
import machine
import netns
import state
import topology
from errors import LabError, attempt
from topology import Lab


def power_off(lab: Lab, deadline: float = 40.0) -> None:
    """Ask a living supervisor to halt the machines and wait until it has ended, or `deadline` seconds."""
    if not state.alive(lab):
        return
    try:
        control.ask(lab, verb="stop")
    except LabError:
        return  # it does not answer: what follows ends it by force
    control.wait_for_end(lab, deadline)


def take_down(lab: Lab) -> None:
    """End every process, mount and namespace of the lab; its disks and keys stay. Needs nothing of it to be whole."""
    keys.end_connections(lab)
    # the supervisor first: it would boot again what is being killed
    cgroups.kill(lab, "supervisor")
    cgroups.kill(lab)
    for name in topology.MACHINES:
        machine.clear_after_kill(lab, name)
    unmount(lab.state)
    netns.remove(lab)
    if state.load(lab).get("netns_directory_was_there") is False:
        netns.remove_directory()
    shutil.rmtree(lab.runtime, ignore_errors=True)
    _remove_if_empty(lab.runtime.parent)


def remove_state(lab: Lab) -> None:
    """Remove disks, keys, CA and logs. Expects the lab to be down."""
    disks.discard(lab.state)
    _remove_if_empty(lab.state.parent)


def unmount(below: Path) -> None:
    """Unmount everything below a folder, deepest first. Raises LabError when something cannot be unmounted."""
    below = below.resolve()  # the kernel names mounts so, also where /var/lib/glasslab is a link to a larger disk
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        where = line.split()[4].encode().decode("unicode_escape")
        if where.startswith(f"{below}/") and not attempt(["umount", where]) and not attempt(["umount", "-l", where]):
            raise LabError(f"cannot unmount {where}: look with `fuser -m {where}` for what holds it")


def remove_cache() -> bool:
    """Remove the base images; True when there were any."""
    removed = image.remove_cache()
    _remove_if_empty(image.CACHE)
    return removed


def release_lock(lab: Lab) -> None:
    """Take the verb lock's file away while it is held: whoever waits for it looks again (state.locked)."""
    state.verb_lock(lab).unlink(missing_ok=True)
    _remove_if_empty(lab.runtime.parent)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
