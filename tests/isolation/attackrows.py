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

from forging import (
    ACK,
    AGENT,
    AGENT6,
    ALL_NODES,
    EVERYBODY,
    GATEWAY,
    HELD,
    INTERNET,
    LAN,
    LOGS,
    OTHER,
    PSH,
    RST,
    SYN,
    Row,
    advertisement,
    arp,
    echo,
    echo6,
    ether,
    inside,
    ip,
    overlapping,
    pieces,
    redirect,
    six,
    source_routed,
    syn6,
    tcp,
    tiny,
    udp,
)

OPEN = frozenset({"open"})
EVERY = frozenset({"allowlist", "open", "closed", "build"})
CONNECTED = frozenset({"allowlist", "open", "build"})
PVE, ITSELF = ("pve:accepted",), ("pve:accepted", "reply")
SPOOF = {"rp_filter": (0, 2)}
FORWARD6, HOST6 = {"forwarding6": (1,)}, {"forwarding6": (0,)}
ALONE = {"br_netfilter": (0,)}
LOGS_MAC = "@logs"


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
    Row("6e", "rogue RA taken by pve", "agent", (advertisement(),), ("pve:route",), needs=HOST6),
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
        published=False,  # the kernel itself refuses type 0
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
    Row("I1-arp", "unassigned address claimed", "agent", (arp(GATEWAY, claims=UNASSIGNED),), ("pve:vmbr1",)),
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
    Row("D3", "127.0.0.1 as destination", "agent", (udp("127.0.0.1"),), ("pve:accepted", "lan"), published=False),
    Row("D4", "127.0.0.1 as source", "agent", (udp(LAN, source="127.0.0.1"),), ("lan",), published=False),
    Row("D5", "0.0.0.0 as destination", "agent", (udp("0.0.0.0"),), ("pve:accepted", "lan"), published=False),
    Row("B1", "broadcast to all", "agent", (udp("255.255.255.255", 8006, to=EVERYBODY),), PVE, published=False),
    Row("B2", "the lab's broadcast", "agent", (udp("10.10.10.255", 8006, to=EVERYBODY),), PVE, published=False),
    Row("B3", "the LAN's broadcast", "agent", (udp("192.168.50.255"),), ("lan", "pve:accepted"), published=False),
    Row("B4", "the other lab's", "agent", (udp("10.20.20.255"),), ("otherlab", "pve:accepted"), published=False),
    Row("B5", "multicast", "agent", (udp("224.0.0.251", 5353, to="01:00:5e:00:00:fb"),), PVE, published=False),
)

DOT1Q, PRIORITY = {"vlan": [20]}, {"vlan": [0]}
LAYER2 = (
    Row(
        "V1",
        "VLAN tag",
        "agent",
        tuple(
            [ether(to, **DOT1Q), *frame[1:]]
            for to, frame in (("@gateway", tcp(GATEWAY, 22)), (LOGS_MAC, tcp(LOGS, 22)))
        ),
        ("pve:accepted", "logs:accepted", "reply"),
        published=False,
    ),
    Row(
        "V2",
        "VLAN tag on the logs machine's wire",
        "agent",
        ([ether(LOGS_MAC, **DOT1Q), *tcp(LOGS, 22)[1:]],),
        ("logs",),
    ),
    Row("V3", "priority tag", "agent", ([ether(LOGS_MAC, **PRIORITY), *tcp(LOGS, 22)[1:]],), ("logs", "reply")),
    Row(
        "L1",
        "claims to be logs",
        "agent",
        (arp(GATEWAY, claims=LOGS, op=2, tha="@gateway"),),
        ("pve:vmbr1", "pve:neighbour"),
    ),
    Row(
        "L2",
        "claims to be the gateway",
        "agent",
        (arp(LOGS, claims=GATEWAY, op=2, to=LOGS_MAC, tha="@logs"),),
        ("logs", "logs:neighbour"),
    ),
    Row(
        "L3",
        "MAC table hijack",
        "agent",
        (arp(GATEWAY, src="@logs", sha="@agent"),),
        ("pve:fdb", "pve:vmbr1"),
        last=True,
    ),
    Row(
        "L3-ip",
        "IPv4 by another's MAC",
        "agent",
        ([ether("@logs", src="02:66:00:00:00:66"), *tcp(LOGS, 8088)[1:]],),
        ("logs",),
    ),
    Row("L3-sender", "another's MAC inside ARP", "agent", (arp(GATEWAY, sha="@logs"),), ("pve:vmbr1",)),
    Row("L4-lan", "who has pve's LAN address", "agent", (arp("192.168.50.2"),), ("reply",)),
    Row("L4-other", "who has its address in the other lab", "agent", (arp("10.20.20.1"),), ("reply",)),
    Row("L5-22", "logs on 22", "agent", (tcp(LOGS, 22, to=LOGS_MAC),), ("logs", "reply")),
    Row("L5-8089", "logs on 8089", "agent", (tcp(LOGS, 8089, to=LOGS_MAC),), ("logs", "reply")),
    Row("L5-udp", "UDP to logs on the log's port", "agent", (udp(LOGS, 8088, to=LOGS_MAC),), ("logs", "reply")),
    Row("L5-ping", "ping to logs", "agent", (echo(LOGS, to=LOGS_MAC),), ("logs", "reply")),
    Row("L6", "logs on 22 by way of the gateway", "agent", (tcp(LOGS, 22),), ("logs", "reply")),
    Row(
        "L7-bpdu",
        "spanning tree BPDU",
        "agent",
        ([ether("01:80:c2:00:00:00", type=38), ["raw", {"hex": "424203" + "00" * 32}]],),
        ("logs", "pve:vmbr1"),
    ),
    Row("L7-type", "unknown ethertype", "agent", ([ether(EVERYBODY, type=0x88B5)],), ("logs", "pve:vmbr1")),
)

