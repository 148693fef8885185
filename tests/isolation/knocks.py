"""What the prober sends: frames by class of denied destination, and where each class must never arrive.

A class's `layer` says what closes it: `forwarding` (nothing is ever routed without the rules), `input` and `bridge`
(closed by rules, so open from their loss until they are back). Frames are stacks of layers as attacks.py builds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Who sends, and the bridge of the hypervisor that is its gateway.
GATEWAYS = {"agent": "vmbr1", "logs": "vmbr1", "ctl": "vmbr0", "otherlab": "vmbr2"}
SENDERS = tuple(GATEWAYS)
INNER_BRIDGE = "fwbr101i0"  # the agent's own, when Proxmox's firewall is on for it
OUTSIDE = frozenset({"lan", "otherlab", "internet", "ctl"})
AGENT, LOG, GATEWAY = "10.10.10.10", "10.10.10.20", "10.10.10.1"
Frame = tuple[str, list[list[Any]]]


@dataclass(frozen=True)
class Class:
    """Frames of one kind, the namespaces where none may arrive, and the layer that sees to it."""

    name: str
    layer: str
    sinks: frozenset[str]
    frames: tuple[Frame, ...]


def udp(sender: str, source: str, target: str, port: int, *, to: str = "gateway", sport: int = 40001) -> Frame:
    """A datagram to a MAC or a name of one (`gateway`: the hypervisor's)."""
    ends = {"src": source, "dst": target}
    return sender, [["ether", {"dst": to}], ["ip", ends], ["udp", {"sport": sport, "dport": port}]]


def tcp(sender: str, source: str, target: str, port: int, *, to: str = "gateway", **fields: int) -> Frame:
    """A segment, by default one that opens a connection."""
    ends = {"src": source, "dst": target}
    ports = {"sport": 40002, "dport": port, **fields}
    return sender, [["ether", {"dst": to}], ["ip", ends], ["tcp", ports]]


def claim(address: str, owner: str = "agent") -> Frame:
    """An ARP answer in which the agent claims an address for a MAC."""
    fields = {"op": 2, "sha": owner, "spa": address, "tha": "logs", "tpa": LOG}
    return "agent", [["ether", {"dst": "logs"}], ["arp", fields]]


def everyone6(port: int) -> Frame:
    """An IPv6 datagram to all nodes on the link."""
    ends = {"src": "fe80::10:ff:fe00:10", "dst": "ff02::1"}
    ether = {"dst": "33:33:00:00:00:01"}
    return "agent", [["ether", ether], ["ip6", ends], ["udp", {"sport": 40003, "dport": port}]]


ACK, RST = 16, 4
FORGED = ("10.10.10.77", LOG, "192.168.50.77", "10.20.20.77", "203.0.113.99")
LAN, OTHER_LAB, ELSEWHERE, MODEL = "192.168.50.10", "10.20.20.10", "203.0.113.80", "203.0.113.10"
HYPERVISOR = (GATEWAY, "192.168.50.2", "10.20.20.1")

CLASSES = (
    Class(
        "LAN",
        "forwarding",
        OUTSIDE,
        (udp("agent", AGENT, LAN, 80), tcp("agent", AGENT, "192.168.50.1", 443), udp("logs", LOG, LAN, 80)),
    ),
    Class(
        "other lab",
        "forwarding",
        OUTSIDE,
        (udp("agent", AGENT, OTHER_LAB, 80), tcp("agent", AGENT, OTHER_LAB, 22), udp("logs", LOG, OTHER_LAB, 80)),
    ),
    # Denied in every mode but `open`.
    Class(
        "internet host",
        "forwarding",
        OUTSIDE,
        (
            udp("agent", AGENT, ELSEWHERE, 80),
            tcp("agent", AGENT, ELSEWHERE, 443),
            udp("agent", AGENT, MODEL, 443),
            udp("agent", AGENT, "203.0.113.53", 53),
        ),
    ),
    Class(
        "special ranges",
        "forwarding",
        OUTSIDE,
        tuple(udp("agent", AGENT, to, 80) for to in ("169.254.169.254", "100.64.0.1", "172.16.0.1", "198.18.0.1")),
    ),
    Class(
        "outside, forged sources",
        "forwarding",
        OUTSIDE,
        tuple(udp("agent", source, to, 80) for source in FORGED for to in (LAN, OTHER_LAB, ELSEWHERE)),
    ),
    Class(
        "into the lab",
        "forwarding",
        frozenset({"agent", "logs"}),
        (
            udp("ctl", "192.168.50.100", AGENT, 9999),
            udp("ctl", "203.0.113.53", AGENT, 9999, sport=53),
            udp("otherlab", OTHER_LAB, AGENT, 9999),
            tcp("ctl", MODEL, AGENT, 9999, sport=443, flags=ACK),
            udp("ctl", "192.168.50.100", LOG, 8089),
            tcp("otherlab", OTHER_LAB, LOG, 8088, flags=RST),
        ),
    ),
    Class(
        "hypervisor",
        "input",
        frozenset({"pve"}),
        tuple(udp("agent", source, to, 8006) for to in HYPERVISOR for source in (AGENT, "10.10.10.77")),
    ),
    Class(
        "by the inner bridge",
        "forwarding",
        OUTSIDE | {"pve"},
        tuple(udp("agent", AGENT, to, 8006, to="inner") for to in (*HYPERVISOR, LAN, OTHER_LAB)),
    ),
    Class("hypervisor, IPv6", "input", frozenset({"pve"}), (everyone6(8006),)),
    Class(
        "hypervisor's services from outside",
        "input",
        frozenset({"pve"}),
        (udp("ctl", "192.168.50.100", GATEWAY, 1053), udp("otherlab", OTHER_LAB, GATEWAY, 1053)),
    ),
    Class(
        "log, other ports",
        "bridge",
        frozenset({"logs"}),
        (tcp("agent", AGENT, LOG, 22, to="logs"), udp("agent", AGENT, LOG, 8088, to="logs")),
    ),
    Class(
        "log, forged frames",
        "bridge",
        frozenset({"logs"}),
        (tcp("agent", "10.10.10.77", LOG, 8088, to="logs"), claim(GATEWAY), claim(AGENT, "ctl"), everyone6(9999)),
    ),
    Class(
        "agent, from the log",
        "bridge",
        frozenset({"agent"}),
        (tcp("logs", LOG, AGENT, 22, to="agent"), udp("logs", LOG, AGENT, 9999, to="agent")),
    ),
)
