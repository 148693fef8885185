"""What stands against a machine on a Proxmox VE host, from what the API said. Pure: nothing is called here.

Each problem is one line that names the thing, its value and the remedy.
"""

from __future__ import annotations

import re
from typing import Any

OLDEST, NEWEST = (8, 2), (9,)
MIB = 2**20
GIB = 2**30
# What a machine needs of a storage before it has written anything; one that is not thin takes the whole disk at once.
THIN_GIB = 4
THICK = ("lvm", "iscsi", "iscsidirect")
# Processor types that hand a flag on: `host` all, else those of the level.
LEVELS = {"avx": ("host", "max", "x86-64-v3", "x86-64-v4")}
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
UNICAST = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", re.IGNORECASE)


def load(shares: dict[str, dict[str, Any]], host: str) -> dict[str, Any]:
    """What `host` and those before it are going to take of its node and its storage: {"memory", "disks"}.

    In the inventory's order, so that of a node that is too small only those are refused that do not fit any more.
    `shares`: {host: {"node", "memory" (MiB, 0 when it runs), "storage", "disk" (GiB, 0 when it is there)}}.
    """
    own = shares[host]
    names = list(shares)
    before = {name: shares[name] for name in names[: names.index(host) + 1] if shares[name]["node"] == own["node"]}
    return {
        "memory": [[name, int(one["memory"])] for name, one in before.items() if int(one["memory"])]
        if int(own["memory"])
        else [],
        "disks": [int(one["disk"]) for one in before.values() if one["storage"] == own["storage"] and int(one["disk"])]
        if int(own["disk"])
        else [],
    }


def privileges(listed: list[dict[str, Any]], places: dict[str, str], image: bool) -> list[dict[str, str]]:
    """The list with its places as paths: [{"path", "privilege", "why"}]."""
    return [
        {"path": places[one["place"]], "privilege": one["privilege"], "why": one["why"]}
        for one in listed
        if image or not one.get("image")
    ]


def held(permissions: dict[str, Any], path: str, privilege: str) -> bool:
    """Whether a privilege holds on a path: granted there, or above it and handed down."""
    for place, granted in permissions.items():
        if privilege not in granted:
            continue
        above = path.startswith(place.rstrip("/") + "/")
        if place == path or (above and int(granted[privilege])):
            return True
    return False


