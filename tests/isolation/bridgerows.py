"""Rows of attackrows.py: what passes the bridge, odd packets, what comes from outside, what the logs machine sends."""

from __future__ import annotations

from typing import Any

from forging import (
    ACK,
    AGENT,
    ALL_NODES,
    ALL_NODES_MAC,
    ALONE,
    EVERY,
    EVERYBODY,
    GATEWAY,
    HELD,
    INTERNET,
    ITSELF,
    KERNEL,
    LAN,
    LOGS,
    LOGS_MAC,
    NO_SERVICES,
    OPEN,
    OTHER,
    PSH,
    PVE,
    RST,
    SPOOF,
    SYN,
    UNCHECKED,
    VMBR1,
    Layers,
    Row,
    arp,
    discover,
    echo,
    echo6,
    ether,
    igmp,
    inside,
    ip,
    overlapping,
    pieces,
    redirect,
    six,
    tcp,
    tiny,
    udp,
)

DOT1Q, PRIORITY = {"vlan": [20]}, {"vlan": [0]}
TO_LOGS = {"to": LOGS_MAC}
NO_PACKET: dict[str, Any] = {"needs": ALONE, "malformed": True}


def tagged(to: str, frame: Layers, **ways: Any) -> Layers:
    """The frame with another layer of its own: a VLAN tag, another sender."""
    return [ether(to, **ways), *frame[1:]]


