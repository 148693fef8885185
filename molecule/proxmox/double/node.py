"""The node itself: version, memory, processor, bridges; and SDN as far as a host without it shows any."""

from __future__ import annotations

import re
from typing import Any

from fakepve.routing import die, param_error

from .privileges import Version

Values = dict[str, Any]
GIB = 1024**3
FLAGS = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov sse sse2 ssse3 sse4_1 sse4_2 aes avx avx2 vmx"
BRIDGE_TYPES = ("bridge", "OVSBridge")
BOND_TYPES = ("bond", "OVSBond")
WANTED_TYPES = {"any_bridge": BRIDGE_TYPES, "any_local_bridge": BRIDGE_TYPES, "include_sdn": None}


def default_interfaces() -> dict[str, Values]:
    """A host as the lab's documents describe it: one bridge to the network, one for guests, one for other labs."""
    bridge = {"type": "bridge", "method": "static", "autostart": 1, "active": 1, "bridge_stp": "off", "bridge_fd": "0"}
    return {
        "eno1": {"iface": "eno1", "type": "eth", "method": "manual", "active": 1, "exists": 1},
        "vmbr0": {**bridge, "iface": "vmbr0", "cidr": "192.168.50.2/24", "address": "192.168.50.2", "netmask": "24"}
        | {"bridge_ports": "eno1", "gateway": "192.168.50.1"},
        "vmbr1": {**bridge, "iface": "vmbr1", "cidr": "10.10.10.1/24", "address": "10.10.10.1", "netmask": "24"}
        | {"bridge_ports": ""},
        "vmbr2": {**bridge, "iface": "vmbr2", "cidr": "10.20.20.1/24", "address": "10.20.20.1", "netmask": "24"}
        | {"bridge_ports": ""},
    }


def pair(version: str) -> Version:
    """'9.0.10' -> (9, 0)."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


class NodeApi:
    """Mixin of the double: what a node says of itself."""

    version: str
    node_interfaces: dict[str, dict[str, Values]]
    hardware: Values

    @property
    def version_pair(self) -> Version:
        """(major, minor) of the version that this host claims to be."""
        return pair(self.version)

    def interfaces(self, node: str) -> dict[str, Values]:
        """The network interfaces of a node, by name."""
        return self.node_interfaces.setdefault(node, default_interfaces())

    def _routes_node(self) -> list[tuple[str, str, Any]]:
        network = "/nodes/{node}/network"
        return [
            ("GET", "/nodes/{node}/version", self._node_version),
            ("GET", "/nodes/{node}/status", self._node_status),
            ("GET", network, self._network_list),
            ("POST", network, self._network_create),
            ("PUT", network, self._network_apply),
            ("GET", network + "/{iface}", self._network_read),
            ("PUT", network + "/{iface}", self._network_update),
            ("DELETE", network + "/{iface}", self._network_delete),
            ("GET", "/nodes/{node}/sdn/zones", self._zone_list),
            ("GET", "/cluster/sdn/zones", self._nothing),
            ("GET", "/cluster/sdn/vnets", self._nothing),
        ]

    async def _nothing(self, v: Values, user: str) -> list[Values]:
        return []

    async def _zone_list(self, v: Values, user: str) -> list[Values]:
        return [{"zone": "localnetwork", "status": "available"}]

    async def _node_version(self, v: Values, user: str) -> Values:
        release = ".".join(self.version.split(".")[:2])
        return {"version": self.version, "release": release, "repoid": "fakepve"}

    async def _node_status(self, v: Values, user: str) -> Values:
        total, cpus = self.hardware["memory"], self.hardware["cpus"]
        used = 2 * GIB + sum(self._memory_of(vm) for vm in self.vms if vm.node == v["node"] and vm.status == "running")
        root = {"total": 64 * GIB, "used": 8 * GIB, "avail": 56 * GIB, "free": 56 * GIB}
        kernel = "6.14.8-2-pve" if self.version_pair >= (9, 0) else "6.8.12-4-pve"
        return {
            "pveversion": f"pve-manager/{self.version}/0123456789abcdef",
            "kversion": f"Linux {kernel} #1 SMP PREEMPT_DYNAMIC PMX",
            "current-kernel": {"sysname": "Linux", "release": kernel, "machine": "x86_64", "version": "#1 SMP"},
            "boot-info": {"mode": "efi", "secureboot": 0},
            "cpu": 0.02,
            "cpuinfo": {"cpus": cpus, "cores": cpus, "sockets": 1, "hvm": "1", "mhz": "2400.000", "user_hz": 100}
            | {"model": self.hardware["model"], "flags": self.hardware["flags"]},
            "memory": {"total": total, "used": min(used, total), "free": max(total - used, 0)}
            | {"available": max(total - used, 0)},
            "swap": {"total": 0, "used": 0, "free": 0},
            "rootfs": root,
            "loadavg": ["0.10", "0.10", "0.10"],
            "uptime": 3600,
        }

    @staticmethod
    def _memory_of(vm: Any) -> int:
        return int(str(vm.config.get("memory", 512)).split("=")[-1]) * 1024**2

    def _node_stats(self, online: bool) -> Values:
        """The usage of a node in lists, from the same figures."""
        stats: Values = super()._node_stats(online)
        return stats and {**stats, "maxcpu": self.hardware["cpus"], "maxmem": self.hardware["memory"]}

    # --------------------------------------------------------------- network

    async def _network_list(self, v: Values, user: str) -> list[Values]:
        """A bridge that somebody may neither use nor look at is simply not there for them."""
        wanted = v.get("type")
        types = WANTED_TYPES.get(wanted, (wanted,)) if wanted else None
        out = []
        for name, found in sorted(self.interfaces(v["node"]).items()):
            if types and found["type"] not in types:
                continue
            path = f"/sdn/zones/localnetwork/{name}"
            if found["type"] in BRIDGE_TYPES and not any(self.allowed(user, path, p) for p in ("SDN.Audit", "SDN.Use")):
                continue
            out.append({"families": ["inet"], "method6": "manual", "priority": len(out) + 2, **found})
        return out

    def _interface(self, v: Values) -> Values:
        found = self.interfaces(v["node"]).get(v["iface"])
        if found is None:
            raise param_error(iface="interface does not exist")
        return found

    async def _network_read(self, v: Values, user: str) -> Values:
        return {key: value for key, value in self._interface(v).items() if key != "iface"}

    async def _network_create(self, v: Values, user: str) -> None:
        if v["iface"] in self.interfaces(v["node"]):
            raise param_error(iface="interface already exists")
        made = {key: value for key, value in v.items() if key not in ("node", "delete")}
        self.interfaces(v["node"])[v["iface"]] = {"method": "static" if v.get("cidr") else "manual", **made}

    async def _network_update(self, v: Values, user: str) -> None:
        found = self._interface(v)
        for key in re.split(r"[\s,;]+", str(v.get("delete") or "")):
            found.pop(key, None)
        found.update({key: value for key, value in v.items() if key not in ("node", "delete", "iface")})

    async def _network_delete(self, v: Values, user: str) -> None:
        self._interface(v)
        del self.interfaces(v["node"])[v["iface"]]

    async def _network_apply(self, v: Values, user: str) -> str:
        if v["node"] not in self.nodes:
            raise die(f"no such cluster node '{v['node']}'")

        async def body() -> None:
            for found in self.interfaces(v["node"]).values():
                if found.get("autostart"):
                    found["active"] = 1

        upid: str = await self.task(v["node"], "srvreload", "networking", user, body)
        return upid
