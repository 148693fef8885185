"""Forged frames of the receipt: what a guest that is root on its machine puts on the wire, and what came of it.

None may come further than the sender's own port on the hypervisor; an honest frame, sent with them, does.
"""

from __future__ import annotations

import ipaddress
import zlib
from typing import Any

Layers = list[list[Any]]
STRANGER = "02:66:00:00:00:66"
EVERYBODY, ALL_NODES_MAC = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"
HONEST = "honest"
PLACE_HOLDER_PORTS = {"sport": 40999, "dport": 9999}


def tag(name: str) -> str:
    """Eight hex digits that stand for a frame on its way."""
    return f"{zlib.crc32(name.encode()):08x}"


def udp(source: str, target: str, to: str, **ether: Any) -> Layers:
    return [["ether", {"dst": to, **ether}], ["ip", {"src": source, "dst": target}], ["udp", PLACE_HOLDER_PORTS]]


def claim(address: str, mac: str, victim: str, victim_mac: str) -> Layers:
    fields = {"op": 2, "sha": mac, "spa": address, "tha": victim_mac, "tpa": victim}
    return [["ether", {"dst": victim_mac}], ["arp", fields]]


def advertisement() -> Layers:
    """A router advertisement: default router for half an hour, with the prefix of a network of its own."""
    prefix = "030440c0000007080000070800000000" + "fd66" + "00" * 14
    fields = {"type": 134, "rest": "40000708", "body": "0000000000000000" + prefix}
    ends = {"src": "fe80::66", "dst": "ff02::1", "hop": 255}
    return [["ether", {"dst": ALL_NODES_MAC}], ["ip6", ends], ["icmp6", fields], ["ndoption", {}]]


def frames(order: dict[str, Any], sender: dict[str, Any]) -> list[dict[str, Any]]:
    """[{target, name, tag, layers, claims}]: every forged frame of a guest, and one honest frame."""
    policy, gateway_mac = order["policy"], order["hypervisor"]["mac"]
    gateway, own = policy["address"], sender["address"]
    others = [guest for guest in policy["guests"] if guest["name"] != sender["name"]]
    taken = {guest["address"] for guest in policy["guests"]} | {gateway}
    hosts = [str(one) for one in list(ipaddress.ip_network(policy["subnet"]).hosts())[-9:]]
    free = next(one for one in hosts if one not in taken)
    outside = {target["name"]: target["addresses"][0] for target in order["targets"] if target["control"] != "none"}
    outside = dict(list(outside.items())[:3])
    found: list[dict[str, Any]] = []

    def add(target: str, name: str, layers: Layers, claims: str = "") -> None:
        found.append({"target": target, "name": name, "tag": tag(target + name), "layers": layers, "claims": claims})

    sources = {free: "an unassigned address", **{guest["address"]: guest["name"] for guest in others}}
    sources |= {address: name for name, address in outside.items()}
    for source, whose in sources.items():
        for name, address in outside.items():
            if address != source:
                add("forged source", f"{whose} ({source}) to {name} {address}", udp(source, address, gateway_mac))
        add("forged source", f"{whose} ({source}) to the hypervisor", udp(source, gateway, gateway_mac))
        for guest in others:
            if guest["address"] != source:
                layers = udp(source, guest["address"], guest["mac"])
                add("forged source", f"{whose} ({source}) to {guest['name']}", layers)
    for guest in others:
        add(
            "ARP claim",
            f"{gateway} to {guest['name']}",
            claim(gateway, sender["mac"], guest["address"], guest["mac"]),
            gateway,
        )
        layers = claim(guest["address"], sender["mac"], gateway, gateway_mac)
        add("ARP claim", f"{guest['address']} to the hypervisor", layers, guest["address"])
        add("forged MAC", f"{STRANGER} to {guest['name']}", udp(own, guest["address"], guest["mac"], src=STRANGER))
        add("VLAN tag", f"20 to {guest['name']}", udp(own, guest["address"], guest["mac"], vlan=[20]))
    layers = claim(free, sender["mac"], gateway, gateway_mac)
    add("ARP claim", f"{free} to the hypervisor", layers, free)
    add("forged MAC", f"{STRANGER} to the hypervisor", udp(own, gateway, gateway_mac, src=STRANGER))
    add("VLAN tag", "20 to the hypervisor", udp(own, gateway, gateway_mac, vlan=[20]))
    add("router advertisement", "to all nodes", advertisement(), "IPv6 route")
    for flow in policy["bridged"]:
        if flow["from"]["name"] == sender["name"]:
            ends = {"src": own, "dst": flow["to"]["address"]}
            ports = {"sport": 40998, "dport": flow["ports"][0]}
            add(HONEST, "", [["ether", {"dst": flow["to"]["mac"]}], ["ip", ends], ["tcp", ports]])
            break
    return found


def judge(sent: list[dict[str, Any]], place: str, evidence: dict[str, Any], own: list[str]) -> list[dict[str, Any]]:
    """A row a forged frame. `own`: the sender's ports.

    `evidence`: {"sent": what attacks.py printed, "tags": what watch.py saw, "believed": {machine: its false beliefs}}.
    """
    tags: dict[str, set[tuple[str, str]]] = {}
    for one, interface, way in evidence["tags"]:
        tags.setdefault(one, set()).add((interface, way))
    honest = next((one["tag"] for one in sent if one["target"] == HONEST), "")
    passed = any(way == "out" and interface not in own for interface, way in tags.get(honest, ()))
    rows = []
    for one in sent:
        if one["target"] == HONEST:
            continue
        seen = tags.get(one["tag"], set())
        beyond = sorted({interface for interface, _ in seen if interface not in own and not inner(interface)})
        taken_in = [
            machine
            for machine, false in evidence["believed"].items()
            if one["claims"] and any(text.startswith(one["claims"] + " ") for text in false)
        ]
        failed = evidence["sent"].get("error") or evidence["sent"].get("failed", {}).get(one["tag"])
        if beyond or taken_in:
            observed, why = (
                "reachable",
                f"seen at {', '.join(beyond)}" if beyond else f"taken in by {', '.join(taken_in)}",
            )
        elif failed:
            observed, why = "unproven", f"it could not be sent: {failed}"
        elif not any(interface in own for interface, _ in seen):
            observed, why = "unproven", "it never came to the hypervisor"
        elif not passed:
            observed, why = "unproven", "an honest frame did not get through either"
        else:
            observed, why = "blocked", ""
        base = {"place": place, "target": one["target"], "address": None, "protocol": "frame", "port": None}
        answer = {
            "answer": "seen" if seen else "silent",
            "control": {"from": place, "answer": "open" if passed else "silent"},
        }
        row = {**base, "name": one["name"], "expected": "blocked", "observed": observed}
        rows.append({**row, **({"why": why} if why else {}), **answer})
    return rows


def inner(interface: str) -> bool:
    """The pair that Proxmox's firewall puts between a guest's port and the lab's bridge."""
    return interface.startswith(("fwln", "fwbr"))
