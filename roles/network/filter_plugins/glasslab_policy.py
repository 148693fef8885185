"""The policy of roles/network, worked out once: guests, flows and mode become what every template renders from.

Input is what the role's preflight has checked; nothing is validated here.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

# A packet that may be routed carries this mark. Routes exist for marked packets only: without the rules that set it,
# nothing is forwarded.
MARK = "0x47000000/0xff000000"
RULE_PRIORITY = 4700
RESOLVER_PORT = 1053
RESOLVER_CONNECTIONS = 4  # of a guest at a time, over TCP
PROXY_PORTS_FROM = 14000
HTTP_PORTS = (80,)


def names_of_port(port: str) -> dict[str, Any]:
    """Under which names a guest's frames enter bridges on Proxmox VE.

    `entries`: the guest's own port, and the bridge's end of the pair that Proxmox's firewall puts between (its bridge
    fwbrVMIDiN holds the guest's port and fwlnVMIDiN, the other end fwprVMIDpN is in the lab's bridge). `inner`: the
    pair of names inside fwbr, and `own_bridge` that bridge's; none for a port that is not Proxmox's.
    """
    found = re.fullmatch(r"(?:tap|veth)(\d+)i(\d+)", port)
    if found is None:
        return {"entries": [port], "inner": None, "own_bridge": None}
    guest, number = found.groups()
    return {
        "entries": [port, f"fwpr{guest}p{number}"],
        "inner": [port, f"fwln{guest}i{number}"],
        "own_bridge": f"fwbr{guest}i{number}",
    }


def pattern(port: str) -> str:
    """The port's kind as iptables matches it (tap101i0: tap+), so that the host's other packets meet few rules."""
    return re.sub(r"\d.*$", "", port) + "+"


def senders(flow: dict[str, Any]) -> list[str]:
    """The guests a flow is from: one name, or a list of them."""
    return [flow["from"]] if isinstance(flow["from"], str) else list(flow["from"])


def holds(flow: dict[str, Any], mode: str, guests: dict[str, Any]) -> bool:
    """Whether a flow is part of a mode: between guests always, else where its `modes` say so, and never in `closed`."""
    if flow.get("to") in guests:
        return True
    return mode != "closed" and mode in flow.get("modes", ["allowlist", "open", "build"])


def handed_out(variables: dict[str, Any]) -> dict[str, str]:
    """Each allowed name with the address that guests are told. In every mode the same: a guest may remember it."""
    free = iter(ipaddress.IPv4Network(variables["names_range"]).hosts())
    given = variables["name_addresses"]
    names = dict.fromkeys(name for flow in variables["flows"] for name in flow.get("names", []))
    return {name: given[name] if name in given else str(next(free)) for name in names}


def sysctls(bridge: str, uplink: str, deaf: list[str], *, forwarding: bool) -> dict[str, str]:
    """Settings of the bridge (and where packets are routed, one of the uplink), as paths below /proc/sys."""
    own = f"net/ipv4/conf/{bridge}"
    values = {
        f"net/ipv6/conf/{bridge}/disable_ipv6": "1",
        f"{own}/accept_redirects": "0",
        f"{own}/accept_source_route": "0",
        f"{own}/arp_ignore": "1",
        f"{own}/rp_filter": "1",
        f"{own}/send_redirects": "0",
        # A bridge of Proxmox's firewall has no address, and answers for all the hypervisor's unless told not to. A
        # guest's port does, too: ARP in frames to link-local groups (LLDP) goes past every hook of its bridge.
        **{f"net/ipv4/conf/{name}/arp_ignore": "8" for name in deaf},
    }
    if forwarding:  # the kernel's look at the way back must see the mark too, or rp_filter drops what is allowed
        values |= {f"{own}/src_valid_mark": "1", f"net/ipv4/conf/{uplink}/src_valid_mark": "1"}
    return values


def ip_rules(bridge: str, subnet: str, ports: list[str], *, forwarding: bool) -> list[list[str]]:
    """Arguments of `ip rule`, family first: routes are for what is marked, and for the hypervisor itself."""

    def rule(offset: int, *words: str, family: str = "-4") -> list[str]:
        return [family, "pref", str(RULE_PRIORITY + offset), *words]

    found = [rule(0, "iif", bridge, "fwmark", MARK, "lookup", "main")] if forwarding else []
    found += [rule(1, "iif", name, "blackhole") for name in (bridge, *ports)]
    found.append(rule(2, "to", subnet, "iif", "lo", "lookup", "main"))
    found += [rule(3, "to", subnet, "fwmark", MARK, "lookup", "main")] if forwarding else []
    found.append(rule(4, "to", subnet, "blackhole"))
    return found + [rule(1, "iif", name, "blackhole", family="-6") for name in (bridge, *ports)]


def network_policy(variables: dict[str, Any]) -> dict[str, Any]:
    """Everything the templates need.

    `variables` has the role's variables without their prefix: mode, bridge, uplink, address, subnet, guests, flows,
    special_ranges, resolver_address, name_addresses, names_range, connection_limit. The result has, beside some of
    those: guests (with entries, inner, own_bridge, isolated, peers), entries and own_bridges (all of them), patterns
    (matching at least the entries), bridged (flows between guests), routed (flows to addresses), named (flows by name),
    open (guests that reach any internet address), resolver and services of the hypervisor (for flows by name),
    forwarding, sysctls, ip_rules, mark.
    """
    mode, bridge, uplink, subnet = (variables[key] for key in ("mode", "bridge", "uplink", "subnet"))
    guests = {guest["name"]: {**guest, **names_of_port(guest["port"])} for guest in variables["guests"]}
    flows = [flow for flow in variables["flows"] if holds(flow, mode, guests)]
    outward = [flow for flow in flows if flow.get("to") not in guests]
    bridged = [
        {"flow": flow["name"], "from": guests[name], "to": guests[flow["to"]], "ports": flow["ports"]}
        for flow in flows
        if flow.get("to") in guests
        for name in senders(flow)
    ]
    is_open = mode == "open"
    routed = [
        {"flow": flow["name"], "source": guests[name]["address"], **{k: flow[k] for k in ("to", "protocol", "ports")}}
        for flow in outward
        if not flow.get("names") and (not is_open or flow.get("private"))
        for name in senders(flow)
    ]
    addresses = handed_out(variables)
    ports = list(dict.fromkeys(port for flow in outward if flow.get("names") for port in flow["ports"]))
    listen = {port: PROXY_PORTS_FROM + number for number, port in enumerate(ports)}
    named = [
        {
            "flow": flow["name"],
            "source": guests[guest]["address"],
            "name": name,
            "address": addresses[name],
            "port": port,
            "listen": listen[port],
        }
        for flow in ([] if is_open else outward)
        for name in flow.get("names", [])
        for port in flow["ports"]
        for guest in senders(flow)
    ]
    for guest in guests.values():
        guest["isolated"] = guest["name"] not in [flow["to"]["name"] for flow in bridged]
        guest["peers"] = list(
            dict.fromkeys(
                [flow["to"]["address"] for flow in bridged if flow["from"]["name"] == guest["name"]]
                + [flow["from"]["address"] for flow in bridged if flow["to"]["name"] == guest["name"]]
            )
        )
    entries = [name for guest in guests.values() for name in guest["entries"]]
    own_bridges = [guest["own_bridge"] for guest in guests.values() if guest["own_bridge"]]
    taps = [guest["port"] for guest in guests.values()]
    may_leave = [guests[name]["address"] for name in guests if any(name in senders(flow) for flow in outward)]
    forwarding = bool(routed or (is_open and may_leave))
    return {
        "mode": mode,
        "bridge": bridge,
        "uplink": uplink,
        "address": variables["address"],
        "subnet": subnet,
        "special_ranges": variables["special_ranges"],
        "connection_limit": int(variables["connection_limit"]),
        "mark": MARK,
        "guests": list(guests.values()),
        "entries": entries,
        "own_bridges": own_bridges,
        "patterns": sorted({pattern(name) for name in entries}),
        "bridged": bridged,
        "routed": routed,
        "named": named,
        "open": may_leave if is_open else [],
        "resolver": resolver(variables, named),
        "services": services(named, int(variables["connection_limit"])),
        "forwarding": forwarding,
        "sysctls": sysctls(bridge, uplink, [*taps, *own_bridges], forwarding=forwarding),
        "ip_rules": ip_rules(bridge, subnet, entries + own_bridges, forwarding=forwarding),
    }


def resolver(variables: dict[str, Any], named: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The hypervisor's own resolver: answers for the allowed names, asks nobody. None without flows by name."""
    if not named:
        return None
    return {
        "address": variables["resolver_address"],
        "listen": RESOLVER_PORT,
        "connections": RESOLVER_CONNECTIONS,
        "sources": list(dict.fromkeys(one["source"] for one in named)),
        "names": {one["name"]: one["address"] for one in named},
    }


def services(named: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The proxy's doors: one a destination port, with who may go where by which name, and room for all of them."""
    found: dict[int, dict[str, Any]] = {}
    for one in named:
        door = found.setdefault(
            one["port"],
            {
                "port": one["port"],
                "listen": one["listen"],
                "inspect": "http" if one["port"] in HTTP_PORTS else "tls",
                "sources": [],
                "routes": {},
            },
        )
        door["sources"] += [] if one["source"] in door["sources"] else [one["source"]]
        door["routes"].setdefault(one["name"], []).append(one["source"])
    return [
        {
            **door,
            "connections": limit * len(door["sources"]),
            "routes": [{"name": name, "sources": sources} for name, sources in door["routes"].items()],
        }
        for door in found.values()
    ]


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Any]:
        """The filter by its name in templates."""
        return {"glasslab_network_policy": network_policy}
