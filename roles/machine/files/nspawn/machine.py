"""One machine: its disk (an overlay on the base image) and how systemd-nspawn boots it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import cgroups
import image
import netns
import seed
from errors import LabError, attempt, run
from topology import MACHINES, Lab

REBOOT = 133  # how nspawn says, under --keep-unit, that the machine asked for a reboot
NSPAWN_RUNTIME = Path("/run/systemd/nspawn")

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # the namespace is the machine's own: its /proc/sys/net must be writable, the rest of /proc/sys stays read-only
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
}


def root(lab: Lab, name: str) -> Path:
    """Where the machine's file system is mounted while the lab is up."""
    return lab.machine(name) / "root"


def mounted(lab: Lab, name: str) -> bool:
    """True when the machine's file system is mounted."""
    return os.path.ismount(root(lab, name))


def prepare(lab: Lab, name: str, version: str = "") -> bool:
    """Mount the machine's overlay and seed it once; True when it was seeded now. `version` is what it was made by.

    A disk whose seeding was cut short, or that lies on another base image than today's, is begun anew.
    """
    folder = lab.machine(name)
    marker = folder / "seeded"
    expected = f"{image.identity()}\n"
    if marker.exists() and marker.read_text() == expected:
        _mount(lab, name)
        return False
    unmount(lab, name)
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    _mount(lab, name)
    seed.write(lab, MACHINES[name], root(lab, name))
    (folder / "built.json").write_text(json.dumps({"at": round(time.time(), 3), "version": version or "unknown"}))
    partial = folder / "seeded.new"
    partial.write_text(expected)
    partial.replace(marker)
    return True


def _mount(lab: Lab, name: str) -> None:
    if mounted(lab, name):
        return
    folder = lab.machine(name)
    options = f"lowerdir={image.path()},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    run(["mount", "-t", "overlay", f"glasslab-{lab.lab_id}-{name}", "-o", options, str(root(lab, name))])


def unmount(lab: Lab, name: str) -> None:
    """Unmount the machine's file system, also one that is still in use by something dying."""
    while mounted(lab, name):
        if not attempt(["umount", str(root(lab, name))]) and not attempt(["umount", "-l", str(root(lab, name))]):
            raise LabError(f"cannot unmount {root(lab, name)}: look with `fuser -m` for what holds it")


def clear_after_kill(lab: Lab, name: str) -> None:
    """Remove what a systemd-nspawn that was killed leaves under /run: newer ones refuse to boot over it."""
    if mounted(lab, name):
        disk = root(lab, name).stat()
        (NSPAWN_RUNTIME / f"locks/inode-{disk.st_dev}:{disk.st_ino}").unlink(missing_ok=True)
    for kind in ("unix-export", "propagate"):
        place = NSPAWN_RUNTIME / kind / lab.namespace(name)
        while os.path.ismount(place) and attempt(["umount", "-l", str(place)]):
            pass
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def boot_command(lab: Lab, name: str) -> list[str]:
    """The command that boots the machine, in its control group and its network namespace."""
    nspawn = ["systemd-nspawn", "--quiet", f"--directory={root(lab, name)}", f"--machine={lab.namespace(name)}"]
    nspawn += ["--boot", "--register=no", "--keep-unit", "--console=pipe", "--link-journal=no"]
    nspawn += ["--resolv-conf=off", "--timezone=off", "--capability=CAP_NET_ADMIN", "--system-call-filter=bpf"]
    # not --network-namespace-path: with it /proc/sys/net is read-only and /sys/class/net shows the wrong interfaces
    enter = ["nsenter", f"--net={netns.path(lab, name)}"]
    return cgroups.launcher(lab, name, [*enter, *nspawn])


def leader(lab: Lab, name: str) -> int:
    """The machine's PID 1 as this machine numbers it. Raises LabError when the machine does not run."""
    for directory in (cgroups.directory(lab, tree) / name for tree in cgroups.roots()):
        for pid in cgroups.processes(directory):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if any(line.startswith("NSpid:") and line.split()[2:] == ["1"] for line in status.splitlines()):
                return pid
    raise LabError(f"machine {name} of lab {lab.lab_id} does not run: start it with `up --machines {name}`")


def execute(lab: Lab, name: str, command: list[str]) -> int:
    """Run a command inside the machine with this program's standard streams; returns its exit code."""
    argv = ["nsenter", "-t", str(leader(lab, name)), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
    argv += ["/usr/bin/env", "-i", f"PATH={ENVIRONMENT['PATH']}", "HOME=/root", "TERM=dumb", "LC_ALL=C.UTF-8"]
    return subprocess.run([*argv, *command], check=False).returncode
