"""A Proxmox VE API to test against: the double that a test starts, or a live host that somebody named."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from proxmoxer import ProxmoxAPI

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30
END_SECONDS = 20
# What a client may ask as often as it likes: everything else is taken for a change.
READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Token:
    """An API token: user@realm, the token's own name, and the secret."""

    user: str
    name: str
    secret: str


@dataclass(frozen=True)
class Host:
    """Where an API is, how it is verified, and the node whose machines are looked at."""

    address: str
    port: int
    ca: str
    token: Token
    node: str

    def api(self) -> ProxmoxAPI:
        """A client with this host's token, TLS verified."""
        return ProxmoxAPI(
            self.address,
            port=self.port,
            user=self.token.user,
            token_name=self.token.name,
            token_value=self.token.secret,
            verify_ssl=self.ca or True,
            timeout=30,
        )


class Double:
    """The test double as a process of its own, with its record of requests and its faults."""

    def __init__(self, state: Path, *options: str) -> None:
        """Start it on a free port; it is ready when this returns. Raises RuntimeError with what it said instead."""
        self.state = state
        self.fault_file = state / "faults.json"
        state.mkdir(parents=True, exist_ok=True)
        self.log = state / "double.log"
        command = [sys.executable, "-m", "double", "--host", "127.0.0.1", "--port", "0", "--state", str(state)]
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*command, "--faults", str(self.fault_file), *options],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT / "molecule" / "proxmox")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.ready = self._ready()
        self.host = host_of(self.ready)

    def _ready(self) -> dict[str, Any]:
        stream = self.process.stdout
        assert stream is not None
        found, _, _ = select.select([stream], [], [], START_SECONDS)
        line = stream.readline() if found else ""
        if not line.strip():
            self.stop()
            raise RuntimeError(f"the double did not start:\n{self.log.read_text(encoding='utf-8')[-2000:]}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    def stop(self) -> None:
        """End it and its guests."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Double:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """Its record of requests after the first `since`, in their order."""
        return requests_of(self.state, since)

    def count(self) -> int:
        """How many requests it has recorded."""
        return len(self.requests())

    def fault(self, at: int | str, kind: str, **more: Any) -> None:
        """Fail the request with this number, or the next one to 'METHOD template'."""
        write_atomically(self.fault_file, json.dumps({"at": at, "kind": kind} | more))

    def heal(self) -> None:
        """No fault from now on."""
        self.fault_file.unlink(missing_ok=True)


def host_of(ready: dict[str, Any]) -> Host:
    """The API that a double's ready line describes, as its administrator."""
    root = ready["root"]
    token = Token(root["user"], root["id"], root["secret"])
    return Host(ready["host"], int(ready["port"]), ready["ca"], token, ready["node"])


def requests_of(state: Path, since: int = 0) -> list[dict[str, Any]]:
    """The record of requests in a double's state directory."""
    file = state / "requests.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines[since:]]


def writing(requests: list[dict[str, Any]]) -> list[str]:
    """Those that change something, as 'METHOD path'."""
    return [f"{one['method']} {one['path']}" for one in requests if one["method"] not in READING]


def write_atomically(file: Path, text: str) -> None:
    """A reader sees the old text or the new one, never half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


@contextmanager
def double(state: Path, *options: str) -> Iterator[Double]:
    """A double for the time of a block; its directory goes with it when the block succeeds."""
    with Double(state, *options) as one:
        yield one
    shutil.rmtree(state)


def machines(api: ProxmoxAPI) -> dict[int, dict[str, Any]]:
    """Every virtual machine and template of the cluster by id: what the list says that does not move by itself."""
    steady = ("node", "name", "tags", "template", "status", "pool", "lock")
    return {
        int(one["vmid"]): {key: one[key] for key in steady if key in one}
        for one in api.cluster.resources.get(type="vm")
        if one["type"] == "qemu"
    }


def states(state: Path, vmids: Iterable[int] | None = None) -> dict[int, bytes]:
    """Each machine's whole state as the double writes it, byte for byte."""
    found = {int(file.stem): file.read_bytes() for file in sorted((state / "vms").glob("*.json"))}
    return {vmid: text for vmid, text in found.items() if vmids is None or vmid in vmids}


def everything(api: ProxmoxAPI) -> dict[int, str]:
    """The machines' state as far as the API shows it, one canonical JSON text each: what a live host can be asked."""
    found = {}
    for vmid, listed in machines(api).items():
        guest = api.nodes(listed["node"]).qemu(vmid)
        parts = {"listed": listed, "config": guest.config.get(), "snapshots": guest.snapshot.get()}
        found[vmid] = json.dumps(parts, sort_keys=True)
    return found


def volumes(api: ProxmoxAPI, node: str) -> set[str]:
    """Every volume on the node's storages."""
    return {
        str(volume["volid"])
        for storage in api.nodes(node).storage.get()
        for volume in api.nodes(node).storage(storage["storage"]).content.get()
    }
