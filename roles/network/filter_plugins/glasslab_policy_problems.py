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
NOWHERE = ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")  # of one machine: the lowest bit would make it a group's
NUMBERS = {"connection_limit": (1, 100_000), "confirm_seconds": (5, 3_600), "lease_seconds": (0, 86_400)}
PROXIED = 32_768  # connections at the proxy, all guests together: 2 GiB of memory at the most
# Words of the receipt and of the hypervisor's own rules: a guest or a flow of that name would be taken for those.
PLACES = ("hypervisor", "controller")
PREFIXES = ("resolver", "internet", "route", "source", "bridge", "input", "inbound", "limit")
NO_DEVICE = ("all", "default", "lo")  # the first two are how sysctls name every interface there is
DNS_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def network(text: object) -> ipaddress.IPv4Network | None:
    """A network that all programs read the same way; of a mask like 0.0.0.255 iptables and Python make two things."""
    try:
        found = ipaddress.IPv4Network(str(text))
    except ValueError:
        return None
    return found if text in (str(found), *([str(found.network_address)] * (found.num_addresses == 1))) else None


def address(text: object) -> ipaddress.IPv4Network | None:
    """One address, without a length behind it."""
    found = network(text)
    return found if found is not None and text == str(found.network_address) else None


def policy_problems(policy: dict[str, Any]) -> list[str]:
    """What is wrong with a policy as the inventory declares it: a line each that names the variable and its value.

    Its values have to be of their kinds (glasslab_policy_kinds.py).
    """
    subnet = network(policy["subnet"])
    if subnet is None or subnet.num_addresses < 4:
        return [f"network_subnet {policy['subnet']} is not an IPv4 network such as 10.10.10.0/24"]
    problems = device_problems(policy)
    taken: dict[str, str] = {}
    for owner, text in [("network_address", policy["address"]), *((g["name"], g["address"]) for g in policy["guests"])]:
        one = address(text)
        if one is None or not one.subnet_of(subnet):
            problems.append(f"{owner}: address {text} is not one address inside network_subnet {subnet}")
        elif one.network_address in (subnet.network_address, subnet.broadcast_address):
            problems.append(f"{owner}: address {text} is that of network_subnet {subnet} itself, or its broadcast")
        elif text in taken:
            problems.append(f"{owner}: address {text} is taken by {taken[text]}")
        taken.setdefault(text, owner)
    for key, pattern, remedy in (
        ("name", NAME, ""),
        ("port", DEVICE, ""),
        ("mac", MAC, ": one machine's, such as '02:10:00:00:00:10'"),
    ):
        values = [guest[key].lower() if key == "mac" else guest[key] for guest in policy["guests"]]
        problems += [
            f"network_guests: {key} {value!r} is malformed{remedy}" for value in values if not pattern.fullmatch(value)
        ]
        problems += [
            f"network_guests: {key} {v!r} is used twice" for v in sorted({v for v in values if values.count(v) > 1})
        ]
    problems += [
        f"network_guests: name {guest['name']!r} is a place of the receipt: choose another"
        for guest in policy["guests"]
        if guest["name"] in PLACES
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


def device_problems(policy: dict[str, Any]) -> list[str]:
    """Interfaces that cannot be told from each other: what is a guest's is dropped, and taken down, by its name."""
    ends = {name: policy[name] for name in ("bridge", "uplink")}
    problems = [
        f"network_{end} {name!r} is not an interface name of at most 15 characters"
        for end, name in ends.items()
        if not DEVICE.fullmatch(name) or name in NO_DEVICE
    ]
    if policy["bridge"] == policy["uplink"]:
        problems.append(f"network_uplink {policy['uplink']} is network_bridge, too: the way out is another interface")
    owners: dict[str, str] = {name: f"network_{end}" for end, name in ends.items()}
    for guest in policy["guests"]:
        if guest["port"] in NO_DEVICE:
            problems.append(f"network_guests: port {guest['port']!r} is no guest's")
        nic = re.fullmatch(r"(?:tap|veth)(\d+)i(\d+)", guest["port"])
        names = [
            guest["port"],
            *([f"fwpr{nic[1]}p{nic[2]}", f"fwln{nic[1]}i{nic[2]}", f"fwbr{nic[1]}i{nic[2]}"] if nic else []),
        ]
        taken = [name for name in names if owners.setdefault(name, guest["port"]) != guest["port"]]
        problems += [f"network_guests: port {guest['port']}: {name} is {owners[name]}'s" for name in taken]
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
        elif flow["name"] in PREFIXES:
            problems.append(f"{where}: the log calls packets of the hypervisor's own rules so: choose another name")
        ones = senders(flow)
        problems += [f"{where}: from {name!r} is no guest of network_guests" for name in ones if name not in guests]
        if not ones or len(set(map(str, ones))) < len(ones):
            problems.append(f"{where}: from {flow['from']!r} must name at least one guest, each once")
        if not 1 <= len(flow["ports"]) <= 15 or not all(map(is_port, flow["ports"])):
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


def is_port(value: int | str) -> bool:
    return str(value).isdecimal() and 1 <= int(value) <= 65535


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
    if not flow.get("private") or target is None:
        return []
    if nowhere(target):
        return [f"{where}: private: to {flow['to']} is on no network: give the address of a machine there"]
    if flow["protocol"] == "tcp" and target.num_addresses == 1:
        return []
    return [f"{where}: private: it leads to one address by tcp, and not to {flow['to']} by {flow['protocol']}"]


def nowhere(one: ipaddress.IPv4Network) -> bool:
    """Whether some of it can be no machine's on a network."""
    return any(one.overlaps(ipaddress.IPv4Network(text)) for text in NOWHERE)


def room(spare: ipaddress.IPv4Network) -> int:
    """How many addresses of a range are hosts'."""
    return spare.num_addresses - (2 if spare.prefixlen < 31 else 0)


def name_problems(policy: dict[str, Any], subnet: ipaddress.IPv4Network) -> list[str]:
    """What is wrong with the allowed names, and with the addresses that guests are told for them."""
    wanted = [name for flow in policy["flows"] for name in flow.get("names") or []]
    problems = [
        f"network_flows: name {name!r} is not a DNS name in lower case such as api.example.org"
        for name in sorted({*wanted, *policy["name_addresses"]})
        if not DNS_NAME.fullmatch(str(name))
    ]
    told = {"network_resolver_address": policy["resolver_address"]}
    told |= {f"network_name_addresses: {name}": text for name, text in policy["name_addresses"].items()}
    taken: dict[str, str] = {}
    for owner, text in told.items():
        one = address(text)
        if one is None or one.overlaps(subnet) or nowhere(one):
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
    if spare is None or spare.overlaps(subnet) or nowhere(spare) or room(spare) < needed:
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
