"""The state that a test sets up and compares: a seed of machines, and each VM's whole state as a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fakepve.lxc import parse_size
from fakepve.qemu import drives_of, volume_ref

Values = dict[str, Any]
VM_KEYS = frozenset(
    ("vmid", "name", "node", "status", "template", "config", "pending", "snapshots", "lock", "pool", "tags", "images")
)
SEED_KEYS = frozenset(("version", "nodes", "hardware", "storages", "interfaces", "vms"))


class SeedError(Exception):
    """The seed file does not say what it must."""


def apply_seed(double: Any, seed: Values) -> None:
    """Put what a seed describes on a host that nothing has been done to yet."""
    unknown = sorted(set(seed) - SEED_KEYS)
    if unknown:
        raise SeedError(f"seed: unknown key {unknown[0]!r}; known are {', '.join(sorted(SEED_KEYS))}")
    double.hardware.update(seed.get("hardware", {}))
    for node in seed.get("nodes", []):
        double.add_node(node)
    for name, storage in seed.get("storages", {}).items():
        if storage is None:
            double.storages.pop(name, None)
        else:
            double.storages.setdefault(name, {"active": 1, "files": set(), "volumes": {}}).update(storage)
    for node, interfaces in seed.get("interfaces", {}).items():
        known = double.interfaces(node)
        for name, interface in interfaces.items():
            if interface is None:
                known.pop(name, None)
            else:
                known[name] = {"iface": name, "type": "bridge", "method": "manual", "active": 1, **interface}
    for each in seed.get("vms", []):
        add_vm(double, each)


def add_vm(double: Any, given: Values) -> Any:
    """A VM or template as a seed describes it, its disks' volumes included."""
    unknown = sorted(set(given) - VM_KEYS)
    if unknown or "vmid" not in given or "name" not in given:
        raise SeedError(f"seed: a VM has 'vmid' and 'name' and may have {', '.join(sorted(VM_KEYS))}: {given!r}")
    if double.guest(given["vmid"]) is not None:
        raise SeedError(f"seed: VMID {given['vmid']} is there twice")
    config = {"memory": "2048", "cores": 1, **given.get("config", {})}
    if given.get("tags"):
        config["tags"] = ";".join(given["tags"]) if isinstance(given["tags"], list) else given["tags"]
    if given.get("template"):
        config["template"] = 1
    vm = double.add_vm(
        given["vmid"],
        given["name"],
        node=given.get("node", min(double.nodes)),
        status=given.get("status", "stopped"),
        config=config,
        pending=given.get("pending"),
        template=bool(given.get("template")),
        lock=given.get("lock"),
    )
    vm.snapshots = {name: dict(snapshot) for name, snapshot in given.get("snapshots", {}).items()}
    vm.started_at = None  # a time of its own would make two dumps of one seed differ
    if given.get("pool"):
        double._pool_join(given["pool"], vm.vmid)
    for key, volume, props in drives_of(config):
        sid, name = volume_ref(volume)
        if sid in double.storages and props.get("media") != "cdrom":
            size = parse_size(props.get("size", "0")) or 0
            volumes = double.storages[sid].setdefault("volumes", {})
            volumes[name] = {"content": "images", "format": "raw", "size": size, "vmid": vm.vmid, "ctime": 0}
            if key in given.get("images", {}):
                volumes[name]["file"] = given["images"][key]
    return vm


def whole_states(double: Any) -> Iterator[tuple[int, Values]]:
    """Of each VM everything that a call could have changed, and nothing that changes by itself."""
    volumes: dict[int, list[Values]] = {}
    for sid, store in sorted(double.storages.items()):
        for name, volume in sorted(store.get("volumes", {}).items()):
            volumes.setdefault(volume.get("vmid"), []).append({"volid": f"{sid}:{name}", **volume})
    rules: dict[str, list[str]] = {}
    for rule in double.directory.rules:
        rules.setdefault(rule.path, []).append(f"{rule.kind} {rule.name} {rule.role} {rule.propagate}")
    firewall = double._fw()["guests"]
    for vm in double.vms:
        yield (
            vm.vmid,
            {
                "vmid": vm.vmid,
                "name": vm.name,
                "node": vm.node,
                "status": vm.status,
                "qmpstatus": vm.qmpstatus,
                "template": bool(vm.template),
                "lock": vm.lock,
                "pool": vm.pool,
                "ha": vm.ha_state,
                "config": vm.config,
                "pending": vm.pending,
                "snapshots": vm.snapshots,
                "volumes": volumes.get(vm.vmid, []),
                "firewall": firewall.get(vm.vmid, {}),
                "rules": sorted(rules.get(f"/vms/{vm.vmid}", [])),
            },
        )


class Dump:
    """`DIR/VMID.json` for each VM that exists: the same bytes as long as the VM's state is the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.json"):
            leftover.unlink()
        self._written: dict[int, str] = {}

    def write(self, double: Any) -> None:
        """Bring the files up to date."""
        # With many machines this runs at every call: only what changed is written out in its readable form.
        now: dict[int, str] = {}
        for vmid, state in whole_states(double):
            now[vmid] = json.dumps(state, sort_keys=True, default=sorted)
            if self._written.get(vmid) != now[vmid]:
                new = self._folder / f".{vmid}.new"
                text = json.dumps(state, sort_keys=True, indent=1, ensure_ascii=False, default=sorted)
                new.write_text(f"{text}\n", encoding="utf-8")
                new.replace(self._folder / f"{vmid}.json")
        for vmid in self._written.keys() - now.keys():
            (self._folder / f"{vmid}.json").unlink(missing_ok=True)
        self._written = now
