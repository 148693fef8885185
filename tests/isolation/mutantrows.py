"""Rows beside attackrows.py's that tell mutants apart: packets that one match alone of a rule keeps out.

In the topology `third` the other lab's port is in the lab's bridge, as a guest's that nobody has declared would be.
"""

from __future__ import annotations

from typing import Any

from forging import (
    ACK,
    AGENT,
    GATEWAY,
    HELD,
    INTERNET,
    LAN,
    LOGS,
    OTHER,
    RST,
    TELLS_NOBODY,
    Layers,
    Row,
    arp,
    echo,
    ether,
    ip,
    tcp,
    udp,
)

RESOLVER, MODEL = "203.0.113.53", "203.0.113.10"
ITSELF = ("pve:accepted", "reply")
# The ports of connections that defence.py puts into the hypervisor's table.
LOST, INNER_FLOW, OUTER_FLOW, OWN_FLOW = 40000, 40001, 40002, 40003
UPLINK = "192.168.50.2"
BACK = {"source": LOGS, "sport": 8088}
LAN_SIDE, OTHER_SIDE = {"source": LAN, "to": "@pve-lan"}, {"source": OTHER, "to": "@pve-other"}
AS_AGENT = {"source": AGENT, "to": "@pve-lan", "sport": INNER_FLOW}
FORGED = {"source": GATEWAY, "sport": 8088, "to": "@agent"}
End = tuple[str, int]


def error(to: str, source: str, begun: tuple[End, End], *, kind: int = 3, by: str = "@gateway", **ways: Any) -> Layers:
    """An ICMP error about a packet from one end to the other."""
    (one, sport), (other, dport) = begun
    protocol = ways.pop("protocol", "tcp")
    quoted = [["ip", {"src": one, "dst": other}], [protocol, {"sport": sport, "dport": dport}]]
    return ip(to, source, by, ["icmp", {"type": kind, "code": 1}], *quoted)


