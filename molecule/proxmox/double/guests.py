"""Real guests behind the API: QEMU without hardware help, one process a VM, gone when the double goes."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import ctypes
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fakepve.model import PveError, TaskError
from fakepve.qemu import drives_of, split_drive, volume_ref

from . import qmp
from .bridges import mac_of
from .cloudinit import write_seed
from .commandline import Drive, NotEmulated, Place, arguments, disks_of, on_lab_bridge, plug_script
from .disks import Disks
from .server import Double

Values = dict[str, Any]
#: While a clone's task runs: the disks it copies, in the order in which it allocates.
_sources: contextvars.ContextVar[Iterator[str] | None] = contextvars.ContextVar("sources", default=None)
#: While a snapshot's task runs: its name.
_snapshot: contextvars.ContextVar[str] = contextvars.ContextVar("snapshot", default="")
PR_SET_PDEATHSIG = 1
OUTPUTS = ("out-data", "err-data")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class GuestsApi:
    """Mixin of the double, before all others: what the API does to a VM happens to a guest."""

    def open_guests(self, folder: Path, ssh_base: int, lab_id: str | None) -> None:
        """Where guests' files go, and how they are reached; before the first request."""
        self.guests_folder = folder
        self.ssh_base = ssh_base
        self.lab_namespace = f"{lab_id}-pve" if lab_id else None
        self.disks = Disks(folder / "disks")
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self._watchers: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End all guests, then the API."""
        await asyncio.gather(*(self.end(vmid) for vmid in list(self.processes)))
        await super().stop()

    # ----------------------------------------------------------------- disks

    def _image_file(self, volid: str) -> Path:
        sid, name = volume_ref(volid)
        record = self._volumes(sid).get(name) if sid in self.storages else None
        if record is None or not record.get("file"):
            raise TaskError(f"volume '{volid}' does not exist")
        return Path(record["file"])

    def _disk_files(self, vm: Any) -> list[tuple[str, Path]]:
        return [(key, self._image_file(volume)) for key, volume, _ in drives_of(vm.config, skip_cdrom=True)]

    def _qm_alloc(self, sid: str, vmid: int, fmt: str | None, size: int, linked_from: str | None = None) -> Any:
        volid, made = super()._qm_alloc(sid, vmid, fmt, size, linked_from)
        record = self._qm_volume(volid)
        source = next(_sources.get() or iter(()), None)
        name = volume_ref(volid)[1]
        if source is None:
            record["file"] = str(self.disks.new(name, size))
        elif volume_ref(source)[1].rsplit("/", 1)[-1].startswith("base-"):
            record["file"] = str(self.disks.overlay(name, self._image_file(source), size))
        else:
            record["file"] = str(self.disks.copy(name, self._image_file(source)))
        return volid, made

    def import_image(self, volid: str, source: str) -> None:
        record = self._qm_volume(volid)
        self.disks.drop(Path(record["file"]))
        name, origin = volume_ref(volid)[1], self._image_file(source)
        fixed = volume_ref(source)[1].startswith("import/")
        made = self.disks.overlay(name, origin, record["size"]) if fixed else self.disks.copy(name, origin)
        record["file"] = str(made)

    def _qm_free(self, volid: str) -> None:
        record = self._qm_volume(volid)
        super()._qm_free(volid)
        if record and record.get("file") and self._qm_volume(volid) is None:
            self.disks.drop(Path(record["file"]))

    async def grow_image(self, vm: Any, key: str, volid: str, size: int) -> None:
        file = self._image_file(volid)
        if vm.vmid in self.processes:
            await self._tell(vm.vmid, "block_resize", device=f"drive-{key}", size=size)
        else:
            self.disks.resize(file, size)

    async def _qm_clone(self, v: Values, user: str) -> str:
        source = self.find(v["node"], v["vmid"])
        if source.vmid in self.processes:
            raise PveError(500, f"the double clones no VM that runs: {source.vmid}")
        volumes = [split_drive(source.config[key])[0] for key in sorted(self.drive_keys(source.config))]
        before = _sources.set(iter(volumes))
        try:
            return await super()._qm_clone(v, user)
        finally:
            _sources.reset(before)

    # ------------------------------------------------------------- snapshots

    async def _with_name(self, call: Any, v: Values, user: str) -> str:
        if v.get("vmstate"):
            raise PveError(500, "the double's guests are snapshotted without their memory: leave out vmstate")
        before = _snapshot.set(v["snapname"])
        try:
            upid: str = await call(v, user)
        finally:
            _snapshot.reset(before)
        return upid

    async def _qm_snapshot(self, v: Values, user: str) -> str:
        return await self._with_name(super()._qm_snapshot, v, user)

    async def _qm_snapshot_delete(self, v: Values, user: str) -> str:
        return await self._with_name(super()._qm_snapshot_delete, v, user)

    async def _qm_rollback(self, v: Values, user: str) -> str:
        return await self._with_name(super()._qm_rollback, v, user)

    async def _snapshot_disks(self, vm: Any, live: str, still: Any) -> None:
        name = _snapshot.get()
        for key, file in self._disk_files(vm):
            if vm.vmid in self.processes:
                await self._tell(vm.vmid, live, device=f"drive-{key}", name=name)
            else:
                still(file, name)

    # ----------------------------------------------------------------- power

    async def after_task(self, vm: Any, ttype: str) -> None:
        """Let happen to the guest what the task did to the VM."""
        if ttype in ("qmstop", "qmdestroy", "qmrollback"):
            await self.end(vm.vmid)
        if ttype == "qmsnapshot":
            try:
                await self._snapshot_disks(vm, "blockdev-snapshot-internal-sync", self.disks.snapshot)
            except TaskError:
                vm.snapshots.pop(_snapshot.get(), None)
                raise
        elif ttype == "qmdelsnapshot":
            await self._snapshot_disks(vm, "blockdev-snapshot-delete-internal-sync", self.disks.forget)
        elif ttype == "qmrollback":
            await self._snapshot_disks(vm, "", self.disks.revert)
        elif ttype in ("qmreset", "qmsuspend", "qmresume") and vm.vmid in self.processes:
            await self._tell(vm.vmid, {"qmreset": "system_reset", "qmsuspend": "stop", "qmresume": "cont"}[ttype])
        if vm.status == "running" and vm.vmid not in self.processes:
            await self._launch(vm)
        await super().after_task(vm, ttype)

    async def _launch(self, vm: Any) -> None:
        folder = self.guests_folder / str(vm.vmid)
        folder.mkdir(parents=True, exist_ok=True)
        place = Place(folder.resolve(), self.ssh_base + vm.vmid, self.lab_namespace)
        try:
            drives = [self._drive(folder, vm, *each) for each in disks_of(vm.config)]
            argv = ["qemu-system-x86_64", *arguments(vm.vmid, vm.name, vm.config, drives, place)]
            if on_lab_bridge(vm.config, place):
                self._write_plug(folder, vm)
                argv = ["nsenter", f"--net=/run/netns/{place.lab_namespace}", *argv]
            await self._run(vm, place, argv)
        except (NotEmulated, TaskError) as error:
            vm.status = vm.qmpstatus = "stopped"
            raise TaskError(str(error)) from error

    def _drive(self, folder: Path, vm: Any, key: str, volume: str, cdrom: bool) -> Drive:
        if volume.endswith(("-cloudinit", "-cloudinit.qcow2")):
            return Drive(key, write_seed(folder, vm.name, vm.config).resolve(), True)
        return Drive(key, self._image_file(volume).resolve(), cdrom)

    @staticmethod
    def _write_plug(folder: Path, vm: Any) -> None:
        script = folder / "plug"
        script.write_text(plug_script(vm.vmid, mac_of(str(vm.config["net0"])) or ""), encoding="utf-8")
        script.chmod(0o755)

    async def _run(self, vm: Any, place: Place, argv: list[str]) -> None:
        log = place.folder / "qemu.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,  # one system call between fork and exec
            )
        self.processes[vm.vmid] = process
        watcher = asyncio.create_task(self._watch_guest(vm, process))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        for _ in range(100):
            try:
                await qmp.command(place.socket("qmp"), "query-status", timeout=2)
                break
            except qmp.NoAnswer:
                if process.returncode is not None:
                    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
                    raise TaskError(f"start failed: QEMU exited with code {process.returncode}: {said[-1]}") from None
            await asyncio.sleep(0.1)
        else:
            await self.end(vm.vmid)
            raise TaskError("start failed: QEMU's monitor does not answer")
        reached = {"pid": process.pid, "ssh_host": "127.0.0.1", "ssh_port": place.ssh_port}
        if on_lab_bridge(vm.config, place):
            reached = {"pid": process.pid, "namespace": place.lab_namespace, "tap": f"tap{vm.vmid}i0"}
        (place.folder / "guest.json").write_text(json.dumps(reached) + "\n", encoding="utf-8")

    async def _watch_guest(self, vm: Any, process: asyncio.subprocess.Process) -> None:
        """A guest that powers itself off is a VM that is stopped."""
        await process.wait()
        if self.processes.get(vm.vmid) is process:
            del self.processes[vm.vmid]
            vm.status = vm.qmpstatus = "stopped"
            vm.agent = None
            self.dump_soon()

    async def end(self, vmid: int) -> None:
        """The end of a guest's process, whatever it is doing."""
        process = self.processes.pop(vmid, None)
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _powerdown(self, vm: Any, p: Values) -> str | None:
        """Press the guest's button, and wait as long as the caller said."""
        process = self.processes.get(vm.vmid)
        if process is None:
            note: str | None = await super()._powerdown(vm, p)
            return note
        await self._tell(vm.vmid, "system_powerdown")
        patience = int(p.get("timeout") or self.shutdown_default_timeout)
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), patience)
        except TimeoutError as error:
            if str(p.get("forceStop", "0")) not in ("1", "true", "True"):
                raise TaskError("VM quit/powerdown failed - got timeout") from error
            await self.end(vm.vmid)
        self.processes.pop(vm.vmid, None)
        vm.status = vm.qmpstatus = "stopped"
        return None

    async def _tell(self, vmid: int, execute: str, **arguments_: Any) -> Any:
        try:
            return await qmp.command(self.guests_folder / str(vmid) / "qmp.sock", execute, timeout=60, **arguments_)
        except qmp.NoAnswer as error:
            raise TaskError(f"VM {vmid} qmp command '{execute}' failed - {error}") from error

    # ----------------------------------------------------------------- agent

    async def _agent_call(self, match: Any, values: Values) -> Any:
        """Ask the agent in the guest; what it does not know, or nobody there, is Proxmox's own refusal."""
        vm = self.find(values["node"], values["vmid"])
        command = match.template.rsplit("/", 1)[1]
        if vm.vmid not in self.processes:
            return await super()._agent_call(match, values)
        socket = self.guests_folder / str(vm.vmid) / "qga.sock"
        given: Values = {}
        if command == "exec":
            path, *rest = values["command"]
            given = {"path": path, "arg": rest, "capture-output": True}
        elif command == "exec-status":
            given = {"pid": values["pid"]}
        try:
            answer = await qmp.agent(socket, f"guest-{command}", **given)
        except qmp.NoAnswer as error:
            if "not found" in str(error):
                raise PveError(500, f"Agent error: {error}") from error
            raise PveError(500, "QEMU guest agent is not running") from error
        if command == "exec-status":
            # The agent sends what a command said in base64, Proxmox hands it on as text.
            texts = {key: base64.b64decode(answer[key]).decode(errors="replace") for key in OUTPUTS if key in answer}
            return {**answer, **texts}
        return answer if command == "exec" else {"result": answer}


class EmulatedDouble(GuestsApi, Double):
    """The double with real guests behind it."""
