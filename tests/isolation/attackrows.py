"""Every attack as data: who sends which frames, where they would be seen, and under which rules they are.

A row is open when one of its frames is seen at one of the row's places:

    lan, otherlab, internet, logs, agent    on the wire there
    pve:vmbr1                               past layer 2, at the hypervisor's end of the bridge
    pve:accepted, logs:accepted             past INPUT, at the machine's IP stack
    reply                                   the sender has an answer: SYN-ACK, RST, echo, datagram, ARP or ICMP error
    pve:route, logs:route                   the machine takes the agent as its IPv6 default router
    pve:neighbour, logs:neighbour           the machine believes the agent to be somebody else
    pve:fdb                                 the bridge believes another guest to be behind the agent's port

In frames, `@name` stands for a MAC or an address that observing.py knows, `@port` for a port of the row's own.
"""

from __future__ import annotations

from bridgerows import INWARD, LAYER2, LOGS_OUT, ODD, OVERHEARD, TUNNELS
from forging import (
    ALL_NODES,
    EVERYBODY,
    FORWARD6,
    GATEWAY,
    INTERNET,
    ITSELF,
    LAN,
    LOGS,
    LOGS_MAC,
    OPEN,
    OTHER,
    PVE,
    SPOOF,
    VMBR1,
    Row,
    advertisement,
    arp,
    echo,
    echo6,
    six,
    source_routed,
    syn6,
    tcp,
    udp,
)


def plain() -> list[Row]:
    """The 28 probes that the published rules were checked with."""
    doors = {
        "hypervisor": ((GATEWAY, "192.168.50.2", "10.20.20.1"), (22, 8006), (8006,), ITSELF),
        "LAN": ((LAN, "192.168.50.1"), (22, 80, 443, 445, 8006), (), ("lan", "reply")),
        "other lab": ((OTHER,), (22, 80, 8088), (), ("otherlab", "reply")),
    }
    rows = []
    for name, (addresses, ports, datagrams, seen) in doors.items():
        for address in addresses:
            ways = [(f"tcp {port}", tcp(address, port)) for port in ports]
            ways += [(f"udp {port}", udp(address, port)) for port in datagrams] + [("ping", echo(address))]
            for way, frame in ways:
                where = f"{name} {address} {way}"
                rows.append(Row(f"P {where}", where, "agent", (frame,), seen, published=False))
    return rows


IPV6 = (
    Row("6a", "ping ff02::1", "agent", (echo6(ALL_NODES),), ITSELF),
    Row("6b-22", "TCP to pve's fe80:: on 22", "agent", (syn6("@gateway6", 22),), ITSELF),
    Row("6b-8006", "TCP to pve's fe80:: on 8006", "agent", (syn6("@gateway6", 8006),), ITSELF),
    Row("6c-lan", "pve's LAN address through its fe80", "agent", (syn6("fd50::2", 22),), ITSELF),
    Row("6c-other", "pve's address in the other lab, likewise", "agent", (syn6("fd20::1", 8006),), ITSELF),
    Row("6d-lan", "IPv6 to the LAN", "agent", (six("fd50::10", source="fd10::10"),), ("lan",), needs=FORWARD6),
    Row("6d-other", "to the other lab", "agent", (six("fd20::10", source="fd10::10"),), ("otherlab",), needs=FORWARD6),
    Row("6e", "rogue RA taken by pve", "agent", (advertisement(),), ("pve:route",)),
    Row("6e-in", "rogue RA past pve's INPUT", "agent", (advertisement(),), PVE),
    Row("6f", "IPv6 to the logs machine", "agent", (syn6("@logs6", 8088, to=LOGS_MAC),), ("logs", "reply")),
    Row("6g", "rogue RA to the logs machine", "agent", (advertisement(),), ("logs", "logs:route")),
    Row("6x-hopbyhop", "hop-by-hop header to pve", "agent", (echo6(ALL_NODES, ["hopbyhop", {}]),), ITSELF),
    Row("6x-destination", "destination options", "agent", (syn6("@gateway6", 22, ["destination", {}]),), ITSELF),
    Row("6x-atomic", "atomic fragment to pve", "agent", (syn6("@gateway6", 22, ["fragment", {"id": 9}]),), ITSELF),
    Row(
        "6x-routing",
        "routing header 0 by pve to the LAN",
        "agent",
        (six("@gateway6", ["routing", {"addresses": ["fd50::10"]}], ["udp", {"sport": "@port", "dport": 9}]),),
        ("lan", "pve:accepted"),
        published=False,
        kernel_passes=False,  # the kernel itself refuses type 0
    ),
    Row("6x-logs", "hop-by-hop header to logs", "agent", (echo6(ALL_NODES, ["hopbyhop", {}]),), ("logs", "reply")),
)

