"""The test double of the Proxmox API, run within the test's own process on a free port of the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

sys.path.append(str(Path(__file__).resolve().parents[2] / "molecule" / "proxmox"))

from double import certificates
from double.__main__ import arguments, build, token_of

QCOW2 = b"QFI\xfb" + bytes(20) + (3 << 30).to_bytes(8, "big") + b"a small image that says it is 3 GiB"
SHA512 = hashlib.sha512(QCOW2).hexdigest()


class Refused(Exception):
    """What the API answered instead of data."""

    def __init__(self, status: int, reason: str, errors: dict[str, str]) -> None:
        super().__init__(f"{status} {reason} {errors}")
        self.status, self.reason, self.errors = status, reason, errors


class Place:
    """A running double and somebody who calls it."""

    def __init__(
        self, double: Any, loop: asyncio.AbstractEventLoop, state: Path, faults: Path, token: dict[str, str]
    ) -> None:
        self.double, self.loop, self.state, self.faults = double, loop, state, faults
        self.session = requests.Session()
        self.session.trust_env = False  # a REQUESTS_CA_BUNDLE would outdo the line below
        self.session.verify = str(state / "ca.pem")
        self.token = f"{token['user']}!{token['id']}={token['secret']}"

    def call(self, method: str, path: str, token: str | None = None, /, timeout: float = 5, **given: Any) -> Any:
        """One call with a token; its data, or Refused."""
        values = {key.replace("__", "-"): value for key, value in given.items()}
        answer = self.session.request(
            method,
            f"{self.double.url}/api2/json{path}",
            headers={"Authorization": f"PVEAPIToken={token or self.token}"},
            timeout=timeout,
            **({"params": values} if method in ("GET", "DELETE") else {"data": values}),
        )
        if answer.status_code != 200:
            body = answer.json() if answer.text else {}
            raise Refused(answer.status_code, answer.reason, body.get("errors") or {})
        return answer.json()["data"]

    def task(self, method: str, path: str, /, **given: Any) -> str:
        """The exit status of the task that a call starts."""
        upid = self.call(method, path, **given)
        return str(self.call("GET", f"/nodes/pve/tasks/{upid}/status")["exitstatus"])

    def stop(self) -> None:
        """End the double before its time."""
        asyncio.run_coroutine_threadsafe(self.double.stop(), self.loop).result(10)

    def log(self) -> list[dict[str, Any]]:
        """The requests that were made so far."""
        return [json.loads(line) for line in (self.state / "requests.jsonl").read_text().splitlines()]

    def states(self) -> dict[str, bytes]:
        """Each VM's whole state, byte by byte."""
        return {file.name: file.read_bytes() for file in sorted((self.state / "vms").glob("*.json"))}

    def break_(self, **fault: Any) -> None:
        """Write the fault file."""
        self.faults.write_text(json.dumps(fault))

    def somebody(self, name: str, *privileges: str, path: str = "/", privsep: bool = False) -> str:
        """A new user with these privileges at a path; a token of theirs."""
        self.call("POST", "/access/roles", roleid=f"Role{name}", privs=",".join(privileges))
        self.call("POST", "/access/users", userid=f"{name}@pve")
        self.call("PUT", "/access/acl", path=path, roles=f"Role{name}", users=f"{name}@pve")
        made = self.call("POST", f"/access/users/{name}@pve/token/tok", privsep=int(privsep))
        return f"{made['full-tokenid']}={made['value']}"

    def image(self) -> None:
        """A Debian image on storage `local`, to import from."""
        (self.double.images / "debian.qcow2").write_bytes(QCOW2)
        done = self.task(
            "POST",
            "/nodes/pve/storage/local/download-url",
            url="https://images.example/debian.qcow2",
            content="import",
            filename="debian.qcow2",
            checksum=SHA512,
            checksum__algorithm="sha512",
        )
        assert done == "OK"

    def vm(self, vmid: int = 100, **config: Any) -> str:
        """A VM as the lab makes them; the exit status of its task."""
        given = {
            "name": f"vm{vmid}",
            "scsi0": "local-lvm:0,import-from=local:import/debian.qcow2",
            "scsihw": "virtio-scsi-single",
            "ide2": "local-lvm:cloudinit",
            "net0": "virtio,bridge=vmbr1",
            "boot": "order=scsi0",
            **config,
        }
        return self.task("POST", "/nodes/pve/qemu", vmid=vmid, **given)

    def template(self, vmid: int = 100) -> None:
        """A VM made into a template."""
        self.image()
        assert self.vm(vmid) == "OK"
        assert self.task("POST", f"/nodes/pve/qemu/{vmid}/template") == "OK"

    def config(self, vmid: int) -> dict[str, Any]:
        """A VM's configuration."""
        return dict(self.call("GET", f"/nodes/pve/qemu/{vmid}/config"))


@contextlib.contextmanager
def running(folder: Path, *options: str, seed: dict[str, Any] | None = None) -> Iterator[Place]:
    """A double with these command line options, for as long as the block lasts."""
    state, faults = folder / "state", folder / "faults.json"
    words = ["--port", "0", "--state", str(state), "--faults", str(faults), *options]
    if seed is not None:
        (folder / "seed.json").write_text(json.dumps(seed))
        words += ["--seed", str(folder / "seed.json")]
    double = build(arguments().parse_args(words), "a root password")
    _, certificate, key = certificates.make(state, "127.0.0.1")
    token = token_of(double, "glasslab@pve!lab")
    assert token is not None
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(double.start(certificate, key), loop).result(10)
        place = Place(double, loop, state, faults, token)
        with place.session:
            yield place
        place.stop()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
