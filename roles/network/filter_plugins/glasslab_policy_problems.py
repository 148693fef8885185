"""Refuse a policy that makes no sense, whichever host it is for, before any host is asked."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

# What network_special_ranges may not leave out: networks that are somebody's own.
PRIVATE = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")  # of one machine: the lowest bit would make it a group's
NUMBERS = {"connection_limit": (1, 100_000), "confirm_seconds": (5, 3_600), "lease_seconds": (0, 86_400)}
PROXIED = 32_768  # connections at the proxy, all guests together: 2 GiB of memory at the most
DNS_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def network(text: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text))
    except ValueError:
        return None


def policy_problems(policy: dict[str, Any]) -> list[str]:
    """What is wrong with a policy as the inventory declares it: a line each that names the variable and its value."""
    subnet = network(policy["subnet"])
    if subnet is None or subnet.num_addresses < 4:
        return [f"network_subnet {policy['subnet']} is not an IPv4 network such as 10.10.10.0/24"]
    problems = []
    for variable in ("bridge", "uplink"):
        if not DEVICE.fullmatch(policy[variable]):
            problems.append(
                f"network_{variable} {policy[variable]!r} is not an interface name of at most 15 characters"
            )
    taken = {}
    for owner, text in [("network_address", policy["address"]), *((g["name"], g["address"]) for g in policy["guests"])]:
        address = network(text)
        if address is None or address.num_addresses != 1 or not address.subnet_of(subnet):
            problems.append(f"{owner}: address {text} is not one address inside network_subnet {subnet}")
        elif text in taken:
            problems.append(f"{owner}: address {text} is taken by {taken[text]}")
        taken.setdefault(text, owner)
    for key, pattern in (("name", NAME), ("port", DEVICE), ("mac", MAC)):
        values = [guest[key].lower() if key == "mac" else guest[key] for guest in policy["guests"]]
        problems += [
            f"network_guests: {key} {value!r} is malformed" for value in values if not pattern.fullmatch(value)
        ]
        problems += [
            f"network_guests: {key} {v!r} is used twice" for v in sorted({v for v in values if values.count(v) > 1})
        ]
    ranges = [(text, network(text)) for text in policy["special_ranges"]]
    problems += [f"network_special_ranges: {text} is not an IPv4 network" for text, value in ranges if value is None]
    special = [value for _, value in ranges if value is not None]
    problems += [
        f"network_special_ranges: {text} is missing: it is never the internet"
        for text in PRIVATE
        if not any(ipaddress.IPv4Network(text).subnet_of(value) for value in special)
    ]
    problems += flow_problems(policy, subnet, special)
    problems += name_problems(policy, subnet)
    problems += [
        f"network_{name} {policy[name]} must be from {least} to {most}"
        for name, (least, most) in NUMBERS.items()
        if not least <= int(policy[name]) <= most
    ]
    return problems


def flow_problems(
    policy: dict[str, Any], subnet: ipaddress.IPv4Network, special: list[ipaddress.IPv4Network]
) -> list[str]:
    problems = []
    guests = {guest["name"] for guest in policy["guests"]}
    names = [flow["name"] for flow in policy["flows"]]
    for flow in policy["flows"]:
        where = f"network_flows: {flow['name']}"
        if not NAME.fullmatch(flow["name"]) or names.count(flow["name"]) > 1:
            problems.append(f"{where}: the name must be one word of letters, digits, _ and -, and used once")
        ones = senders(flow)
        problems += [f"{where}: from {name!r} is no guest of network_guests" for name in ones if name not in guests]
        if not ones or len(set(map(str, ones))) < len(ones):
            problems.append(f"{where}: from {flow['from']!r} must name at least one guest, each once")
        if not 1 <= len(flow["ports"]) <= 15 or any(not 1 <= int(port) <= 65535 for port in flow["ports"]):
            problems.append(f"{where}: ports {flow['ports']} must be 1 to 15 numbers from 1 to 65535")
        by_name, target = flow.get("names") or [], flow.get("to")
        if bool(by_name) == (target is not None):
            problems.append(f"{where}: give either `to` (a guest or an address) or `names` (DNS names)")
        elif by_name:
            if flow["protocol"] != "tcp":
                problems.append(f"{where}: by name only tcp can be held to the name")
        elif target in guests:
            problems += guest_flow_problems(where, flow, ones)
        else:
            problems += address_problems(where, target, subnet, [] if flow.get("private") else special)
            problems += private_problems(where, flow)
    return problems


def senders(flow: dict[str, Any]) -> list[Any]:
    """The guests a flow is from: one name, or a list of them."""
    return flow["from"] if isinstance(flow["from"], list) else [flow["from"]]


def guest_flow_problems(where: str, flow: dict[str, Any], ones: list[str]) -> list[str]:
    problems = []
    if flow["protocol"] != "tcp":
        problems.append(f"{where}: from guest to guest only tcp can be told from its replies inside the bridge")
    if flow["to"] in ones:
        problems.append(f"{where}: from and to are the same guest {flow['to']!r}")
    if flow.get("modes"):
        problems.append(f"{where}: modes {flow['modes']}: a flow to a guest holds in every mode: take modes out")
    return problems


def address_problems(
    where: str, to: str, subnet: ipaddress.IPv4Network, special: list[ipaddress.IPv4Network]
) -> list[str]:
    target = network(to)
    if target is None:
        return [f"{where}: to {to!r} is neither a guest nor an IPv4 address (a DNS name goes into `names`)"]
    if target.overlaps(subnet):
        return [f"{where}: to {to} is inside the lab's own subnet: name the guest instead"]
    return [
        f"{where}: to {to} is inside the special-purpose range {one}, which is never the internet"
        for one in special
        if target.overlaps(one)
    ]


def private_problems(where: str, flow: dict[str, Any]) -> list[str]:
    """A flow into a private network is a door and no passage: one address, and TCP."""
    target = network(flow["to"])
    if not flow.get("private") or (flow["protocol"] == "tcp" and target is not None and target.num_addresses == 1):
        return []
    return [f"{where}: private: it leads to one address by tcp, and not to {flow['to']} by {flow['protocol']}"]


def name_problems(policy: dict[str, Any], subnet: ipaddress.IPv4Network) -> list[str]:
    """What is wrong with the allowed names, and with the addresses that guests are told for them."""
    wanted = [name for flow in policy["flows"] for name in flow.get("names") or []]
    problems = [
        f"network_flows: name {name!r} is not a DNS name in lower case such as api.example.org"
        for name in sorted({*wanted, *policy["name_addresses"]})
        if not DNS_NAME.fullmatch(str(name))
    ]
    told = {"network_resolver_address": policy["resolver_address"]}
    told |= {f"network_name_addresses: {name}": address for name, address in policy["name_addresses"].items()}
    taken: dict[str, str] = {}
    for owner, text in told.items():
        one = network(text)
        if one is None or one.num_addresses != 1 or one.overlaps(subnet):
            problems.append(f"{owner}: {text} is not one IPv4 address outside network_subnet {subnet}")
        elif text in taken:
            problems.append(f"{owner}: address {text} is taken by {taken[text]}")
        taken.setdefault(text, owner)
    named = [flow for flow in policy["flows"] if flow.get("names")]
    doors = {(str(guest), port) for flow in named for guest in senders(flow) for port in flow["ports"]}
    if (most := len(doors) * int(policy["connection_limit"])) > PROXIED:
        problems.append(
            f"network_connection_limit {policy['connection_limit']}: flows by name make that {most} connections at the "
            f"proxy, more than {PROXIED}: lower it"
        )
    spare = network(policy["names_range"])
    needed = len(set(wanted) - set(policy["name_addresses"]))
    if spare is None or spare.overlaps(subnet) or sum(1 for _ in spare.hosts()) < needed:
        problems.append(
            f"network_names_range {policy['names_range']} is not an IPv4 network outside network_subnet with room for "
            f"{needed} names"
        )
    elif inside := [text for text in told.values() if (one := network(text)) and one.overlaps(spare)]:
        problems.append(f"network_names_range {spare} must not hold {', '.join(inside)}, which is given by hand")
    return problems


class FilterModule:
    """The filter that tasks/preflight.yml asks."""

    def filters(self) -> dict[str, Any]:
        """The filter by its name."""
        return {"glasslab_network_problems": policy_problems}