VLANS = (tagged("@gateway", tcp(GATEWAY, 22), **DOT1Q), tagged(LOGS_MAC, tcp(LOGS, 22), **DOT1Q))
BPDU = [ether("01:80:c2:00:00:00", type=38), ["raw", {"hex": "424203" + "00" * 32}]]
# Frames to these groups never reach the bridge's prerouting: LLDP's pass no hook of the bridge at all, and go up by the
# guest's port as if that were an interface of the hypervisor's own; the others pass its input hook alone.
LLDP, EAPOL = "01:80:c2:00:00:0e", "01:80:c2:00:00:03"
AS_LOGS, AS_GATEWAY = arp(GATEWAY, claims=LOGS, op=2, tha="@gateway"), arp(LOGS, claims=GATEWAY, op=2, tha=LOGS_MAC)
LAYER2 = (
    Row("V1", "VLAN tag", "agent", VLANS, ("pve:accepted", "logs:accepted", "reply"), **KERNEL),
    Row("V2", "VLAN tag on the logs machine's wire", "agent", VLANS[1:], ("logs",)),
    Row("V4", "two VLAN tags", "agent", (tagged(LOGS_MAC, tcp(LOGS, 22), vlan=[0, 20]),), ("logs",)),
    Row("V3", "priority tag", "agent", (tagged(LOGS_MAC, tcp(LOGS, 22), **PRIORITY),), ("logs", "reply")),
    Row("L1", "claims to be logs", "agent", (AS_LOGS,), ("pve:vmbr1", "pve:neighbour")),
    Row("L2", "claims to be the gateway", "agent", (AS_GATEWAY,), ("logs", "logs:neighbour")),
    Row("L3", "MAC hijack", "agent", (arp(GATEWAY, src="@logs", sha="@agent"),), ("pve:fdb", "pve:vmbr1"), last=True),
    Row("L3-lldp", "MAC learnt from LLDP", "agent", (tagged(LLDP, arp(GATEWAY), src="@stranger"),), ("pve:fdb",)),
    Row("L3-eapol", "MAC learnt from EAPOL", "agent", (tagged(EAPOL, arp(GATEWAY), src="@stranger"),), ("pve:fdb",)),
    Row("L3-ip", "another MAC", "agent", (tagged(LOGS_MAC, tcp(LOGS, 8088), src="@stranger"),), ("logs", "pve:fdb")),
    Row("L3-sender", "another MAC inside ARP", "agent", (arp(GATEWAY, sha=LOGS_MAC),), VMBR1),
    Row("L4-lan", "who has pve's LAN address", "agent", (arp("192.168.50.2"),), ("reply",)),
    Row("L4-other", "who has its address in the other lab", "agent", (arp("10.20.20.1"),), ("reply",)),
    # Whoever asked for an address, an answer for it counts: open where either frame is answered.
    Row("L4-lldp", "the same in an LLDP frame", "agent", (arp("192.168.50.2", to=LLDP),), ("reply",)),
    Row("L4-eapol", "the same in an EAPOL frame", "agent", (arp("10.20.20.1", to=EAPOL),), ("reply",)),
    Row("L5-22", "logs on 22", "agent", (tcp(LOGS, 22, **TO_LOGS),), ("logs", "reply")),
    Row("L5-8089", "logs on 8089", "agent", (tcp(LOGS, 8089, **TO_LOGS),), ("logs", "reply")),
    Row("L5-udp", "UDP to logs on the log's port", "agent", (udp(LOGS, 8088, **TO_LOGS),), ("logs", "reply")),
    Row("L5-ping", "ping to logs", "agent", (echo(LOGS, **TO_LOGS),), ("logs", "reply")),
    Row("L6", "logs on 22 by way of the gateway", "agent", (tcp(LOGS, 22),), ("logs", "reply")),
    Row("L8-udp", "IPv4 in an LLDP frame", "agent", (udp(GATEWAY, 8006, to=LLDP),), ITSELF, needs=UNCHECKED),
    Row("L8-ping", "ping in an LLDP frame", "agent", (echo("192.168.50.2", to=LLDP),), ITSELF, needs=UNCHECKED),
    Row("L8-lan", "to the LAN in an LLDP frame", "agent", (udp(LAN, to=LLDP),), ("lan",), **KERNEL),
    Row("L8-eapol", "IPv4 in an EAPOL frame", "agent", (udp(GATEWAY, 8006, to=EAPOL),), ITSELF, needs=UNCHECKED),
    Row("L7-bpdu", "spanning tree BPDU", "agent", (BPDU,), ("logs", "pve:vmbr1")),
    # IPv4 in another's clothes: a label, a session, a header of its own, a tag of a provider's.
    *(
        Row(
            f"L7-{what}",
            "",
            "agent",
            ([ether(LOGS_MAC, type=kind), ["raw", {"hex": head}], *tcp(LOGS, 22)[1:]],),
            ("logs",),
        )
        for what, kind, head in (
            ("mpls", 0x8847, "00001140"),
            ("pppoe", 0x8864, "11000001002e0021"),
            ("snap", 60, "aaaa030000000800"),
            ("provider", 0x88A8, "00140800"),
        )
    ),
    Row("L7-type", "unknown ethertype", "agent", ([ether(EVERYBODY, type=0x88B5)],), ("logs", "pve:vmbr1")),
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
    # Kept until its rest comes, in the one store for all fragments that the hypervisor gets from anywhere.
    Row("F-kept", "a fragment without its rest", "agent", pieces(GATEWAY)[:1], VMBR1, needs=ALONE),
    # Where a route leads on, the kernel answers before any rule of FORWARD.
    *(
        Row(f"X-{where}", f"answered as a hop on the way to {to}", "agent", (udp(to, ttl=1),), ("reply", where))
        for where, to in (("lan", LAN), ("otherlab", OTHER))
    ),
    Row("F-pve", "fragments to pve", "agent", pieces(GATEWAY), PVE, published=False),
    Row("F-lan", "fragments to the LAN", "agent", pieces(LAN), ("lan",), published=False),
    Row("F-logs", "fragments to logs", "agent", pieces(LOGS, LOGS_MAC), ("logs",)),
    Row(
        "F-overlap-logs",
        "overlapping",
        "agent",
        overlapping(LOGS, 8088, LOGS_MAC),
        ("logs",),
        needs=ALONE,
        unmarked=(0,),
    ),
    Row(
        "F-overlap-pve",
        "overlapping, to pve",
        "agent",
        overlapping(GATEWAY, 22),
        ITSELF,
        published=False,
        kernel_passes=False,
    ),
    Row("F-tiny-logs", "tiny first fragment", "agent", tiny(LOGS, 22, LOGS_MAC), ("logs",), unmarked=(0,)),
    Row("R-pve", "ICMP redirect to pve", "agent", (redirect(GATEWAY, LOGS, "@gateway"),), PVE, published=False),
    Row("R-logs", "ICMP redirect to logs", "agent", (redirect(LOGS, GATEWAY, LOGS_MAC),), ("logs",)),
    Row("M-report", "IGMP report", "agent", (igmp("224.0.0.22", 0x16, "239.1.2.3"),), VMBR1),
    Row("M-query-pve", "IGMP query to pve", "agent", (igmp("224.0.0.1", 0x11),), PVE, published=False),
    Row("M-query-logs", "IGMP query to logs", "agent", (igmp("224.0.0.1", 0x11),), ("logs",)),
    # Segments of no connection, and messages that ask for no echo.
    *(
        Row(f"C-pve {flags}", f"flags {flags} to pve's 22", "agent", (tcp(GATEWAY, 22, flags),), PVE, published=False)
        for flags in (0, RST, ACK, SYN | ACK)
    ),
    *(
        Row(f"C-pve icmp {kind}", "", "agent", (ip(to, AGENT, "@gateway", ["icmp", {"type": kind}]),), PVE, False)
        for kind, to in ((13, GATEWAY), (42, "192.168.50.2"))
    ),
    Row("H-pve", "DHCP discover", "agent", (discover(),), PVE, published=False),
    # A server of DHCP reads frames, and more leniently than the kernel reads packets.
    *(
        Row(f"H-odd {what}", "DHCP in no whole packet", "agent", (discover(AGENT, **odd),), VMBR1, **NO_PACKET)
        for what, odd in (("version", {"version": 5}), ("length", {"total": 900}), ("short", {"total": 8}))
    ),
    Row("H-logs", "DHCP discover seen by logs", "agent", (discover(),), ("logs",)),
    Row(
        "H-offer",
        "DHCP offer to logs",
        "agent",
        (ip(LOGS, AGENT, LOGS_MAC, ["udp", {"sport": 67, "dport": 68}]),),
        ("logs",),
    ),
)