SSH = (GATEWAY, 22)
NATTED, WEB = (UPLINK, HELD), (INTERNET, 80)
OUTSIDE, INSIDE = (LAN, OUTER_FLOW), (AGENT, 22)
OWN, THEIRS = (UPLINK, OWN_FLOW), (INTERNET, TELLS_NOBODY)
ERRORS: tuple[Row, ...] = (
    Row("M-error", "about nothing, to pve", "agent", (error(GATEWAY, AGENT, (OWN, WEB)),), ("pve:accepted",)),
    *(
        Row(f"M-error {what} {who}", "", who, (error(GATEWAY, own, begun, kind=kind),), ("pve:accepted",))
        for who, own, other in (("agent", AGENT, LOGS), ("logs", LOGS, AGENT))
        for what, begun, kind in (("kind", (SSH, (own, LOST)), 12), ("of another", (SSH, (other, LOST)), 3))
    ),
    Row("M-error-out", "about pve's", "agent", (error(INTERNET, AGENT, (THEIRS, OWN), protocol="udp"),), ("internet",)),
    Row(
        "M-error-other",
        "logs about the agent's",
        "logs",
        (error(INTERNET, LOGS, (WEB, (AGENT, HELD))),),
        ("internet",),
        connection=True,
    ),
    Row(
        "M-error-in-kind",
        "another error about the agent's own",
        "lan",
        (error(UPLINK, INTERNET, (NATTED, WEB), kind=12, by="@pve-lan"),),
        ("agent",),
        connection=True,
    ),
    *(
        Row(f"M-error-{way} {kind}", "", who, (error(to, source, begun, kind=kind, by=by),), (seen,))
        for kind in (3, 11)
        for way, who, to, source, begun, by, seen in (
            ("begun", "agent", LAN, AGENT, (OUTSIDE, INSIDE), "@gateway", "lan"),
            ("begun in", "lan", AGENT, LAN, (INSIDE, OUTSIDE), "@pve-lan", "agent"),
            ("in", "lan", AGENT, LAN, (OWN, WEB), "@pve-lan", "agent"),
            ("in way", "lan", LOGS, LAN, ((LOGS, 8088), (AGENT, INNER_FLOW)), "@pve-lan", "logs"),
        )
    ),
)
# What guests may ask, and are answered. That a flow works says less: whoever waits for an answer takes a stranger's
# question, broadcast at that moment, for one.
ASKED = tuple(
    Row(f"M-asks {who} for {name}", "", who, (arp(to, claims=own),), ("reply",))
    for who, own, others in (
        ("agent", AGENT, {"its gateway": GATEWAY, "logs": LOGS}),
        ("logs", LOGS, {"its gateway": GATEWAY, "the agent": AGENT}),
    )
    for name, to in others.items()
)
ROWS: tuple[Row, ...] = (
    *ERRORS,
    *ASKED,
    Row("M-other-udp", "UDP to the other lab", "agent", (udp(OTHER),), ("otherlab",)),
    Row("M-logs-ping", "logs pings the internet", "logs", (echo(INTERNET, source=LOGS),), ("internet",)),
    Row("M-third-out", "the log's flow to another port", "agent", (tcp(LOGS, 8088, to="@otherlab"),), ("otherlab",)),
    Row("M-third-in", "and from another port", "otherlab", (tcp(LOGS, 8088, source=AGENT, to="@logs"),), ("logs",)),
    Row("M-back-out", "its replies", "logs", (tcp(AGENT, 40009, ACK, to="@otherlab", **BACK),), ("otherlab",)),
    Row("M-back-in", "from another port", "otherlab", (tcp(AGENT, 40009, ACK, to="@agent", **BACK),), ("agent",)),
    Row(
        "M-back-from",
        "from another address",
        "logs",
        (tcp(AGENT, 40009, ACK, source=GATEWAY, to="@agent", sport=8088),),
        ("agent",),
    ),
    Row("M-lan-in", "the LAN as the agent", "lan", (tcp(LOGS, 8088, source=AGENT, to="@pve-lan"),), ("logs",)),
    Row("M-mac", "by another MAC", "agent", ([ether("@gateway", src="02:66:00:00:00:66"), *udp(LAN)[1:]],), ("lan",)),
    Row("M-logs-source", "logs as somebody else", "logs", (udp(LAN, source="172.30.0.66"),), ("lan",)),
    Row("M-to", "the log's port at another address", "agent", (tcp(INTERNET, 8088, to="@logs"),), ("logs",)),
    Row("M-back-to", "its replies, likewise", "logs", (tcp(INTERNET, 40009, ACK, to="@agent", **BACK),), ("agent",)),
    Row("M-dhcp-to", "to a DHCP server", "agent", (udp(GATEWAY, 67),), ("pve:vmbr1",)),
    Row(
        "M-dhcp-from",
        "as one",
        "agent",
        (ip(GATEWAY, AGENT, "@gateway", ["udp", {"sport": 67, "dport": 9999}]),),
        ("pve:vmbr1",),
    ),
    Row("M-dns-logs", "the log's machine to the resolver", "logs", (udp(RESOLVER, 53, source=LOGS),), ITSELF),
    Row("M-dns-logs-tcp", "over TCP", "logs", (tcp(RESOLVER, 53, source=LOGS),), ITSELF),
    Row("M-model-logs", "to the model", "logs", (tcp(MODEL, 443, source=LOGS),), ITSELF),
    Row("M-dns-other", "another resolver", "agent", (udp(INTERNET, 53),), ITSELF),
    Row("M-dns-other-tcp", "over TCP", "agent", (tcp(INTERNET, 53),), ITSELF),
    Row("M-dns-port", "another port of the resolver", "agent", (udp(RESOLVER, 123),), ITSELF),
    Row("M-dns-port-tcp", "over TCP", "agent", (tcp(RESOLVER, 22),), ITSELF),
    Row("M-model-port", "another port of the model", "agent", (tcp(MODEL, 22),), ITSELF),
    Row("M-invalid", "ends what nobody began", "agent", (tcp(INTERNET, 80, RST),), ("internet",)),
    Row("M-inner-flow", "the LAN in a guest's flow", "lan", (tcp(LOGS, 8088, ACK, **AS_AGENT),), ("logs",)),
    Row(
        "M-lan-begun",
        "in a flow begun outside",
        "lan",
        (tcp(AGENT, 22, ACK, sport=OUTER_FLOW, **LAN_SIDE),),
        ("agent",),
    ),
    Row("M-lan-back", "its replies", "agent", (tcp(LAN, OUTER_FLOW, ACK, sport=22),), ("lan",)),
    Row("M-others", "what the host forwards for others", "otherlab", (udp(LAN, **OTHER_SIDE),), ("lan",)),
    Row("M-lost", "of a connection nobody began", "agent", (tcp(GATEWAY, 22, ACK, sport=LOST),), ITSELF),
)
# Where Proxmox's bridge stands before the agent: to that bridge's own hardware address.
INNER: tuple[Row, ...] = (
    Row("M-inner-pve", "pve by the inner bridge", "agent", (udp("192.168.50.2", 8006, to="@inner"),), ITSELF),
    Row("M-inner-lan", "the LAN by it", "agent", (udp("192.168.50.10", to="@inner"),), ("lan",)),
)