def privilege_problems(permissions: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """A line a path with what the token may not do there."""
    lacking: dict[str, list[str]] = {}
    for one in wanted["privileges"]:
        if not held(permissions, one["path"], one["privilege"]):
            lacking.setdefault(one["path"], []).append(f"{one['privilege']} ({one['why']})")
    return [
        f"{wanted['token']} lacks {', '.join(names)} on {path}: playbooks/proxmox_access.yml grants it"
        for path, names in lacking.items()
    ]


def version_problems(version: dict[str, Any]) -> list[str]:
    """Proxmox VE 8.2 to 9.x."""
    text = str(version.get("version", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    if numbers >= OLDEST and numbers[:1] <= NEWEST:
        return []
    return [f"the node's Proxmox VE is {text or 'of an unknown version'}: the lab needs 8.2 to 9.x; upgrade the node"]


def storage_problems(storages: list[dict[str, Any]], wanted: dict[str, Any], node: str) -> list[str]:
    """The two storages: there, active, for what they are to hold, with room."""
    found = {one["storage"]: one for one in storages}
    ours = ", ".join(sorted(found)) or "none"
    problems = []
    for name, variable, content, room in wanted["storages"]:
        one = found.get(name)
        if one is None:
            problems.append(
                f"{variable} {name!r} is no storage of node {node} that the token sees (it sees {ours}): name one of "
                "those, or run playbooks/proxmox_access.yml"
            )
            continue
        holds = [word for word in re.split(r"[, ]+", str(one.get("content", ""))) if word]
        if content not in holds:
            # Which release began to take it is asked of the storage itself, and of no version number.
            old = "; where pvesm knows no such content, upgrade the node, or name your own machine_template"
            problems.append(
                f"storage {name} does not take content {content!r}: on the node, pvesm set {name} --content "
                f"{','.join([*holds, content])}{old if content == 'import' else ''}"
            )
        if not int(one.get("active", 1)) or not int(one.get("enabled", 1)):
            problems.append(f"storage {name} is not active on node {node}: see `pvesm status` there")
        elif "avail" in one:
            need = sum(size if one.get("type") in THICK else min(size, THIN_GIB) for size in room)
            if int(one["avail"]) < need * GIB:
                problems.append(
                    f"storage {name} has {int(one['avail']) / GIB:.1f} GiB left, and {need} GiB are needed: make room "
                    f"there, or set {variable} to another one"
                )
    return problems


def processor_problems(status: dict[str, Any], wanted: dict[str, Any], node: str) -> list[str]:
    """Virtualisation, enough cores, and the flags that software in the guest cannot do without."""
    info = status.get("cpuinfo", {})
    flags = str(info.get("flags", "")).split()
    problems = []
    if str(info.get("hvm", "1")) == "0":
        problems.append(f"node {node} has no hardware virtualisation: switch on VT-x or AMD-V in its firmware")
    cpus = int(info.get("cpus", wanted["cores"]))
    if int(wanted["cores"]) > cpus:
        problems.append(f"machine_cores {wanted['cores']} is more than the {cpus} of node {node}: lower it")
    for flag in wanted["cpu_flags"]:
        if flag not in flags:
            model = info.get("model", "its processor")
            problems.append(
                f"node {node} has no {flag.upper()} ({model}), which machine_cpu_flags asks for: move the machine to "
                "another node (machine_node), or run there what does not need it"
            )
        elif wanted["cpu_type"] not in LEVELS.get(flag, ("host",)):
            problems.append(
                f"machine_cpu_type {wanted['cpu_type']!r} does not hand {flag.upper()} on to the guest: use 'host'"
            )
    return problems


def memory_problems(status: dict[str, Any], wanted: dict[str, Any], node: str) -> list[str]:
    """Room for this machine beside those of the lab that are to start on the node before it: [[name, MiB], ...]."""
    memory = status.get("memory", {})
    if "total" not in memory:
        return []
    free = int(memory.get("available", int(memory["total"]) - int(memory.get("used", 0)))) // MIB
    asked = sum(int(size) for _, size in wanted["memory"])
    if not wanted["memory"] or asked <= free:
        return []
    names = ", ".join(f"{name} {size}" for name, size in wanted["memory"])
    return [
        f"node {node} has {free} MiB of memory left of {int(memory['total']) // MIB}, and {asked} are needed "
        f"({names}): stop other machines there, lower machine_memory_mb, or set machine_node to another node"
    ]


def bridge_problems(bridges: list[dict[str, Any]], wanted: dict[str, Any], node: str) -> list[str]:
    """The bridge is there and the token may see it."""
    names = sorted(str(one.get("iface")) for one in bridges if "bridge" in str(one.get("type", "")).lower())
    if wanted["bridge"] in names:
        return []
    return [
        f"machine_bridge {wanted['bridge']!r} is no bridge of node {node} that the token may use (it sees "
        f"{', '.join(names) or 'none'}): playbooks/network.yml makes the lab's, and without SDN.Use on "
        f"{wanted['bridge_path']} it stays invisible (playbooks/proxmox_access.yml)"
    ]


def inventory_problems(wanted: dict[str, Any]) -> list[str]:
    """What is wrong whatever the host is."""
    problems = []
    if not HOST_NAME.fullmatch(str(wanted["name"])):
        problems.append(
            f"{wanted['name']!r} cannot be a virtual machine's name: use letters, digits and hyphens in the inventory"
        )
    if not UNICAST.fullmatch(str(wanted["mac"])):
        problems.append(
            f"machine_mac {wanted['mac']!r} is no hardware address of one machine: such as 02:10:00:00:00:10"
        )
    if not wanted["ssh_keys"]:
        problems.append(
            "machine_ssh_keys is empty, so nobody could log in: make a key with ssh-keygen, or name public keys there"
        )
    return problems


def problems(read: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Everything that stands against the machine. `read` is proxmox_read's answer, `wanted` what the inventory says."""
    node, data, unread = wanted["node"], read["data"], read["problems"]
    nodes = {one["node"]: one for one in data.get("nodes", [])}
    found = inventory_problems(wanted)
    if node not in nodes:
        return [
            *found,
            f"machine_node {node!r} is no node of the cluster: there are {', '.join(sorted(nodes)) or 'none'}",
        ]
    if nodes[node].get("status", "online") != "online":
        return [*found, f"node {node} is {nodes[node]['status']}: start it, or set machine_node to another node"]
    found += version_problems(data.get("version", {}))
    found += privilege_problems(data.get("access/permissions", {}), wanted)
    found += storage_problems(data.get(f"nodes/{node}/storage", []), wanted, node)
    status = data.get(f"nodes/{node}/status")
    if status is not None:
        found += processor_problems(status, wanted, node) + memory_problems(status, wanted, node)
    if wanted["bridge_expected"]:
        found += bridge_problems(data.get(f"nodes/{node}/network", []), wanted, node)
    told = " ".join(found)
    # A refusal for lack of a privilege has been told above, with the reason for it.
    return found + [f"{path}: {line}" for path, line in unread.items() if not ("lacks" in line and "lacks" in told)]


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Any]:
        """The filters by their names in templates."""
        return {
            "glasslab_proxmox_load": load,
            "glasslab_proxmox_privileges": privileges,
            "glasslab_proxmox_problems": problems,
            "glasslab_proxmox_bridge": bridge_problems,
        }