# What the hypervisor itself sends on the bridge and is for somebody else there, or for everybody.
OVERHEARD = tuple(
    Row(f"O-{name}", f"hypervisor's {what} heard by the agent", "pve/vmbr1", (frame,), ("agent",))
    for name, what, frame in (
        ("flooded", "unicast to a MAC that the bridge has not learnt", udp(LOGS, source=GATEWAY, to="@stranger")),
        ("multicast", "multicast", udp("224.0.0.251", 5353, source=GATEWAY, to="01:00:5e:00:00:fb")),
        ("broadcast", "broadcast", udp("10.10.10.255", source=GATEWAY, to=EVERYBODY)),
        ("six", "IPv6", six(ALL_NODES, source="fe80::1", to=ALL_NODES_MAC)),
    )
)

LAN_SIDE, OTHER_SIDE = {"source": LAN, "to": "@pve-lan"}, {"source": OTHER, "to": "@pve-other"}
PEER = {"source": INTERNET, "sport": 80, "to": "@pve-lan"}
INTERNET_SIDE = {"source": INTERNET, "to": "@pve-lan"}
INWARD = (
    Row("N-l1", "LAN to the agent", "lan", (udp(AGENT, **LAN_SIDE),), ("agent",)),
    Row("N-l2", "LAN to logs", "lan", (udp(LOGS, **LAN_SIDE),), ("logs",)),
    Row("N-l3", "LAN to the agent, ping", "lan", (echo(AGENT, **LAN_SIDE),), ("agent",)),
    Row("N-l4", "LAN to logs, TCP", "lan", (tcp(LOGS, 8088, **LAN_SIDE),), ("logs",)),
    Row("N-l5", "LAN under a lab address", "lan", (udp(LOGS, source=AGENT, to="@pve-lan"),), ("logs",), needs=SPOOF),
    Row("N-l6", "segment of no connection", "lan", (tcp(AGENT, 40000, ACK, **LAN_SIDE),), ("agent",)),
    *(
        Row(f"N-l6 {flags}", f"flags {flags} to the agent", "lan", (tcp(AGENT, 40000, flags, **LAN_SIDE),), ("agent",))
        for flags in (0, RST, RST | ACK, SYN | ACK)
    ),
    # The stand-in's router knows no way to the lab: what the internet would send comes from its place on the LAN.
    Row("N-i1", "internet to the agent", "lan", (udp(AGENT, **INTERNET_SIDE),), ("agent",)),
    Row("N-i2", "internet to logs, TCP", "lan", (tcp(LOGS, 8088, **INTERNET_SIDE),), ("logs",)),
    Row("N-o1", "other lab to the agent", "otherlab", (udp(AGENT, **OTHER_SIDE),), ("agent",)),
    Row("N-o3", "other lab to logs, TCP", "otherlab", (tcp(LOGS, 22, **OTHER_SIDE),), ("logs",)),
    # The peer itself: shows that those above would be seen.
    Row(
        "N-nat peer",
        "into a NAT port by its peer, right numbers",
        "lan",
        (tcp("192.168.50.2", HELD, PSH | ACK, seq="@next", ack="@acked", **PEER),),
        ("agent",),
        passes=OPEN,
        connection=True,
    ),
    # The services by which the agent leaves are for nobody else. Without them the hypervisor itself refuses.
    *(
        Row(f"N-service {who} {by.__name__} {port}", "", who, (by(GATEWAY, port, **side),), ITSELF, passes=NO_SERVICES)
        for who, side in (("lan", LAN_SIDE), ("otherlab", OTHER_SIDE))
        for by, port in ((udp, 1053), (tcp, 1053), (tcp, 14000))
    ),
    # The hypervisor's own doors on its other bridges are none of the lab's: whoever owns those closes them.
    Row(
        "N-o2-22", "other lab to pve's 22", "otherlab", (tcp("10.20.20.1", 22, **OTHER_SIDE),), ("reply",), passes=EVERY
    ),
    Row("N-o2-8006", "to its 8006", "otherlab", (tcp("10.20.20.1", 8006, **OTHER_SIDE),), ("reply",), passes=EVERY),
    *(
        Row(
            f"N-nat {what}",
            "into an established NAT port",
            "lan",
            (frame,),
            ("agent",),
            published=False,
            connection=True,
        )
        for what, frame in (
            ("another peer, SYN", tcp("192.168.50.2", HELD, **LAN_SIDE)),
            ("another peer, data", tcp("192.168.50.2", HELD, PSH | ACK, **LAN_SIDE)),
            ("another peer, UDP", udp("192.168.50.2", HELD, **LAN_SIDE)),
            ("the peer's address, numbers of no window", tcp("192.168.50.2", HELD, PSH | ACK, seq="@beyond", **PEER)),
            ("the peer's address, another port", tcp("192.168.50.2", HELD, ACK, **{**PEER, "sport": 443})),
        )
    ),
)

