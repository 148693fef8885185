"""VMs: the checks, the tidying and the corner cases of create, change, clone, start and roll back."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from fakepve import schema as pve_schema
from fakepve.model import PveError, TaskError
from fakepve.qemu import drives_of, volume_ref, with_mac
from fakepve.routing import die, param_error, split_list

from .bridges import bridge_of, mac_of
from .privileges import NOT_CONFIG, privileges_for

Values = dict[str, Any]
NET = re.compile(r"net\d+")
KEY_LINE = re.compile(r"(?:.*\s)?(?:ssh-|ecdsa-|sk-)[\w@.-]+ [A-Za-z0-9+/]+=*(?: .*)?")
CONFIG = "/nodes/{node}/qemu/{vmid}/config"


class MachinesApi:
    """Mixin of the double: what fakepve leaves out of the life of a VM."""

    # ---------------------------------------------------------------- checks

    def _may(self, user: str, vmid: int, pool: str | None, *privileges: str) -> bool:
        paths = [f"/vms/{vmid}", *([f"/pool/{pool}"] if pool else [])]
        return any(self.allowed(user, path, privilege) for path in paths for privilege in privileges)

    def _check_config(self, user: str, vmid: int, pool: str | None, config: Values) -> None:
        """The privilege that each key needs, and the right to use each bridge."""
        for key in sorted(config):
            needed = privileges_for(key, str(config[key] or ""))
            if not needed and user != "root@pam":
                raise PveError(500, f"only root can set '{key}' config")
            if needed and not self._may(user, vmid, pool, *needed):
                raise PveError(403, f"Permission check failed (/vms/{vmid}, {'|'.join(needed)})")
        if "startup" in config:
            self.check(user, "/", "Sys.Modify")
        self._check_bridges(user, config)

    def _check_bridges(self, user: str, config: Values) -> None:
        for key in sorted(key for key in config if NET.fullmatch(key)):
            bridge, tag = bridge_of(str(config[key]))
            if bridge:
                path = f"/sdn/zones/localnetwork/{bridge}"
                self.check(user, f"{path}/{tag}" if tag else path, "SDN.Use")

    @staticmethod
    def _tidy(config: Values) -> None:
        """Values as Proxmox writes them down, or its refusal."""
        for key, value in config.items():
            if NET.fullmatch(key):
                config[key] = with_mac(value)
        if config.get("tags") is not None:
            config["tags"] = ";".join(sorted({tag.lower() for tag in split_list(config["tags"])}))
        if config.get("description") is not None:
            config["description"] = str(config["description"]).rstrip()
        for line in urllib.parse.unquote(str(config.get("sshkeys") or "")).splitlines():
            if line.strip() and not line.startswith("#") and not KEY_LINE.fullmatch(line.strip()):
                raise die("SSH public key validation error")

    @staticmethod
    def _check_boot(config: Values) -> None:
        """fakepve looks at the boot order of a change, not of a new VM."""
        order = str(config.get("boot") or "")
        for device in filter(None, order.removeprefix("order=").split(";")) if order.startswith("order=") else ():
            if device not in config:
                raise param_error(boot=f"invalid bootorder: device '{device}' does not exist'")

    # --------------------------------------------------------- create, change

    async def _qm_create(self, v: Values, user: str) -> str:
        vmid, pool, default = int(v["vmid"]), v.get("pool"), v.get("storage")
        self._qm_check_pool(pool)
        if default:
            self.check(user, f"/storage/{default}", "Datastore.AllocateSpace")
        if not self._may(user, vmid, pool, "VM.Allocate"):
            raise PveError(403, "Permission check failed")
        config = {key: value for key, value in v.items() if key not in NOT_CONFIG}
        if v.get("start") and not self._may(user, vmid, pool, "VM.PowerMgmt"):
            raise PveError(403, f"Permission check failed (/vms/{vmid}, VM.PowerMgmt)")
        self._check_config(user, vmid, pool, config)
        self.check_drives(user, vmid, config, default)
        self._tidy(config)
        self._check_boot(config)
        with self.already_checked():
            upid: str = await super()._qm_create({**v, **config}, user)
        return upid

    async def _apply_config(self, vm: Any, user: str, p: Values) -> None:
        config = {key: value for key, value in p.items() if key not in NOT_CONFIG}
        deleted = split_list(p.get("delete"))
        self._check_config(user, vm.vmid, None, {**dict.fromkeys(deleted, ""), **config})
        self.check_drives(
            user, vm.vmid, {key: config[key] for key in config if vm.config.get(key) != config[key]}, None
        )
        self._coerce(config)
        self._tidy(config)
        self._check_lock(vm)
        before = dict(vm.config)
        made = self.allocate_changed(vm, config)
        rest = {key: value for key, value in p.items() if key in ("digest", "skiplock")}
        if deleted:
            rest["delete"] = ",".join(deleted)
        try:
            with self.already_checked():
                await super()._apply_config(vm, user, {**config, **rest})
        except PveError:
            for volid in made:
                self._qm_free(volid)
            raise
        self.settle_detached(vm, before)

    @staticmethod
    def _coerce(config: Values) -> None:
        """Numbers as numbers: fakepve keeps the text of a form."""
        properties = pve_schema.load().paths[CONFIG]["PUT"]["parameters"]["properties"]
        for key in config:
            declared = properties.get(key) or {}
            if declared.get("type") in ("integer", "number", "boolean"):
                config[key] = pve_schema.check_value(declared, config[key])[0]

    # ----------------------------------------------------------------- clone

    async def _qm_clone(self, v: Values, user: str) -> str:
        source = self.find(v["node"], v["vmid"])
        self._check_bridges(user, source.config)
        storages = {volume_ref(volume)[0] for _, volume, _ in drives_of(source.config, skip_cdrom=True)}
        for sid in sorted({v["storage"]} if v.get("storage") else {each for each in storages if each}):
            self.check(user, f"/storage/{sid}", "Datastore.AllocateSpace")
        with self.already_checked():
            upid: str = await super()._qm_clone(v, user)
        made = self.vm(int(v["newid"]))
        if made is not None:
            self._own_seed(made, v.get("storage"))
        return upid

    def _own_seed(self, vm: Any, storage: str | None) -> None:
        """A clone has a cloud-init drive of its own: fakepve leaves the template's in it."""
        for key, volume, props in drives_of(vm.config):
            if volume.endswith(("-cloudinit", "-cloudinit.qcow2")):
                sid = storage or volume_ref(volume)[0]
                vm.config[key], _ = self._new_seed(vm.vmid, sid, props)

    # ----------------------------------------------------------- power, reset

    async def _do_start(self, vm: Any, user: str, p: Values) -> str:
        bridges = (bridge_of(str(vm.config[key]))[0] for key in sorted(vm.config) if NET.fullmatch(key))
        missing = [name for name in bridges if name and name not in self.interfaces(vm.node)]
        vm.start_error = f"bridge '{missing[0]}' does not exist" if missing else None
        upid: str = await super()._do_start(vm, user, p)
        return upid

    async def _qm_rollback(self, v: Values, user: str) -> str:
        vm = self.find(v["node"], v["vmid"])
        if v.get("start"):
            self.check(user, f"/vms/{vm.vmid}", "VM.PowerMgmt")
        with_memory = bool((vm.snapshots.get(v["snapname"]) or {}).get("vmstate"))
        with self.already_checked():
            # A snapshot with memory comes back running, whether asked for or not.
            values = {**v, "start": bool(v.get("start")) or with_memory}
            upid: str = await super()._qm_rollback(values, user)
        return upid

    # ----------------------------------------------------------------- tasks

    async def task(self, node: str, ttype: str, tid: Any, user: str, body: Any, vm: Any = None, **more: Any) -> str:
        """A task whose errors of any kind are its exit status, and which is told of when it ends."""

        async def whole() -> Any:
            try:
                note = await body()
                if vm is not None and hasattr(vm, "agent"):
                    await self.after_task(vm, ttype)
            except PveError as error:
                raise TaskError(error.message) from error
            finally:
                self.dump_soon()
            return note

        upid: str = await super().task(node, ttype, tid, user, whole, vm=vm, **more)
        return upid

    async def after_task(self, vm: Any, ttype: str) -> None:
        """The guest agent answers in a running VM that has it switched on, from what cloud-init was told."""
        enabled = re.match(r"(?:enabled=)?1\b", str(vm.config.get("agent", "")))
        vm.agent = self._agent_answers(vm) if enabled and vm.status == "running" else None

    @staticmethod
    def _agent_answers(vm: Any) -> Values:
        address = re.search(r"\bip=([\d.]+)/(\d+)", str(vm.config.get("ipconfig0", "")))
        addresses = []
        if address:
            addresses = [
                {"ip-address": address[1], "ip-address-type": "ipv4", "prefix": int(address[2])},
            ]
        mac = (mac_of(str(vm.config.get("net0", ""))) or "").lower()
        return {"interfaces": [{"name": "eth0", "hardware-address": mac, "ip-addresses": addresses}]}
