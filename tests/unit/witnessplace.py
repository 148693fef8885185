"""What the tests of the witness share: ulogd's lines, a log that fails on purpose, the hypervisor's files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from glasslab.frames import HYPERVISOR
from glasslab.search import StoredEvent
from glasslab.verify import verify_session
from glasslab_witness.forwarder import Forwarder, Settings
from glasslab_witness.hec import LogError
from glasslab_witness.packets import Packet, parse

ROOT = Path(__file__).resolve().parents[2]
KEY = Ed25519PrivateKey.generate()
NOW = 1_796_000_000


def line(number: int | None = None, *, verdict: str = "denied", flow: str = "route", **fields: Any) -> str:
    """A line as ulogd writes it."""
    value = {
        "timestamp": f"2026-11-30T03:08:22.{random.randrange(10**6):06}",
        "oob.prefix": f"glasslab {verdict} {flow}",
        "oob.time.sec": NOW,
        "oob.time.usec": 250_000,
        "oob.in": "vmbr1",
        "oob.out": "",
        "oob.family": 2,
        "oob.protocol": 2048,
        "ip.protocol": 17,
        "src_ip": "10.10.10.10",
        "dest_ip": "203.0.113.80",
        "src_port": 40_000,
        "dest_port": 9,
        "mac.saddr.str": "02:10:00:00:00:10",
        **({} if number is None else {"oob.seq.local": number}),
        **fields,
    }
    return json.dumps(value) + "\n"


def packet(**fields: Any) -> Packet:
    return parse(line(**fields).encode())


class Log:
    """Stands for the HEC: takes what comes, or fails; `lose_answer` takes it and says it did not."""

    url = "https://log"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.down = self.lose_answer = False

    def post(self, body: bytes) -> None:
        if self.down:
            raise LogError("down")
        self.bodies.append(body)
        if self.lose_answer:
            raise LogError("no answer")

    def close(self) -> None:
        """Nothing is open."""

    @property
    def stored(self) -> list[StoredEvent]:
        found = []
        for envelope in (json.loads(one) for body in self.bodies for one in body.splitlines()):
            event = envelope["event"]
            raw = json.dumps(event)
            found.append(
                StoredEvent(envelope["time"], envelope["sourcetype"], envelope["source"], "agents", raw, event)
            )
        return found

    def events(self, kind: str = "network.flow") -> list[dict[str, Any]]:
        """The events of a kind, those sent again once."""
        return list({item.raw: item.event for item in self.stored if item.event["kind"] == kind}.values())

    def whole(self) -> bool:
        streams: dict[str, list[StoredEvent]] = {}
        for item in self.stored:
            streams.setdefault(item.event["session_id"], []).append(item)
        return all(verify_session(name, one, {HYPERVISOR: KEY.public_key()}).whole for name, one in streams.items())


class Place:
    """The hypervisor's files in a temporary folder, and forwarders on them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, Log()
        self.flows, self.drift, self.spool = folder / "flows.json", folder / "drift.json", folder / "spool"
        (self.spool / "done").mkdir(parents=True)
        self.flows.touch()
        monkeypatch.setattr("glasslab_witness.forwarder.Hec", lambda *_: self.log)

    def forwarder(self, **settings: Any) -> Forwarder:
        """A forwarder that goes on from what lies on disk."""
        given = {"hec_url": "https://log", "hec_index": "agents", "hec_deadline": 1.0, "window": 10.0} | settings
        given.setdefault("queue_bytes", 1 << 20)
        places = {
            "flows": self.flows,
            "drift": self.drift,
            "spool": self.spool,
            "state": self.folder / "state" / "w.sqlite3",
        }
        return Forwarder(Settings(**given, **places, ca=self.folder / "ca"), "token", KEY)

    def saw(self, *lines: str) -> None:
        with self.flows.open("a", encoding="utf-8") as file:
            file.writelines(lines)


def work(forwarder: Forwarder) -> None:
    """Rounds until there is nothing more to do."""
    while forwarder.read():
        pass
    while forwarder.send():
        pass


def count(log: Log, **wanted: Any) -> int:
    """How many packets the log's flow frames stand for."""
    events = [event for event in log.events() if all(event[name] == value for name, value in wanted.items())]
    return sum(event["count"] for event in events)