EGRESS = (
    *(
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
        )
    ),
)

TUNNELS = tuple(
    Row(f"T-{kind}-{name}", f"{kind} to {name}", "agent", (inside(kind, target, to=to),), (where,), published)
    for kind in ("gre", "ipip", "6in4", "esp", "253")
    for name, target, to, where, published in (
        ("pve", GATEWAY, "@gateway", "pve:accepted", False),
        ("lan", LAN, "@gateway", "lan", False),
        ("otherlab", OTHER, "@gateway", "otherlab", False),
        ("internet", INTERNET, "@gateway", "internet", True),
        ("logs", LOGS, LOGS_MAC, "logs", True),
    )
)

ODD = (
    Row("F-pve", "fragments to pve", "agent", pieces(GATEWAY), PVE, published=False),
    Row("F-lan", "fragments to the LAN", "agent", pieces(LAN), ("lan",), published=False),
    Row("F-logs", "fragments to logs", "agent", pieces(LOGS, LOGS_MAC), ("logs",)),
    Row(
        "F-overlap-logs",
        "overlapping, to logs",
        "agent",
        overlapping(LOGS, 8088, LOGS_MAC),
        ("logs",),
        needs=ALONE,
        unmarked=(0,),
    ),
    Row("F-overlap-pve", "overlapping, to pve", "agent", overlapping(GATEWAY, 22), ITSELF, published=False),
    Row("F-tiny-logs", "tiny first fragment", "agent", tiny(LOGS, 22, LOGS_MAC), ("logs",), needs=ALONE, unmarked=(0,)),
    Row("R-pve", "ICMP redirect to pve", "agent", (redirect(GATEWAY, LOGS, "@gateway"),), PVE, published=False),
    Row("R-logs", "ICMP redirect to logs", "agent", (redirect(LOGS, GATEWAY, LOGS_MAC),), ("logs",)),
    Row(
        "M-report",
        "IGMP report",
        "agent",
        (ip("224.0.0.22", AGENT, "01:00:5e:00:00:16", ["igmp", {"type": 0x16, "group": "239.1.2.3"}], ttl=1),),
        PVE,
        published=False,
    ),
    Row(
        "M-query",
        "IGMP query",
        "agent",
        (ip("224.0.0.1", AGENT, "01:00:5e:00:00:01", ["igmp", {"type": 0x11}], ttl=1),),
        ("logs",),
    ),
    Row(
        "H-pve",
        "DHCP discover",
        "agent",
        (ip("255.255.255.255", "0.0.0.0", EVERYBODY, ["udp", {"sport": 68, "dport": 67}]),),
        PVE,
        published=False,
    ),
    Row(
        "H-logs",
        "DHCP discover seen by logs",
        "agent",
        (ip("255.255.255.255", "0.0.0.0", EVERYBODY, ["udp", {"sport": 68, "dport": 67}]),),
        ("logs",),
    ),
    Row(
        "H-offer",
        "DHCP offer to logs",
        "agent",
        (ip(LOGS, AGENT, LOGS_MAC, ["udp", {"sport": 67, "dport": 68}]),),
        ("logs",),
    ),
)


def inward(
    name: str, title: str, sender: str, seen: str, frame: list, *, published: bool = True, connection: bool = False
) -> Row:
    """A row from outside into the lab."""
    return Row(name, title, sender, (frame,), (seen,), published, connection=connection)