UNASSIGNED, ELSEWHERE = "10.10.10.66", "172.30.0.66"
SPOOFED = (
    # id, source, target, seen at, does the published FORWARD DROP by lab source match it?
    ("S1", "unassigned", ELSEWHERE, LAN, "lan", True),
    ("S2", "unassigned", ELSEWHERE, OTHER, "otherlab", True),
    ("S3", "the LAN's", "192.168.50.66", OTHER, "otherlab", True),
    ("S4", "the other lab's", "10.20.20.66", LAN, "lan", True),
    ("S5", "the internet's", "203.0.113.66", LAN, "lan", True),
    ("S6", "the internet's", "203.0.113.66", OTHER, "otherlab", True),
    ("S7", "the lab's, unassigned", UNASSIGNED, LAN, "lan", False),
    ("S8", "the logs machine's", LOGS, OTHER, "otherlab", False),
)
SOURCES = (
    *(
        Row(name, f"source {whose} to {where}", "agent", (udp(to, source=source),), (where,), published, SPOOF)
        for name, whose, source, to, where, published in SPOOFED
    ),
    Row("S9", "source the logs machine's to the internet", "agent", (udp(INTERNET, source=LOGS),), ("internet",)),
    Row("S10", "source the LAN's to logs", "agent", (tcp(LOGS, 8088, source=LAN, to=LOGS_MAC),), ("logs",)),
    Row("S11", "source the gateway's to logs", "agent", (tcp(LOGS, 8088, source=GATEWAY, to=LOGS_MAC),), ("logs",)),
    Row("S12", "loose source route to the LAN", "agent", (source_routed(LAN),), ("lan",), needs={"source_route": (1,)}),
    Row("S13", "to the other lab", "agent", (source_routed(OTHER),), ("otherlab",), needs={"source_route": (1,)}),
    Row("S14", "IP options to logs", "agent", (tcp(LOGS, 8088, to=LOGS_MAC, options="07070400000000"),), ("logs",)),
    Row("I1-arp", "unassigned address claimed", "agent", (arp(GATEWAY, claims=UNASSIGNED),), VMBR1),
    Row("I1-logs", "unassigned to logs", "agent", (tcp(LOGS, 8088, source=UNASSIGNED, to=LOGS_MAC),), ("logs",)),
    Row("I1-out", "unassigned to the internet", "agent", (tcp(INTERNET, 80, source=UNASSIGNED),), ("internet",)),
)

SPECIAL = {
    "D1": ("CGNAT", "100.64.0.1"),
    "D2": ("metadata", "169.254.169.254"),
    **{f"D {one}": ("special range", one) for one in ("192.0.0.9", "192.0.2.1", "192.88.99.1", "198.18.0.1")},
    **{f"D {one}": ("special range", one) for one in ("198.51.100.1", "240.0.0.1")},
}
PRIVATE = ("10.99.0.1", "172.16.0.1", "192.168.77.1")
DESTINATIONS = (
    *(Row(name, f"{what} {to}", "agent", (udp(to),), ("lan",)) for name, (what, to) in SPECIAL.items()),
    *(Row(f"D {to}", f"private {to}", "agent", (udp(to),), ("lan",), published=False) for to in PRIVATE),
    Row(
        "D3",
        "127.0.0.1 as destination",
        "agent",
        (udp("127.0.0.1"),),
        ("pve:accepted", "lan"),
        published=False,
        kernel_passes=False,
    ),
    Row(
        "D4",
        "127.0.0.1 as source",
        "agent",
        (udp(LAN, source="127.0.0.1"),),
        ("lan",),
        published=False,
        kernel_passes=False,
    ),
    Row(
        "D5",
        "0.0.0.0 as destination",
        "agent",
        (udp("0.0.0.0"),),
        ("pve:accepted", "lan"),
        published=False,
        kernel_passes=False,
    ),
    Row("B1", "broadcast to all", "agent", (udp("255.255.255.255", 8006, to=EVERYBODY),), PVE, published=False),
    Row("B2", "the lab's broadcast", "agent", (udp("10.10.10.255", 8006, to=EVERYBODY),), PVE, published=False),
    Row("B3", "the LAN's broadcast", "agent", (udp("192.168.50.255"),), ("lan", "pve:accepted"), published=False),
    Row("B4", "the other lab's", "agent", (udp("10.20.20.255"),), ("otherlab", "pve:accepted"), published=False),
    Row("B5", "multicast", "agent", (udp("224.0.0.1", 5353, to="01:00:5e:00:00:01"),), PVE, published=False),
)

EGRESS = tuple(
    Row(f"E1 {what}", f"internet host: {what}", "agent", (frame,), ("internet",), passes=OPEN)
    for what, frame in (
        ("tcp 80", tcp(INTERNET, 80)),
        ("tcp 443", tcp(INTERNET, 443)),
        ("tcp 9999", tcp(INTERNET, 9999)),
        ("udp 443", udp(INTERNET, 443)),
        ("ping", echo(INTERNET)),
        ("dns", udp(INTERNET, 53)),
        ("dns over tls", tcp(INTERNET, 853)),
        ("the model directly", tcp("203.0.113.10", 443)),
        ("the model on another port", tcp("203.0.113.10", 8443)),
        ("the resolver directly", udp("203.0.113.53", 53)),
        ("the model by QUIC", udp("203.0.113.10", 443)),
        ("ping the model", echo("203.0.113.10")),
    )
)

SERVICES = (
    *(
        Row(f"E2 {address} {frame.__name__} {port}", "no redirection", "agent", (frame(address, port),), ITSELF, False)
        for address in (GATEWAY, "192.168.50.2")
        for frame, port in ((udp, 1053), (tcp, 1053), (tcp, 14000))
    ),
)

ROWS: tuple[Row, ...] = (
    *plain(),
    *IPV6,
    *SOURCES,
    *DESTINATIONS,
    *EGRESS,
    *SERVICES,
    *LAYER2,
    *TUNNELS,
    *ODD,
    *INWARD,
    *OVERHEARD,
    *LOGS_OUT,
)
