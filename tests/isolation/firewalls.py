"""Other firewalls on the hypervisor, as fixtures: how each is started and stopped, and how one sees that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isolationtools import PLACES, answers, door, pve, run

FOREIGN = Path(__file__).parent / "foreign"
THERE = "/root/foreign"  # on the hypervisor; its /tmp does not outlive a reboot
FWBR = f"sh {THERE}/fwbr.sh"
BRIDGE_CALLS = "for call in iptables ip6tables; do echo {} >/proc/sys/net/bridge/bridge-nf-call-$call; done"
PVE_STOP = """
for chain in INPUT OUTPUT FORWARD; do iptables -D $chain -j PVEFW-$chain; done
chains=$(iptables-save -t filter | sed -n 's/^:\\(PVEFW-[^ ]*\\|tap10[12]i0-[^ ]*\\) .*/\\1/p')
for chain in $chains; do iptables -F $chain; done
for chain in $chains; do iptables -X $chain; done
ebtables -D FORWARD -j PVEFW-FORWARD
for chain in PVEFW-FORWARD PVEFW-FWBR-OUT tap101i0-OUT tap102i0-OUT; do ebtables -F $chain; done
for chain in PVEFW-FORWARD PVEFW-FWBR-OUT tap101i0-OUT tap102i0-OUT; do ebtables -X $chain; done
"""
NFT_STOP = "nft delete table inet proxmox-firewall; nft delete table bridge proxmox-firewall-guests"
CLOSED_PORTS = (
    ("controller", door("192.168.50.2", tcp=[8007])),
    ("hypervisor", door("10.10.10.20", tcp=[9])),
    ("hypervisor", door("10.10.10.10", tcp=[9])),
)
# Flows, by flowprobes' names, that are none of the lab's and that these firewalls deny.
DENIED = (
    "otherlab: its gateway",
    "pve: an echo of the agent",
    "pve: a port of the agent that is closed",
    "pve: a port of the log's machine that is closed",
)
MANAGED = ("controller", door("192.168.50.2", tcp=[22, 8006]))


@dataclass(frozen=True)
class Firewall:
    """A fixture. `closes` are doors that it closes and nothing else does; `opens` are those that stay open."""

    name: str
    start: str
    stop: str
    present: str  # a command that succeeds when its rules are all there
    closes: tuple[tuple[str, dict[str, Any]], ...]
    opens: tuple[tuple[str, dict[str, Any]], ...] = (MANAGED,)
    stops: tuple[str, ...] = ()  # flows, by flowprobes' names, that it denies
    before: str = ""
    after: str = ""


PVE_FIREWALL = Firewall(
    "pve-firewall, with fwbr bridges",
    start=f"{BRIDGE_CALLS.format(1)}; iptables-restore -n <{THERE}/pve-firewall.rules"
    f" && ebtables-restore --noflush <{THERE}/pve-firewall.ebtables",
    stop=PVE_STOP,
    present="iptables -C FORWARD -j PVEFW-FORWARD && iptables -C INPUT -j PVEFW-INPUT"
    " && iptables -C tap102i0-IN -j DROP && ebtables -L FORWARD | grep -q PVEFW-FORWARD",
    closes=CLOSED_PORTS,
    stops=DENIED,
    before=f"{FWBR} plug",
    after=f"{FWBR} unplug; {BRIDGE_CALLS.format(0)}",
)
PROXMOX_FIREWALL = Firewall(
    "proxmox-firewall",
    start=f"nft -f {THERE}/proxmox-firewall.nft",
    stop=NFT_STOP,
    present="nft list chain bridge proxmox-firewall-guests guest-102-in | grep -q drop"
    " && nft list chain inet proxmox-firewall cluster-in | grep -q drop",
    closes=CLOSED_PORTS,
    stops=DENIED,
)
PROXMOX_FIREWALL_FWBR = Firewall(
    "proxmox-firewall, with fwbr bridges",
    **{name: getattr(PROXMOX_FIREWALL, name) for name in ("start", "stop", "present", "closes", "stops")},
    before=f"{FWBR} plug",
    after=f"{FWBR} unplug",
)
DOCKER = Firewall(
    "Docker",
    start=f"iptables-restore -n <{THERE}/docker.rules && sh {THERE}/docker.sh start",
    stop=f"sh {THERE}/docker.sh stop",
    present="iptables -C FORWARD -j DOCKER-USER && iptables -S FORWARD | grep -qx -- '-P FORWARD DROP'"
    " && iptables -t nat -C PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
    closes=(("controller", door("10.20.20.10", tcp=[80])),),
    stops=("ctl: the other lab",),
)
FIREWALLS = (PVE_FIREWALL, PROXMOX_FIREWALL, PROXMOX_FIREWALL_FWBR, DOCKER)


def carry_over() -> None:
    """Put the fixtures onto the hypervisor."""
    for file in FOREIGN.iterdir():
        run(PLACES["hypervisor"], "sh", "-c", f"mkdir -p {THERE} && cat >{THERE}/{file.name}", stdin=file.read_text())


def holding(firewall: Firewall) -> list[str]:
    """What of the firewall does not hold; nothing when it does."""
    wrong = [] if pve(f"({firewall.present}) >/dev/null 2>&1 && echo there", check=False) else ["its rules are gone"]
    jobs = [(*one, "silent") for one in firewall.closes] + [(*one, "open") for one in firewall.opens]
    with ThreadPoolExecutor(len(jobs)) as pool:
        seen = list(pool.map(lambda job: set(answers(job[0], job[1])), jobs))
    for (place, target, expected), found in zip(jobs, seen, strict=True):
        if found != {expected}:
            wrong.append(f"{place} to {target['name']}: {sorted(found)}, not {expected}")
    return wrong


@contextmanager
def about(firewall: Firewall) -> Iterator[None]:
    """The surroundings of a firewall: what stands before it starts, and everything of it taken away at the end."""
    pve(firewall.before or "true")
    try:
        yield
    finally:
        pve(f"{firewall.stop}\n{firewall.after}", check=False)