LAN_SIDE, OTHER_SIDE = {"source": LAN, "to": "@pve-lan"}, {"source": OTHER, "to": "@pve-other"}
INTERNET_SIDE = {"source": INTERNET, "to": "@pve-lan"}
INWARD = (
    inward("N-l1", "LAN to the agent", "lan", "agent", udp(AGENT, **LAN_SIDE)),
    inward("N-l2", "LAN to logs", "lan", "logs", udp(LOGS, **LAN_SIDE)),
    inward("N-l3", "LAN to the agent, ping", "lan", "agent", echo(AGENT, **LAN_SIDE)),
    inward("N-l4", "LAN to logs, TCP", "lan", "logs", tcp(LOGS, 8088, **LAN_SIDE)),
    inward("N-l5", "LAN under a lab address to logs", "lan", "logs", udp(LOGS, source=AGENT, to="@pve-lan")),
    inward("N-l6", "segment of no connection", "lan", "agent", tcp(AGENT, 40000, ACK, **LAN_SIDE)),
    # The stand-in's router knows no way to the lab: what the internet would send comes from its place on the LAN.
    inward("N-i1", "internet to the agent", "lan", "agent", udp(AGENT, **INTERNET_SIDE)),
    inward("N-i2", "internet to logs, TCP", "lan", "logs", tcp(LOGS, 8088, **INTERNET_SIDE)),
    inward("N-o1", "other lab to the agent", "otherlab", "agent", udp(AGENT, **OTHER_SIDE)),
    inward("N-o3", "other lab to logs, TCP", "otherlab", "logs", tcp(LOGS, 22, **OTHER_SIDE)),
    # The hypervisor's own doors on its other bridges are none of the lab's: whoever owns those closes them.
    Row(
        "N-o2-22", "other lab to pve's 22", "otherlab", (tcp("10.20.20.1", 22, **OTHER_SIDE),), ("reply",), passes=EVERY
    ),
    Row("N-o2-8006", "to its 8006", "otherlab", (tcp("10.20.20.1", 8006, **OTHER_SIDE),), ("reply",), passes=EVERY),
    *(
        inward(
            f"N-nat {what}",
            f"into an established NAT port: {what}",
            "lan",
            "agent",
            frame,
            published=False,
            connection=True,
        )
        for what, frame in (
            ("another peer, SYN", tcp("192.168.50.2", HELD, **LAN_SIDE)),
            ("another peer, data", tcp("192.168.50.2", HELD, PSH | ACK, **LAN_SIDE)),
            ("another peer, UDP", udp("192.168.50.2", HELD, **LAN_SIDE)),
            (
                "the peer's address, wrong numbers",
                tcp("192.168.50.2", HELD, PSH | ACK, source=INTERNET, to="@pve-lan", sport=80),
            ),
            ("the peer's address, SYN", tcp("192.168.50.2", HELD, SYN, source=INTERNET, to="@pve-lan", sport=443)),
            ("the peer's address, RST", tcp("192.168.50.2", HELD, RST, source=INTERNET, to="@pve-lan", sport=80)),
        )
    ),
)

FROM_LOGS = {"source": LOGS}
LOGS_OUT = (
    Row(
        "G-agent",
        "logs opens a connection to the agent",
        "logs",
        (tcp(AGENT, 22, source=LOGS, to="@agent"),),
        ("agent", "reply"),
    ),
    Row(
        "G-agent-8088",
        "from the log's own port",
        "logs",
        (tcp(AGENT, 40000, source=LOGS, to="@agent", sport=8088),),
        ("agent", "reply"),
    ),
    Row(
        "G-agent-service",
        "no SYN, to a service",
        "logs",
        (tcp(AGENT, 22, ACK, source=LOGS, to="@agent", sport=8088),),
        ("agent",),
    ),
    Row("G-agent-udp", "UDP to the agent", "logs", (udp(AGENT, source=LOGS, to="@agent"),), ("agent",)),
    Row(
        "G-overlap",
        "SYN by overlapping fragments",
        "logs",
        overlapping(AGENT, 40000, "@agent", source=LOGS),
        ("agent",),
        needs=ALONE,
    ),
    Row("G-pve", "logs to pve", "logs", (tcp("192.168.50.2", 22, **FROM_LOGS),), ITSELF, published=False),
    Row("G-lan", "logs to the LAN", "logs", (tcp(LAN, 80, **FROM_LOGS),), ("lan",), published=False),
    Row("G-other", "logs to the other lab", "logs", (tcp(OTHER, 80, **FROM_LOGS),), ("otherlab",), published=False),
    Row("G-out", "logs to the internet", "logs", (tcp(INTERNET, 443, **FROM_LOGS),), ("internet",)),
    Row("G-spoof", "logs as the agent", "logs", (tcp("203.0.113.10", 443, source=AGENT),), ("internet", "reply")),
    Row(
        "G-arp",
        "logs claims to be the agent",
        "logs",
        (arp(GATEWAY, claims=AGENT, op=2, tha="@gateway"),),
        ("pve:vmbr1",),
    ),
    Row("G-6", "IPv6 from logs to the agent", "logs", (echo6(ALL_NODES, source="@logs6"),), ("agent", "pve:accepted")),
)

ROWS: tuple[Row, ...] = (
    *plain(),
    *IPV6,
    *SOURCES,
    *DESTINATIONS,
    *LAYER2,
    *EGRESS,
    *TUNNELS,
    *ODD,
    *INWARD,
    *LOGS_OUT,
)
__all__ = ["AGENT6", "EVERY", "ROWS", "Row"]
