"""The double: fakepve's server with this package's rooms in front; each request logged and, if asked, broken."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web
from fakepve import FakePve, errors
from fakepve import schema as pve_schema
from fakepve.model import PveError, TaskError
from fakepve.server import API, USER, error, ok, params

from .access import AccessApi
from .accounts import AccountsApi
from .directory import Directory
from .drives import DrivesApi
from .faults import Fault, FaultFileError, Faults
from .machines import MachinesApi
from .node import FLAGS, GIB, NodeApi, pair
from .requestlog import RequestLog, masked
from .state import Dump
from .storage import DownloadApi

Values = dict[str, Any]
NOTE = web.RequestKey("double", dict)  # where a request carries what this module knows of it
LOCK = "backup"  # what Proxmox locks a VM for most often while somebody else works on it
#: Calls that start a task but do not say so in the schema's words.
ALSO_TASKS = frozenset((("POST", "/nodes/{node}/qemu/{vmid}/config"),))


def accept_repeated_lists() -> None:
    """Let a repeated form value stand for a list: Proxmox joins them where the schema says `-list`, fakepve refuses."""
    checked = pve_schema._check
    if getattr(checked, "joins_lists", False):
        return

    def check(sch: Values, val: Any, path: str, errs: Values) -> Any:
        if isinstance(val, list) and str(sch.get("format", "")).endswith("-list"):
            val = ",".join(str(each) for each in val)
        return checked(sch, val, path, errs)

    check.joins_lists = True
    pve_schema._check = check


class Double(AccessApi, AccountsApi, DrivesApi, MachinesApi, NodeApi, DownloadApi, FakePve):
    """One Proxmox VE host, or a cluster of them, that exists only as its API."""

    def __init__(
        self, *, host: str, port: int, state: Path, version: str, nodes: list[str], password: str, faults: Path | None
    ) -> None:
        accept_repeated_lists()
        super().__init__(user="root@pam", password=password, host=host, port=port)
        self.version, self.release_version = version, ".".join(version.split(".")[:2])
        self.directory = Directory(pair(version))
        self.nodes = {name: {"online": True} for name in nodes}
        self.node_interfaces = {}
        self.hardware = {"memory": 64 * GIB, "cpus": 16, "model": "Test double CPU", "flags": FLAGS}
        local = "iso,vztmpl,backup,snippets" + (",import" if pair(version) >= (8, 3) else "")
        self.storages["local"].update(content=local, volumes={})
        self.storages["local-lvm"].update(avail=500 * GIB, total=500 * GIB, volumes={})
        self.images = state / "images"
        self.images.mkdir(parents=True, exist_ok=True)
        self.log = RequestLog(state / "requests.jsonl")
        self.faults = Faults(faults)
        self.dump = Dump(state / "vms")

    # ------------------------------------------------------------- lifecycle

    def _build_app(self) -> web.Application:
        app = super()._build_app()
        app.middlewares.insert(0, self._watch)
        return app

    async def start(self, certfile: Path, keyfile: Path) -> None:
        """Listen; port 0 becomes a free one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certfile, keyfile)
        # Nobody waits for a request that a fault holds when the double is told to end.
        self.runner = web.AppRunner(self._build_app(), access_log=None, shutdown_timeout=0.5)
        await self.runner.setup()
        await web.TCPSite(self.runner, self.host, self.port, ssl_context=context).start()
        self.port = self.port or self.runner.addresses[0][1]
        self.dump.write(self)

    async def stop(self) -> None:
        """End what runs; the files stay."""
        await super().stop()
        self.log.close()

    def dump_soon(self) -> None:
        """A VM may have changed."""
        self.dump.write(self)

    def _sync_directory(self) -> None:
        """Tell the directory which VM and storage is in which pool."""
        self.directory.pools = {
            name: {f"/vms/{vmid}" for vmid in ids} | {f"/storage/{sid}" for sid in self._pool_meta(name)["storage"]}
            for name, ids in self.pools.items()
        }

    # -------------------------------------------------------------- requests

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Number and log the request, whatever becomes of it."""
        note: Values = {"n": self.log.next_number(), "fault": None}
        request[NOTE] = note
        status = 0
        try:
            response: web.StreamResponse = await handler(request)
            status = response.status
        except web.HTTPException as refused:
            status = refused.status
            raise
        finally:
            match = self.resolve(request, API)
            self.log.write(
                n=note["n"],
                method=request.method,
                path=request.path.removeprefix(API),
                template=match.template if match else None,
                parameters=masked(note.get("parameters", {})),
                user=request.get(USER),
                status=note.get("status", status),
                **({"fault": note["fault"]} if note["fault"] else {}),
            )
            if request.method != "GET":
                self.dump.write(self)
        return response

    async def _answer(self, request: web.Request, handler: Any, generic: Any, path_node: str | None) -> Any:
        """An authenticated request: its permissions first, as Proxmox checks them, then a fault, then the answer."""
        match = generic or self.resolve(request, API)
        note = request[NOTE]
        note["parameters"] = await params(request)
        if match and request.method in match.methods:
            values = {**note["parameters"], **match.params}
            info = match.methods[request.method]
            declared = {**(info.get("parameters") or {}).get("properties", {})}
            refusal = self._refusal(request[USER], info.get("permissions"), values, declared)
            if refusal is not None:
                return refusal
        try:
            fault = self.faults.pick(note["n"], request.method, match and match.template, _bare(request.path))
        except FaultFileError as wrong:
            return error(500, str(wrong))
        if fault is None:
            return await super()._answer(request, handler, generic, path_node)

        async def go_on() -> Any:
            return await super(Double, self)._answer(request, handler, generic, path_node)

        return await self._break(fault, request, match, go_on)

    def _refusal(self, user: str | None, rule: Any, values: Values, declared: Values) -> Any:
        if user is None:
            return None
        try:
            self.check_permissions(user, rule, values, declared)
        except PveError as refused:
            return error(refused.status, refused.message, refused.errors)
        return None

    # ---------------------------------------------------------------- faults

    async def _break(self, fault: Fault, request: web.Request, match: Any, go_on: Any) -> Any:
        note = request[NOTE]
        if fault.kind == "failed_task" and not self._starts_task(request, match):
            note["fault"] = "failed_task: not applicable, the call starts no task"
            return await go_on()
        if fault.kind == "lock" and request.method == "GET":
            note["fault"] = "lock: not applicable, the call changes nothing"
            return await go_on()
        self.faults.use(fault)
        note["fault"] = fault.kind
        if fault.kind == "500":
            if fault.done:
                await go_on()
            return error(500, "got no worker upid - start worker failed")
        if fault.kind == "timeout":
            return await self._time_out(fault, request, go_on)
        if fault.kind == "failed_task":
            return ok(await self._fail_task(request, match))
        return await self._under_lock(request, match, go_on)

    @staticmethod
    def _starts_task(request: web.Request, match: Any) -> bool:
        if match is None or request.method not in match.methods:
            return False
        call = (request.method, match.template)
        return call in ALSO_TASKS or pve_schema.is_task(request.method, match.methods[request.method])

    async def _time_out(self, fault: Fault, request: web.Request, go_on: Any) -> web.Response:
        """The connection is held, then closed, and nothing was answered; `done`: though it was done."""
        if fault.done:
            await go_on()
        await asyncio.sleep(fault.hold)
        if request.transport is not None:
            request.transport.abort()
        request[NOTE]["status"] = 0
        return web.Response(status=599)

    async def _fail_task(self, request: web.Request, match: Any) -> Any:
        node = match.params.get("node") or min(self.nodes)

        async def body() -> None:
            raise TaskError("command failed: exit code 1 (fault of the test double)")

        ident = match.params.get("vmid") or request[NOTE]["parameters"].get("vmid", "")
        return await self.task(node, errors.task_type(match.template), ident, request[USER], body)

    async def _under_lock(self, request: web.Request, match: Any, go_on: Any) -> Any:
        """Somebody else holds the lock for as long as the call takes, and lets go after it."""
        vm = self.vm(int(match.params["vmid"])) if match and match.params.get("vmid", "").isdigit() else None
        if vm is None:
            return error(500, _lock_of(match, request[NOTE]["parameters"]))
        held, vm.lock = vm.lock, LOCK
        vm.config["lock"] = LOCK
        try:
            response = await go_on()
            await self._until_ended(response)
        finally:
            if vm.lock == LOCK:
                vm.lock = held
                vm.config.pop("lock", None)
                if held:
                    vm.config["lock"] = held
        return response

    async def _until_ended(self, response: Any) -> None:
        """A task looks at the lock when it runs, which may be after the answer."""
        found = re.search(r'"(UPID:[^"]+)"', getattr(response, "text", None) or "")
        task = self.tasks.get(found[1]) if found else None
        for _ in range(100):
            if task is None or task["status"] != "running":
                return
            await asyncio.sleep(0.05)


def _bare(path: str) -> str:
    return re.sub(r"^/api2/(?:json|extjs)", "", path)


def _lock_of(match: Any, parameters: Values) -> str:
    """What Proxmox says when a file that is not a VM's own cannot be locked."""
    template = match.template if match else ""
    if template == "/nodes/{node}/qemu":
        vmid = parameters.get("vmid", "")
        file = f"/var/lock/qemu-server/lock-{vmid}.conf"
        return f"unable to create VM {vmid} - can't lock file '{file}' - got timeout"
    if "{storage}" in template:
        return f"cfs-lock 'storage-{match.params['storage']}' error: got lock request timeout"
    return "cfs-lock 'file-user_cfg' error: got lock request timeout"
