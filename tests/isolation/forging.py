"""What attackrows.py writes its frames with: layers as attacks.py takes them, for the senders of the embedded lab."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Layers = list[list[Any]]

AGENT, LOGS, GATEWAY = "10.10.10.10", "10.10.10.20", "10.10.10.1"
LAN, OTHER, INTERNET = "192.168.50.10", "10.20.20.10", "203.0.113.80"
AGENT6 = "fe80::10:ff:fe00:10"
ALL_NODES, ALL_NODES_MAC = "ff02::1", "33:33:00:00:00:01"
EVERYBODY = "ff:ff:ff:ff:ff:ff"
TELLS_NOBODY = 9999  # a port on which nobody serves
SYN, RST, PSH, ACK = 2, 4, 8, 16
# Modes of our rules.
OPEN = frozenset({"open"})
NO_SERVICES = frozenset({"open", "closed"})
EVERY = frozenset({"allowlist", "open", "closed", "build"})
# Where a row is seen.
PVE, ITSELF, VMBR1 = ("pve:accepted",), ("pve:accepted", "reply"), ("pve:vmbr1",)
# A row that the kernel itself closes.
KERNEL: dict[str, Any] = {"published": False, "kernel_passes": False}
# Settings of the hypervisor that a row needs.
SPOOF = {"rp_filter": (0, 2)}
UNCHECKED = {"rp_filter": (0,)}
FORWARD6 = {"forwarding6": (1,)}
ALONE = {"br_netfilter": (0,)}
LOGS_MAC = "@logs"


@dataclass(frozen=True)
class Row:
    """One attack: who sends which frames, and where they would be seen (see attackrows.py).

    `published`: whether the published rules let it through, and `needs` under which settings of the hypervisor only.
    `kernel_passes`: whether the kernel itself does, with no rules.
    `malformed`: the kernel itself refuses it where bridged frames pass iptables.
    `passes`: the modes of our own rules that let it through by design. `unmarked`: frames whose own arrival says
    nothing, by position. `last`: sent after all others, for what another frame would undo. `connection`: sent while the
    agent holds a connection to the outside from the port `HELD`.
    """

    id: str
    title: str
    sender: str
    frames: tuple[Layers, ...]
    seen: tuple[str, ...]
    published: bool = True
    needs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernel_passes: bool = True
    malformed: bool = False
    passes: frozenset[str] = frozenset()
    unmarked: tuple[int, ...] = ()
    last: bool = False
    connection: bool = False

    def open_under_published(self, settings: dict[str, int]) -> bool:
        """Whether the published rules let it through with these settings of the hypervisor."""
        return self.published and all(settings[name] in values for name, values in self.needs.items())

    def open_without_rules(self, settings: dict[str, int]) -> bool:
        """Whether it arrives where there are no rules at all, so that only the kernel itself can refuse it.

        br_netfilter makes no difference there but for what is malformed: nothing tracks connections, so no fragments
        are put together either.
        """
        needs = {name: values for name, values in self.needs.items() if name != "br_netfilter" or self.malformed}
        return self.kernel_passes and all(settings[name] in values for name, values in needs.items())

    def open_in(self, mode: str) -> bool:
        """Whether our rules let it through in that mode."""
        return mode in self.passes


HELD = 45678


def ether(to: str, **ways: Any) -> list[Any]:
    """The frame's own layer."""
    return ["ether", {"dst": to, **ways}]


def ip(target: str, source: str, to: str, *above: list[Any], **ways: Any) -> Layers:
    """An IPv4 packet of any content."""
    return [ether(to), ["ip", {"src": source, "dst": target, **ways}], *above]


def udp(target: str, port: int = TELLS_NOBODY, *, source: str = AGENT, to: str = "@gateway", **ways: Any) -> Layers:
    """A datagram."""
    return ip(target, source, to, ["udp", {"sport": "@port", "dport": port}], **ways)


def tcp(target: str, port: int, flags: int = SYN, *, source: str = AGENT, to: str = "@gateway", **ways: Any) -> Layers:
    """A segment; without flags given, one that opens a connection."""
    own = {"sport": "@port"} | {name: ways.pop(name) for name in ("sport", "seq", "ack") if name in ways}
    return ip(target, source, to, ["tcp", {**own, "dport": port, "flags": flags}], **ways)


def echo(target: str, *, source: str = AGENT, to: str = "@gateway", **ways: Any) -> Layers:
    """An echo request."""
    return ip(target, source, to, ["icmp", {"type": 8, "id": "@port"}], **ways)


def redirect(victim: str, gateway: str, to: str) -> Layers:
    """An ICMP redirect that names the agent as the way to the model, for a packet that the victim might have sent."""
    about = [["ip", {"src": victim, "dst": INTERNET}], ["udp", {"sport": 1, "dport": 53}]]
    rest = bytes(int(one) for one in AGENT.split(".")).hex()
    return ip(victim, gateway, to, ["icmp", {"type": 5, "code": 1, "rest": rest}], *about)


