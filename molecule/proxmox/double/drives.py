"""The disks of a VM: allocated, imported from an image, grown, moved, detached and freed."""

from __future__ import annotations

import re
from typing import Any

from fakepve.lxc import format_size, parse_size
from fakepve.model import PveError, TaskError
from fakepve.qemu import DRIVE_KEY, NEW_DISK, drives_of, join_drive, split_drive, volume_ref
from fakepve.routing import die, param_error, split_list

Values = dict[str, Any]
UNUSED = re.compile(r"unused\d+")


class DrivesApi:
    """Mixin of the double: what fakepve leaves out of the life of a disk."""

    def _routes_drives(self) -> list[tuple[str, str, Any]]:
        one = "/nodes/{node}/qemu/{vmid}"
        return [
            ("PUT", one + "/resize", self._resize),
            ("POST", one + "/move_disk", self._move_disk),
            ("PUT", one + "/unlink", self._unlink),
        ]

    # ---------------------------------------------------------------- checks

    def check_drives(self, user: str, vmid: int, config: Values, default: str | None) -> None:
        """What Proxmox checks of the drives of a request: the storages they are on, the images they come from."""
        for key in sorted(key for key in config if DRIVE_KEY.match(key)):
            self._qm_check_drive(user, vmid, None, key, config[key], default)
            volume, props = split_drive(config[key])
            source = props.get("import-from")
            if source is None:
                continue
            found = NEW_DISK.match(volume)
            if not found or float(found.group(2)):
                raise param_error(
                    **{key: "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>"}
                )
            sid, name = volume_ref(source)
            if sid is None:
                if user != "root@pam":
                    raise PveError(403, "Only root can pass arbitrary filesystem paths.")
                raise die(f"the double imports no file from outside its storages: {source}")
            kind, owner, _ = self._parse_volname(self._store(sid), name)
            if kind not in ("images", "import"):
                raise param_error(**{key: f"{source} has wrong type '{kind}' - needs to be 'images' or 'import'"})
            if owner:
                self.check(user, f"/vms/{owner}", "VM.Clone")
            else:
                self._check_access(user, sid, kind, owner, source)

    # ------------------------------------------------------------ allocation

    def _qm_new_drive(self, vmid: int, key: str, value: str, default: str | None) -> tuple[str, list[str]]:
        """A drive's value in the configuration, once its disk is there; and the volumes that were made for it."""
        volume, props = split_drive(value)
        if volume.endswith(":cloudinit"):
            return self._new_seed(vmid, volume_ref(volume)[0] or default, props)
        source = props.pop("import-from", None)
        if source is None:
            made: tuple[str, list[str]] = super()._qm_new_drive(vmid, key, value, default)
            return made
        found = NEW_DISK.match(volume)
        sid = (found.group(1) if found else None) or default
        origin_sid, origin_name = volume_ref(source)
        origin = self._volumes(origin_sid).get(origin_name)
        if origin is None:
            raise die(f"volume '{source}' does not exist")
        size = int(origin.get("virtual") or origin.get("size") or 0)
        volid, _ = self._qm_alloc(sid, vmid, props.pop("format", None), size)
        self.import_image(volid, source)
        return join_drive(volid, {**props, "size": format_size(size)}), [volid]

    def _new_seed(self, vmid: int, sid: str | None, props: Values) -> tuple[str, list[str]]:
        """The cloud-init drive: one a VM, by a name of its own."""
        store = self._store(sid)
        name = f"vm-{vmid}-cloudinit"
        if store.get("type") in ("dir", "nfs", "cifs", "btrfs"):
            name = f"{vmid}/{name}.qcow2"
        volumes = store.setdefault("volumes", {})
        if name in volumes:
            raise die(f"unable to create image: volume '{sid}:{name}' already exists")
        volumes[name] = {"content": "images", "format": "raw", "size": 4 * 1024**2, "vmid": vmid, "ctime": 0}
        rest = {key: value for key, value in props.items() if key not in ("format", "size")}
        return join_drive(f"{sid}:{name}", {**rest, "media": "cdrom"}), [f"{sid}:{name}"]

    def import_image(self, volid: str, source: str) -> None:
        """Copy the image `source` into a new volume; only guests that really run have something to copy."""

    def _qm_free(self, volid: str) -> None:
        """Free a disk; an ISO or an image in a VM's drive is nobody's own and stays."""
        name = volume_ref(volid)[1]
        if name.split("/", 1)[0] not in ("iso", "import", "vztmpl", "snippets", "backup"):
            super()._qm_free(volid)

    def allocate_changed(self, vm: Any, updates: Values) -> list[str]:
        """Allocate the disks of a change of a VM's configuration, in place; the volumes that were made."""
        made: list[str] = []
        try:
            for key in sorted(key for key in updates if DRIVE_KEY.match(key)):
                if vm.config.get(key) != updates[key]:
                    updates[key], volumes = self._qm_new_drive(vm.vmid, key, updates[key], None)
                    made += volumes
        except PveError:
            for volid in made:
                self._qm_free(volid)
            raise
        return made

    def settle_detached(self, vm: Any, before: Values) -> None:
        """A disk that a change took out of its drive stays as unusedN; one taken out of unusedN is freed."""
        kept = {split_drive(str(value))[0] for value in {**vm.config, **vm.pending}.values() if value is not None}
        for key, value in before.items():
            if not (DRIVE_KEY.match(key) or UNUSED.fullmatch(key)):
                continue
            volume, props = split_drive(str(value))
            if volume in kept or volume_ref(volume)[0] is None or vm.pending.get(key, "") is None:
                continue
            if UNUSED.fullmatch(key) or volume.endswith(("-cloudinit", "-cloudinit.qcow2")):
                self._qm_free(volume)
            elif props.get("media") != "cdrom":
                vm.config[self._free_unused(vm)] = volume

    @staticmethod
    def _free_unused(vm: Any) -> str:
        return next(f"unused{n}" for n in range(256) if f"unused{n}" not in vm.config)

    # ---------------------------------------------------------- resize, move

    def _drive_of(self, vm: Any, key: str) -> tuple[str, Values]:
        if key not in vm.config:
            raise die(f"disk '{key}' does not exist")
        volume, props = split_drive(vm.config[key])
        if props.get("media") == "cdrom":
            raise die(f"disk '{key}' is a cdrom")
        return volume, props

    async def _resize(self, v: Values, user: str) -> str:
        vm = self.find(v["node"], v["vmid"])
        key, asked = v["disk"], str(v["size"])
        self._check_lock(vm)
        volume, _ = self._drive_of(vm, key)
        self.check(user, f"/storage/{volume_ref(volume)[0]}", "Datastore.AllocateSpace")

        async def body() -> None:
            volid, props = self._drive_of(vm, key)
            stored = self._qm_volume(volid) or {}
            now = int(stored.get("size") or parse_size(props.get("size", "0")) or 0)
            wanted = parse_size(asked.lstrip("+")) or 0
            wanted += now if asked.startswith("+") else 0
            if wanted < now:
                raise TaskError("shrinking disks is not supported")
            store = self.storages[volume_ref(volid)[0]]
            if "avail" in store:
                if wanted - now > store["avail"]:
                    raise TaskError(f"unable to resize volume '{volid}': no space left on device")
                store["avail"] -= wanted - now
            await self.grow_image(vm, key, volid, wanted)
            stored["size"] = wanted
            vm.config[key] = join_drive(volid, {**props, "size": format_size(wanted)})

        upid: str = await self.task(vm.node, "resize", vm.vmid, user, body, vm=vm)
        return upid

    async def grow_image(self, vm: Any, key: str, volid: str, size: int) -> None:
        """Make the image of a volume larger; only guests that really run have one."""

    async def _move_disk(self, v: Values, user: str) -> str:
        vm = self.find(v["node"], v["vmid"])
        key, target = v["disk"], v.get("storage")
        if not target or v.get("target-vmid"):
            raise die("the double moves a disk to another storage only")
        self._check_lock(vm)
        volume, _ = self._drive_of(vm, key)
        if "images" not in split_list(self._store(target).get("content")):
            raise param_error(storage=f"storage '{target}' does not support vm images")
        self.check(user, f"/storage/{target}", "Datastore.AllocateSpace")
        if volume_ref(volume)[0] == target:
            raise die("you can't move to the same storage with same format")

        async def body() -> None:
            before = dict(vm.config)
            volid, props = self._drive_of(vm, key)
            size = int((self._qm_volume(volid) or {}).get("size") or parse_size(props.get("size", "0")) or 0)
            moved, _ = self._qm_alloc(target, vm.vmid, v.get("format"), size)
            self.import_image(moved, volid)
            vm.config[key] = join_drive(moved, props)
            if v.get("delete"):
                self._qm_free(volid)
            else:
                self.settle_detached(vm, before)

        upid: str = await self.task(vm.node, "qmmove", vm.vmid, user, body, vm=vm)
        return upid

    async def _unlink(self, v: Values, user: str) -> None:
        vm = self.find(v["node"], v["vmid"])
        self._check_lock(vm)
        for key in split_list(v["idlist"]):
            if key not in vm.config:
                continue
            before = dict(vm.config)
            volume = split_drive(str(vm.config.pop(key)))[0]
            if v.get("force") or UNUSED.fullmatch(key):
                self._qm_free(volume)
            else:
                self.settle_detached(vm, before)

    @staticmethod
    def drive_keys(config: Values) -> list[str]:
        """The drives of a configuration that are disks."""
        return [key for key, _, _ in drives_of(config, skip_cdrom=True)]
