"""Rows beside attackrows.py's that tell mutants apart: packets that one match alone of a rule keeps out.

In the topology `third` the other lab's port is in the lab's bridge, as a guest's that nobody has declared would be.
"""

from __future__ import annotations

from forging import ACK, AGENT, GATEWAY, INTERNET, LAN, LOGS, Row, ether, ip, tcp, udp

RESOLVER, MODEL = "203.0.113.53", "203.0.113.10"
ITSELF = ("pve:accepted", "reply")
LOST = 40000  # the port of a connection that mutationbench puts into the hypervisor's table
BACK = {"source": LOGS, "sport": 8088}
FORGED = {"source": GATEWAY, "sport": 8088, "to": "@agent"}
ROWS: tuple[Row, ...] = (
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
    Row("M-lost", "of a connection nobody began", "agent", (tcp(GATEWAY, 22, ACK, sport=LOST),), ITSELF),
)
# Where Proxmox's bridge stands before the agent: to that bridge's own hardware address.
INNER: tuple[Row, ...] = (
    Row("M-inner-pve", "pve by the inner bridge", "agent", (udp("192.168.50.2", 8006, to="@inner"),), ITSELF),
    Row("M-inner-lan", "the LAN by it", "agent", (udp("192.168.50.10", to="@inner"),), ("lan",)),
)