def igmp(group: str, kind: int, about: str = "0.0.0.0") -> Layers:
    """A membership query or report to one of the groups 224.0.0.N."""
    to = f"01:00:5e:00:00:{int(group.rpartition('.')[2]):02x}"
    return ip(group, AGENT, to, ["igmp", {"type": kind, "group": about}], ttl=1)


def discover(source: str = "0.0.0.0", **ways: Any) -> Layers:
    """The first packet of somebody who asks for an address."""
    return ip("255.255.255.255", source, EVERYBODY, ["udp", {"sport": 68, "dport": 67}], **ways)


def source_routed(target: str) -> Layers:
    """A datagram to the gateway with the target as the next hop of a loose source route."""
    hop = bytes(int(one) for one in target.split(".")).hex()
    return udp(GATEWAY, options=f"830704{hop}")


def inside(kind: str, target: str, *, source: str = AGENT, to: str = "@gateway") -> Layers:
    """A tunnel's packet: GRE, IPIP or 6in4 around another, ESP around nothing legible, or an unassigned protocol."""
    four = [["ip", {"src": AGENT, "dst": LAN}], ["udp", {"sport": 1, "dport": TELLS_NOBODY}]]
    six = [["ip6", {"src": "fd10::10", "dst": "fd50::10"}], ["udp", {"sport": 1, "dport": TELLS_NOBODY}]]
    within = {"gre": [["gre", {}], *four], "ipip": four, "6in4": six, "esp": [["esp", {}]], "253": []}
    return ip(target, source, to, *within[kind])


def pieces(target: str, to: str = "@gateway") -> tuple[Layers, Layers]:
    """A datagram in two fragments."""
    head = ["udp", {"sport": "@port", "dport": TELLS_NOBODY, "length": 40}]
    return (
        ip(target, AGENT, to, head, ["raw", {"hex": "00" * 3}], id="@port", more=True),
        ip(target, AGENT, to, ["raw", {"hex": "00" * 3}], id="@port", offset=24, proto=17),
    )


def overlapping(target: str, port: int, to: str = "@gateway", *, source: str = AGENT) -> tuple[Layers, Layers]:
    """A segment for a port that is allowed, and a fragment that puts other flags over those of its header."""
    head = ["tcp", {"sport": 40000, "dport": port, "flags": ACK}]
    over = "00000000" + "5002" + "ffff" + "0000" + "0000"  # acknowledgement, header length and SYN, window
    return (
        ip(target, source, to, head, ["raw", {"hex": "00" * 7}], id="@port", more=True),
        ip(target, source, to, ["raw", {"hex": over}], id="@port", offset=8, proto=6),
    )


def tiny(target: str, port: int, to: str) -> tuple[Layers, Layers]:
    """A segment whose first fragment ends before its flags (and holds no tag: the second one tells)."""
    ports = (40001).to_bytes(2, "big").hex() + port.to_bytes(2, "big").hex() + "00000007"
    return (
        [
            ether(to),
            ["ip", {"src": AGENT, "dst": target, "id": "@port", "more": True, "proto": 6, "total": 28}],
            ["raw", {"hex": ports}],
        ],
        ip(
            target,
            AGENT,
            to,
            ["raw", {"hex": "00000000" + "5002" + "ffff" + "0000" + "0000"}],
            id="@port",
            offset=8,
            proto=6,
        ),
    )


def arp(target: str, *, claims: str = AGENT, to: str = EVERYBODY, op: int = 1, **ways: Any) -> Layers:
    """A question for an address (op 1), or the claim to have one (op 2), by somebody who claims to have `claims`."""
    sender = {"src": ways.pop("src")} if "src" in ways else {}
    return [ether(to, **sender), ["arp", {"op": op, "spa": claims, "tpa": target, **ways}]]


def six(target: str, *above: list[Any], source: str = AGENT6, to: str = "@gateway", hop: int = 64) -> Layers:
    """An IPv6 packet; a datagram when nothing else is given."""
    content = above or (["udp", {"sport": "@port", "dport": TELLS_NOBODY}],)
    return [ether(to), ["ip6", {"src": source, "dst": target, "hop": hop}], *content]


def syn6(target: str, port: int, *before: list[Any], **ways: Any) -> Layers:
    """A segment that opens a connection over IPv6, behind extension headers if any."""
    return six(target, *before, ["tcp", {"sport": "@port", "dport": port}], **ways)


def echo6(target: str, *before: list[Any], to: str = ALL_NODES_MAC, **ways: Any) -> Layers:
    """An echo request over IPv6."""
    return six(target, *before, ["icmp6", {"type": 128, "id": "@port"}], to=to, **ways)


def advertisement(lifetime: int = 1800) -> Layers:
    """A router advertisement that offers the agent as the default router for so many seconds."""
    body = f"{64:02x}00{lifetime:04x}" + "00" * 8  # hop limit, flags, lifetime; reachable and retransmit times
    about = ["icmp6", {"type": 134, "rest": body[:8], "body": body[8:]}]
    return [ether(ALL_NODES_MAC), ["ip6", {"src": AGENT6, "dst": ALL_NODES, "hop": 255}], about, ["ndoption", {}]]
