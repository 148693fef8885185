"""The lab's shape as data: namespaces, links, addresses, machines and stand-ins, derived from the lab's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from errors import LabError

DEFAULT = "glasslab"
NAMESPACES = ("pve", "agent", "logs", "lan", "otherlab", "internet", "ctl")
RESOLVER = "203.0.113.53"
MODEL_ADDRESS = "203.0.113.10"
OTHER_RESOLVER = "203.0.113.54"
ELSEWHERE_ADDRESS = "203.0.113.80"
DOH_ADDRESS = "203.0.113.81"
PACKAGES_ADDRESS = "203.0.113.82"
# Somebody's Splunk, for tests of splunk_mode=existing: nothing serves there by itself.
SPLUNK_ADDRESS = "203.0.113.83"
# The model's address has a second name, as any address of a large provider has.
NAMES = {
    "model.glasslab.test": MODEL_ADDRESS,
    "other.glasslab.test": MODEL_ADDRESS,
    "elsewhere.glasslab.test": ELSEWHERE_ADDRESS,
    "doh.glasslab.test": DOH_ADDRESS,
    "packages.glasslab.test": PACKAGES_ADDRESS,
    "splunk.glasslab.test": SPLUNK_ADDRESS,
}


@dataclass(frozen=True)
class Machine:
    """A machine that boots its own systemd. SSH answers on `address`; `port` is the hypervisor's end of its cable."""

    name: str
    address: str
    mac: str
    port: str


@dataclass(frozen=True)
class End:
    """One end of a cable."""

    namespace: str
    interface: str
    mac: str


@dataclass(frozen=True)
class Tap:
    """A guest's port in the hypervisor's namespace and the bridge it belongs in, once that bridge is up."""

    interface: str
    bridge: str


MACHINES = {
    "pve": Machine("pve", "192.168.50.2", "02:50:00:00:00:02", "eno1"),
    "agent": Machine("agent", "10.10.10.10", "02:10:00:00:00:10", "tap101i0"),
    "logs": Machine("logs", "10.10.10.20", "02:10:00:00:00:20", "tap102i0"),
}
TAPS = (Tap("tap101i0", "vmbr1"), Tap("tap102i0", "vmbr1"), Tap("tap201i0", "vmbr2"))

# A bridge takes the lowest address of its ports: the hypervisor's ends are high and rise in the order of plugging,
# so the gateway's address does not change under a guest that has it in its neighbour table.
CABLES = (
    (End("pve", "eno1", "02:50:00:00:00:02"), End("lan", "port-pve", "fe:50:00:00:00:02")),
    (End("ctl", "eth0", "02:50:00:00:00:64"), End("lan", "port-ctl", "fe:50:00:00:00:64")),
    (End("internet", "eth0", "02:71:00:00:00:10"), End("lan", "internet0", "02:71:00:00:00:01")),
    (End("agent", "eth0", "02:10:00:00:00:10"), End("pve", "tap101i0", "fe:10:00:00:00:10")),
    (End("logs", "eth0", "02:10:00:00:00:20"), End("pve", "tap102i0", "fe:10:00:00:00:20")),
    (End("otherlab", "eth0", "02:20:00:00:00:10"), End("pve", "tap201i0", "fe:20:00:00:00:10")),
)

# What the bare hosts are configured with (the machines configure themselves), as input of `ip -batch`.
HOST_COMMANDS = {
    "lan": (
        "link add brlan address 02:50:00:00:00:01 type bridge",
        "link set port-pve master brlan up",
        "link set port-ctl master brlan up",
        "address add 192.168.50.1/24 dev brlan",
        "address add 192.168.50.10/24 dev brlan",
        "address add fd50::1/64 dev brlan nodad",
        "address add fd50::10/64 dev brlan nodad",
        "link set brlan up",
        "address add 203.0.113.1/24 dev internet0",
        "link set internet0 up",
    ),
    "internet": (
        *(f"address add {address}/24 dev eth0" for address in dict.fromkeys(NAMES.values())),
        f"address add {RESOLVER}/24 dev eth0",
        f"address add {OTHER_RESOLVER}/24 dev eth0",
        "link set eth0 up",
        "route add 192.168.50.0/24 via 203.0.113.1",
    ),
    "otherlab": (
        "address add 10.20.20.10/24 dev eth0",
        "address add fd20::10/64 dev eth0 nodad",
        "link set eth0 up",
        "route add default via 10.20.20.1",
        "route add default via fd20::1",
    ),
    "ctl": (
        "address add 192.168.50.100/24 dev eth0",
        "address add fd50::100/64 dev eth0 nodad",
        "link set eth0 up",
        "route add default via 192.168.50.1",
        # positive controls: from here every target must answer
        "route add 10.10.10.0/24 via 192.168.50.2",
        "route add 10.20.20.0/24 via 192.168.50.2",
        "route add fd20::/64 via fd50::2",
    ),
}

# namespace -> addresses and ports on which a listener answers, over TCP and UDP
LISTENERS = {
    "lan": (("192.168.50.10", "192.168.50.1", "fd50::10", "fd50::1"), (22, 80, 443, 445, 8006)),
    "otherlab": (("10.20.20.10", "fd20::10"), (22, 80, 8088)),
    "internet": ((ELSEWHERE_ADDRESS, OTHER_RESOLVER), (53, 80, 443, 853)),
}


@dataclass(frozen=True)
class Lab:
    """Where everything of one lab lives."""

    lab_id: str

    @property
    def state(self) -> Path:
        """What outlives a reboot of this machine: disks, keys, CA, logs."""
        return Path("/var/lib/glasslab") / self.lab_id

    @property
    def runtime(self) -> Path:
        """Locks, sockets, the SSH configuration and the running copy of this program."""
        return Path("/run/glasslab") / self.lab_id

    def make(self, words: str) -> str:
        """`make WORDS` as it is typed for this lab: without its name the default one would be meant."""
        return f"make {words}" if self.lab_id == DEFAULT else f"make {words} LAB_ID={self.lab_id}"

    @property
    def logs(self) -> Path:
        """What consoles and stand-ins print."""
        return self.state / "log"

    @property
    def ssh(self) -> Path:
        """The lab's key, known hosts and the machines' host keys."""
        return self.state / "ssh"

    def machine(self, name: str) -> Path:
        """The folder of one machine's disk."""
        return self.state / "machines" / name

    def namespace(self, name: str) -> str:
        """The name of a namespace as `ip netns` lists it."""
        return f"{self.lab_id}-{name}"


def lab(lab_id: str) -> Lab:
    """The lab of that name. Raises LabError for a name that cannot be part of a path, namespace and socket name."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", lab_id):
        raise LabError(f"lab id {lab_id!r}: use 1 to 16 lower-case letters and digits, beginning with a letter")
    return Lab(lab_id)


def machines(text: str) -> list[str]:
    """The machines named in a comma-separated list, in boot order. Raises LabError for an unknown name."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in MACHINES:
            raise LabError(f"unknown machine {name!r}: the embedded lab has {', '.join(MACHINES)}")
    return [name for name in MACHINES if name in wanted]


def compare(name: str, given: dict[str, str]) -> None:
    """Raise LabError when an inventory gives a machine another address, MAC or port than the embedded lab has."""
    if name not in MACHINES:
        raise LabError(f"unknown machine {name!r}: the embedded lab has {', '.join(MACHINES)}")
    for what, value in given.items():
        own = getattr(MACHINES[name], what)
        if value and value.lower() != own:
            raise LabError(f"machine_{what} of {name} is {value!r}: the embedded lab has {own} there, and only that")
