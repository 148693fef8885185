"""Defence in depth, as claims that test_mutations.py proves: which layer holds where a part of another one is missing.

A claim's layers close the same way as the mutants' parts: with all of them away the part decides alone, and taking it
away must make a difference. What no change in the embedded lab can show has no layers, and only a reason: such mutants
are counted apart, as explained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REDIRECT = "iptables -t nat -{} PREROUTING -i vmbr1"
NAMES = "; ".join(
    f"{REDIRECT} -d {target} -p {protocol} --dport {port} -j REDIRECT --to-ports {to}"
    for target, protocol, port, to in (
        ("203.0.113.53", "udp", 53, 1053),
        ("203.0.113.53", "tcp", 53, 1053),
        ("203.0.113.10", "tcp", 443, 14000),
        ("10.10.10.1", "tcp", 8006, 8007),
        ("10.10.10.1", "udp", 8006, 8007),
    )
)
CONNECTION = "--state ESTABLISHED -u SEEN_REPLY -t 60 >/dev/null 2>&1"
GUESTS = ("10.10.10.10", "10.10.10.20")
SERVICES_FLOW = "conntrack -{} -p tcp -s 10.10.10.1 -d {} --sport 22 --dport 40000"
QUIETLY = " >/dev/null 2>&1 || :"
INNER_FLOW = "conntrack -{} -p tcp -s 10.10.10.10 -d 10.10.10.20 --sport 40001 --dport 8088"
OUTER_FLOW = "conntrack -{} -p tcp -s 192.168.50.10 -d 10.10.10.10 --sport 40002 --dport 22"
OWN_FLOW = "conntrack -{} -p udp -s 192.168.50.2 -d 203.0.113.80 --sport 40003 --dport 9999"
HANDLE = "$(nft -a list chain bridge glasslab forward | sed -n 's/.*{} @guests.*handle //p')"
UPLINK = "/proc/sys/net/ipv4/conf/vmbr0"
ADDRESS6 = "ip -6 address {} fe80::1/64 dev vmbr1 {}"
# How each layer is taken away as a whole, and, where that leaves something behind that is nobody's, how that goes.
LAYERS = {
    "policy routes": ("for at in 0 1 2 3 4; do while ip rule delete pref 470$at 2>/dev/null; do :; done; done", ""),
    "filter FORWARD": ("for way in i o; do iptables -D FORWARD -$way vmbr1 -j GLASSLAB-FORWARD; done", ""),
    "raw sources": ("iptables -t raw -D PREROUTING -i vmbr1 -j GLASSLAB-RAW", ""),
    "raw ports": ("iptables -t raw -F GLASSLAB-PORTS", ""),
    "raw v6": ("ip6tables -t raw -F GLASSLAB-RAW; ip6tables -t raw -F GLASSLAB-PORTS", ""),
    "IPv6 off": (
        f"echo 0 >/proc/sys/net/ipv6/conf/vmbr1/disable_ipv6; {ADDRESS6.format('add', 'nodad')}",
        f"{ADDRESS6.format('delete', '')} 2>/dev/null || :",
    ),
    "bridge: what enters": ("nft flush chain bridge glasslab prerouting", ""),
    "bridge: what goes to guests": ("nft flush chain bridge glasslab output", ""),
    "bridge: what enters at the agent's own port": ("nft delete element bridge glasslab guests '{ \"tap101i0\" }'", ""),
    "bridge: what enters at the log's own port": ("nft delete element bridge glasslab guests '{ \"tap102i0\" }'", ""),
    "bridge: between guests": ("nft flush chain bridge glasslab forward", ""),
    "bridge: into a guest's port": (f"nft delete rule bridge glasslab forward handle {HANDLE.format('oifname')}", ""),
    "bridge: out of a guest's port": (f"nft delete rule bridge glasslab forward handle {HANDLE.format('iifname')}", ""),
    "redirection for the agent alone": (NAMES.replace("{}", "A"), NAMES.replace("{}", "D")),
    "services for the agent alone": ("iptables -I GLASSLAB-INPUT -m conntrack --ctstate DNAT -j ACCEPT", ""),
    "no guest begins a connection": (
        f"conntrack -I -p tcp -s 10.10.10.10 -d 10.10.10.1 --sport 40000 --dport 22 {CONNECTION}",
        "conntrack -D -s 10.10.10.10 -p tcp --dport 22 >/dev/null 2>&1 || :",
    ),
    "no service begins a connection": (
        "; ".join(
            f"{SERVICES_FLOW.format('D', guest)}{QUIETLY}; {SERVICES_FLOW.format('I', guest)} {CONNECTION}"
            for guest in GUESTS
        ),
        "; ".join(f"{SERVICES_FLOW.format('D', guest)}{QUIETLY}" for guest in GUESTS),
    ),
    "no source routes at any interface": (
        "echo 1 >/proc/sys/net/ipv4/conf/all/accept_source_route",
        "echo 0 >/proc/sys/net/ipv4/conf/all/accept_source_route",
    ),
    "filter: special ranges": (
        # In their places, for a mutant's number is its rule's.
        "iptables-save -t filter | sed 's:^\\(-A GLASSLAB-FORWARD -d \\).* -j DROP$:\\1255.255.255.255 -j DROP:'"
        " | iptables-restore -T filter",
        "",
    ),
    "no stranger is in a guest's flow": (
        f"{INNER_FLOW.format('D')}{QUIETLY}; {INNER_FLOW.format('I')} {CONNECTION}",
        f"{INNER_FLOW.format('D')}{QUIETLY}",
    ),
    "nothing outside begins a connection": (
        f"{OUTER_FLOW.format('D')}{QUIETLY}; {OUTER_FLOW.format('I')} {CONNECTION}",
        f"{OUTER_FLOW.format('D')}{QUIETLY}",
    ),
    "the hypervisor itself talks to nobody": (
        f"{OWN_FLOW.format('D')}{QUIETLY}; {OWN_FLOW.format('I')} -u SEEN_REPLY -t 60 >/dev/null 2>&1",
        f"{OWN_FLOW.format('D')}{QUIETLY}",
    ),
    "no strict reverse path at the uplink": (
        f"cat {UPLINK}/rp_filter >/run/uplink.rp_filter; echo 1 >{UPLINK}/rp_filter",
        f"cat /run/uplink.rp_filter >{UPLINK}/rp_filter; rm /run/uplink.rp_filter",
    ),
    "arp_ignore": ("echo 0 >/proc/sys/net/ipv4/conf/vmbr1/arp_ignore", ""),
    "rp_filter": ("echo 0 >/proc/sys/net/ipv4/conf/vmbr1/rp_filter", ""),
}


@dataclass(frozen=True)
class Claim:
    """Mutants whose name matches are held by these layers, for this reason; in one mode alone, where one is named."""

    mutants: str
    layers: tuple[str, ...]
    why: str
    mode: str = ""

    def fits(self, name: str, mode: str) -> bool:
        """Whether the claim is about that mutant, in that mode."""
        return self.mode in ("", mode) and re.search(self.mutants, name) is not None


ROUTED = ("policy routes", "filter FORWARD")
PINS, TOWARDS = "bridge: what enters", "bridge: what goes to guests"
EVERYWHERE = "no source routes at any interface"
SAME = "the same rule as for the agent's own port, under a name behind which nothing attacks here"
SPECIAL = "filter: special ranges"
# Where the internet is reached by NAT, packets are routed by their mark and pass FORWARD: either alone is enough.
BY_NAT: tuple[Claim, ...] = (
    Claim(r"REPLY .*ESTABLISHED .*any state", ("filter FORWARD",), "FORWARD lets replies in alone", "open"),
    Claim(
        r"REPLY .*ESTABLISHED .*any direction",
        ("filter FORWARD", "no stranger is in a guest's flow"),
        "FORWARD lets replies in alone",
        "open",
    ),
    Claim(r"REPLY .*any origin", (), "the kernel takes a reply or error to who began it, and that is a guest", "open"),
    Claim(
        r"REPLY .*RELATED .*any direction",
        ("filter FORWARD", "no stranger is in a guest's flow"),
        "FORWARD lets errors about its own in alone",
        "open",
    ),
    Claim(r"REPLY .*RELATED .*any", ("filter FORWARD",), "FORWARD lets errors about its own in alone", "open"),
    Claim(
        r"FORWARD -o vmbr1 .*RELATED .*any (interface out|direction)",
        ("policy routes", "nothing outside begins a connection"),
        "to begin one, nothing is routed",
        "open",
    ),
    Claim(
        r"FORWARD -o vmbr1 .*RELATED .*any", ("policy routes",), "errors about a guest's own alone are marked", "open"
    ),
    Claim(
        r"GLASSLAB-ROUTE .*-p icmp .*any (state|origin)",
        ("filter FORWARD", "the hypervisor itself talks to nobody"),
        "FORWARD looks at whose connection it is about",
        "open",
    ),
    Claim(
        r"vmbr1 -o vmbr0 -p icmp .*any (state|origin)",
        ("policy routes", "the hypervisor itself talks to nobody"),
        "errors about its own alone are marked",
        "open",
    ),
    Claim(r"-d (0\.0\.0\.0|127\.0\.0\.0)/8 -", (), "the kernel itself routes nothing there", "open"),
    Claim(r"GLASSLAB-ROUTE -d .*DENIED: removed", (SPECIAL,), "FORWARD denies the range too", "open"),
    Claim(r"GLASSLAB-FORWARD -d .*DROP: removed", ("policy routes",), "what goes there has no mark", "open"),
    Claim(r"GLASSLAB-ROUTE -s .*MARK: any source", ("filter FORWARD",), "FORWARD accepts by source", "open"),
    Claim(r"GLASSLAB-ROUTE -s .*MARK: any protocol", (PINS, "filter FORWARD"), "neither passes another", "open"),
    Claim(
        r"FORWARD -o vmbr1 .*ESTABLISHED .*any (interface out|direction)",
        ("policy routes", "nothing outside begins a connection"),
        "to begin one, nothing is routed",
        "open",
    ),
    Claim(r"FORWARD -o vmbr1 .*ESTABLISHED .*any state", ("policy routes",), "replies alone are marked", "open"),
    Claim(r"FORWARD -m conntrack --ctstate INVALID", ("policy routes",), "what is of no flow has no mark", "open"),
    Claim(r"ctstate INVALID -j RETURN", ("filter FORWARD",), "FORWARD drops what is of no flow", "open"),
    Claim(
        r"vmbr1 -o vmbr0 .*any interface in", (), "the chain is for what comes from the bridge or goes to it", "open"
    ),
    Claim(r"vmbr1 -o vmbr0 .*any interface out", ("policy routes", SPECIAL), "what goes there has no mark", "open"),
    Claim(r"vmbr1 -o vmbr0 .*any source", ("policy routes",), "marked by source", "open"),
    Claim(r"vmbr1 -o vmbr0 .*any protocol", (PINS, "policy routes"), "nothing else is marked, or enters", "open"),
    Claim(r"rule pref 470[03] .*any mark", ("filter FORWARD",), "FORWARD denies too", "open"),
    Claim(r"vmbr0/src_valid_mark", ("no strict reverse path at the uplink",), "needed where the host has one", "open"),
)
HELD: tuple[Claim, ...] = (
    *BY_NAT,
    Claim(r"-4 rule pref 4701 iif vmbr1", ("filter FORWARD", "rp_filter"), "FORWARD denies, and there is no way back"),
    Claim(r"-4 rule pref 4704", ("filter FORWARD",), "FORWARD denies too"),
    Claim(r"-4 rule pref 4701 iif tap101i0", ("raw ports",), "nothing comes that far from a port outside"),
    Claim(r"-6 rule pref 4701 iif vmbr1", (PINS, "IPv6 off", "raw v6"), "no IPv6 comes that far"),
    Claim(r"^iptables .*FORWARD (-[io] vmbr1 -j GLASSLAB-FORWARD|-j DROP): removed", ("policy routes",), "no route"),
    Claim(
        r"iptables raw -A (PREROUTING -i vmbr1 -j )?GLASSLAB-RAW", (PINS, *ROUTED, "rp_filter"), "sources are pinned"
    ),
    Claim(r"ip6tables raw .*(vmbr1|GLASSLAB-RAW)", (PINS, "IPv6 off"), "no IPv6 enters, none is on"),
    Claim(
        r"entering: .*@neighbours accept: any iifname . arp daddr", ("arp_ignore",), "no other address is answered for"
    ),
    Claim(r"GLASSLAB-OUTPUT", (PINS, TOWARDS, "IPv6 off", "raw v6"), "no IPv6 is on at the bridge"),
    Claim(r"vmbr1/disable_ipv6", (PINS, "raw v6"), "no IPv6 enters"),
    Claim(r"forward: iifname @guests", ("bridge: into a guest's port",), "the other guest's port has its rule"),
    Claim(r"forward: oifname @guests", ("bridge: out of a guest's port",), "the sender's port has its rule"),
    Claim(r"any ip saddr", (PINS,), "sources are pinned to ports"),
    Claim(r"goto allowed-\S+: any iifname", (PINS,), "sources are pinned to ports"),
    Claim(r"GLASSLAB-INPUT .*RELATED .*any direction", (), "the kernel takes an error to the end that it is about"),
    Claim(r"GLASSLAB-INPUT .*RELATED .*any", ("no service begins a connection",), "there is none to be about"),
    Claim(r"GLASSLAB-INPUT -p icmp .*any direction", (), "the hypervisor answers no echo request: it drops it"),
    Claim(r"GLASSLAB-INPUT .*DNAT.*any", ("redirection for the agent alone",), "only that is redirected"),
    Claim(r"GLASSLAB-PREROUTING .*any source", ("services for the agent alone",), "INPUT accepts by source"),
    Claim(r"GLASSLAB-INPUT .*ESTABLISHED.*any direction", ("no guest begins a connection",), "it is dropped"),
    Claim(r"GLASSLAB-INPUT .*any (origin's|protocol and) port", ("no service begins a connection",), "answers only"),
    Claim(r"set guests: \"fwpr101p0", ("bridge: what enters at the agent's own port",), "its own port comes first"),
    Claim(r"set guests: \"fwpr102p0", ("bridge: what enters at the log's own port",), "its own port comes first"),
    Claim(r"vmbr1 -o vmbr1 .*any source", (PINS, "raw sources", "bridge: between guests"), "sources are pinned"),
    Claim(r"vmbr1 -o vmbr1 .*any (dest|port|proto)", ("bridge: between guests",), "the bridge's table holds"),
    Claim(r"vmbr1 -o vmbr1 -p .*any interface in", ("policy routes",), "nothing else leads into the lab"),
    Claim(r"(vmbr1|fwbr101i0)/arp_ignore", (PINS,), "guests may ask for the gateway's address alone"),
    Claim(r"vmbr1/accept_source_route", (PINS, "raw sources", *ROUTED, "rp_filter", EVERYWHERE), "no options enter"),
    Claim(r"vmbr1/rp_filter", (PINS, "raw sources", *ROUTED), "sources are pinned to ports"),
    # What nothing in this lab can show.
    Claim(r"fwpr10[12]p0 -j DROP|iif fwpr10|tap102i0 -j DROP|iif tap102i0|fwpr\+ -j|fwbr102i0|tap102i0/", (), SAME),
    Claim(r"-6 rule pref 4701 iif|ip6tables raw .*(PORTS|tap\+)", (), "IPv6 is off at ports, as Proxmox sets it"),
    Claim(r"ip6tables filter .*FORWARD", (), "no address of the lab's is IPv6: nothing is routed there"),
    Claim(r"isolated", (), "there is one agent here; from guest to guest the bridge's table holds"),
    Claim(r"(accept|send)_redirects", (), "INPUT drops redirects, and nothing goes back to where it came from"),
    Claim(r"GLASSLAB-INPUT .*any state", (), "what is a reply is established, or an error that has its own rule"),
    Claim(r"vmbr1 -o vmbr1 .*any (interface|state|direction)", (), "the guests' addresses lie behind the bridge alone"),
    Claim(r"ctstate INVALID -j RETURN", (), "of no flow: nothing is marked or counted, in this mode"),
    Claim(r"dport 53 .*--connlimit", (), "a guest that holds connections to the resolver is tried by test_egress.py"),
    Claim(r"SERVICES -i lo", (), "for the hypervisor's own look at its services"),
)
