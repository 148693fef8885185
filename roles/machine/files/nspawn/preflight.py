"""What a machine must have before a lab is built on it; each lack is one line that says how to end it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import cgroups
import image
import netns
import state
import topology
from errors import LabError
from topology import Lab

# tool -> Debian package
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
MEGABYTE = 1 << 20
DISK_IMAGE = 1000 * MEGABYTE  # and the package cache while it is built
DISK_STATE = 500 * MEGABYTE
MEMORY = 1024 * MEGABYTE


def check(lab: Lab) -> None:
    """Raise LabError with the first thing that is missing or in the way. Changes nothing that lasts."""
    root()
    tools()
    keyring()
    control_groups()
    state.refuse_unknown(lab)
    disk(lab)
    if not state.alive(lab):
        memory()
        file_system(lab.state)
        kernel()
    foreign_names(lab)


def root() -> None:
    """Only root can make namespaces and boot machines."""
    if os.geteuid() != 0:
        raise LabError(f"not root (uid {os.geteuid()}): run this as root or with sudo")


def tools() -> None:
    """Every program this backend starts is there."""
    path = "/usr/local/sbin:/usr/sbin:/sbin:" + os.environ.get("PATH", "/usr/bin:/bin")
    missing = {package for tool, package in TOOLS.items() if not shutil.which(tool, path=path)}
    if missing:
        packages = " ".join(sorted(missing))
        raise LabError(f"tools are missing: install the Debian packages: apt-get install {packages}")


def keyring() -> None:
    """Without Debian's keys (on Ubuntu, say) the image cannot be verified."""
    if not image.ready() and not any(Path("/usr/share/keyrings").glob("debian-archive-*")):
        raise LabError("Debian's archive keys are missing: install them with: apt-get install debian-archive-keyring")


def control_groups() -> None:
    """A tree of control groups that can be written to."""
    for tree in cgroups.roots():
        if not os.access(tree, os.W_OK):
            raise LabError(f"{tree} is read-only (a container?): use a machine or VM of its own")


def disk(lab: Lab) -> None:
    """Room for the image and for the machines' disks, which may lie on one file system or on two."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}
    for place, size in ((image.CACHE, 0 if image.ready() else DISK_IMAGE), (lab.state, DISK_STATE)):
        while not place.exists():
            place = place.parent
        device = place.stat().st_dev
        needed[device] = needed.get(device, 0) + size
        places.setdefault(device, place)
    for device, place in places.items():
        free = shutil.disk_usage(place).free
        if free < needed[device]:
            raise LabError(
                f"{free // MEGABYTE} MB free in {place}, {needed[device] // MEGABYTE} MB needed: make room there"
            )


def memory() -> None:
    """Room for three machines and what runs in them."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            if available < MEMORY:
                raise LabError(
                    f"{available // MEGABYTE} MB of memory free, {MEMORY // MEGABYTE} MB needed: end programs"
                )


def kernel() -> None:
    """Overlay mounts, veth, bridge and nf_tables: tried out in a mount and network namespace that ends at once."""
    overlay = "mount -t tmpfs probe /tmp && cd /tmp && mkdir l u w m && mount -t overlay probe"
    probes = {
        "veth interfaces": "ip link add probe0 type veth peer name probe1",
        "bridges": "ip link add probe2 type bridge",
        "nf_tables": "nft add table inet probe",
        "overlay file systems": f"{overlay} -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w /tmp/m",
    }
    for what, script in probes.items():
        argv = ["unshare", "--net", "--mount", "sh", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise LabError(f"this kernel or container gives no {what} ({why}): use a machine or VM of its own")


def file_system(place: Path) -> None:
    """Machines' disks are overlays, which cannot lie on an overlay (a container's root) or a network's file system."""
    kinds = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        kinds[words[4]] = words[words.index("-") + 1]  # a later mount hides an earlier one
    place = place.resolve()
    while str(place) not in kinds:
        place = place.parent
    kind = kinds[str(place)]
    if kind == "overlay" or kind.startswith(("nfs", "9p", "fuse")):
        raise LabError(f"{place} has the file system {kind}, which holds no overlay: use a machine or VM of its own")


def foreign_names(lab: Lab) -> None:
    """Names that the lab needs and that something else has: recognised by there being no state of ours."""
    if _known(lab):
        return
    found = _names_in_use(lab)
    if found and not _known(lab):  # looked at again: another `up` of the same lab may have begun meanwhile
        raise LabError(found)


def _known(lab: Lab) -> bool:
    return bool(state.load(lab)) or lab.runtime.exists()


def _names_in_use(lab: Lab) -> str:
    for name in topology.NAMESPACES:
        if netns.path(lab, name).exists():
            return (
                f"network namespace {lab.namespace(name)} exists and no lab of this program is known to have made it: "
                f"choose another lab_id than {lab.lab_id!r}, or have it removed with: "
                f"{lab.make('destroy FORCE=1')}"
            )
    for tree in cgroups.roots():
        where = cgroups.directory(lab, tree)
        if where.exists() and cgroups.processes(where):
            return f"control group {where} is in use and is no lab's: end its processes or choose another lab_id"
    return ""