TO_AGENT = {"source": LOGS, "to": "@agent"}
LOGS_OUT = (
    Row("G-agent", "logs opens a connection", "logs", (tcp(AGENT, 22, **TO_AGENT),), ("agent", "reply")),
    Row("G-agent-8088", "from 8088", "logs", (tcp(AGENT, 40000, sport=8088, **TO_AGENT),), ("agent", "reply")),
    Row("G-agent-service", "no SYN, to a service", "logs", (tcp(AGENT, 22, ACK, sport=8088, **TO_AGENT),), ("agent",)),
    *(
        Row(f"G-agent {flags}", "", "logs", (tcp(AGENT, port, flags, sport=sport, **TO_AGENT),), ("agent",))
        for flags, sport, port in ((0, 8088, 22), (RST, 8088, 22), (SYN | ACK, 8088, 22), (ACK, 9999, 40000))
    ),
    Row("G-agent-udp", "UDP to the agent", "logs", (udp(AGENT, **TO_AGENT),), ("agent",)),
    Row("G-overlap", "SYN by fragments", "logs", overlapping(AGENT, 40000, **TO_AGENT), ("agent",), needs=ALONE),
    Row(
        "G-lldp",
        "pve's LAN address, in an LLDP frame",
        "logs",
        (arp("192.168.50.2", claims=LOGS, to=LLDP),),
        ("reply",),
        needs=UNCHECKED,
    ),
    Row("G-pve", "logs to pve", "logs", (tcp("192.168.50.2", 22, source=LOGS),), ITSELF, published=False),
    Row("G-lan", "logs to the LAN", "logs", (tcp(LAN, 80, source=LOGS),), ("lan",), published=False),
    Row("G-other", "logs to the other lab", "logs", (tcp(OTHER, 80, source=LOGS),), ("otherlab",), published=False),
    Row("G-dns", "logs to the resolver", "logs", (udp("203.0.113.53", 53, source=LOGS),), ("internet", *ITSELF)),
    Row("G-model", "logs to the model", "logs", (tcp("203.0.113.10", 443, source=LOGS),), ("internet", *ITSELF)),
    Row("G-out", "logs to the internet", "logs", (tcp(INTERNET, 443, source=LOGS),), ("internet",)),
    Row("G-spoof", "logs as the agent", "logs", (tcp("203.0.113.10", 443, source=AGENT),), ("internet", "reply")),
    Row("G-arp", "logs claims the agent's", "logs", (arp(GATEWAY, claims=AGENT, op=2, tha="@gateway"),), VMBR1),
    Row("G-6", "IPv6 from logs to the agent", "logs", (echo6(ALL_NODES, source="@logs6"),), ("agent", "pve:accepted")),
)
