"""The forwarder: reads what was seen, seals it, keeps it on disk, and sends it as the log takes it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from glasslab.frames import Frame, frame
from glasslab_witness.aggregate import Aggregator
from glasslab_witness.hec import Hec, LogError
from glasslab_witness.outbox import Batch, Outbox
from glasslab_witness.packets import LineError, parse
from glasslab_witness.spool import Dropped, Spool
from glasslab_witness.stream import Stream
from glasslab_witness.tail import Tail

POLL_SECONDS = 0.25
LONGEST_WAIT = 5.0  # between two attempts while the log is away
DISK_SECONDS = 1.0  # between two attempts to keep what was seen
MOST_FRAMES = 200  # in one POST
MOST_DRIFTS = 20  # lines of the watcher's that get a frame each, in one window; the others are counted
LARGEST_DRIFT = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """settings.json; paths and seconds as in roles/witness."""

    hec_url: str
    hec_index: str
    hec_deadline: float
    window: float
    queue_bytes: int
    flows: Path = Path("/var/log/glasslab/flows.json")
    drift: Path = Path("/var/log/glasslab/drift.json")
    spool: Path = Path("/var/spool/glasslab")
    ca: Path = Path("/etc/glasslab/witness/ca.crt")
    state: Path = Path("/var/lib/glasslab/witness/witness.sqlite3")

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read the file. Raises OSError, ValueError and TypeError."""
        given = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{k: Path(v) if k in ("flows", "drift", "spool", "ca", "state") else v for k, v in given.items()})


class Forwarder:
    """One round after the other: read, seal and save; send what waits."""

    def __init__(self, settings: Settings, token: str, key: Ed25519PrivateKey) -> None:
        """Go on where the last process left off."""
        self.settings, self._key = settings, key
        self.outbox = Outbox(settings.state)
        self.spool = Spool(settings.spool)
        self.hec = Hec(settings.hec_url, token, settings.ca, settings.hec_deadline)
        self._retry = self._wait = 0.0
        self._taken: Batch | None = None  # by the log; on disk it still waits
        self._said = ""
        self._resume()

    def _resume(self) -> None:
        """Take up what was saved last: what is in memory beside it, nobody would know of."""
        saved, settings = self.outbox.state(), self.settings
        self.stream = Stream(self._key, settings.hec_index, settings.window, saved.get("stream"))
        self.counting = Aggregator(settings.window)
        self.counting.restore(saved.get("counting", []))
        self.flows = Tail(settings.flows).resumed(saved.get("flows"))
        self.drift = Tail(settings.drift).resumed(saved.get("drift"))
        self.number: int | None = saved.get("number")
        self.lost: dict[str, int] = saved.get("lost", {})
        self.drifts: dict[str, float] = saved.get("drifts", {"since": 0.0, "count": 0})
        self.spooled: dict[str, str] = saved.get("spooled", {})

    def run(self, stopping: list[int]) -> None:
        """Work until something is put into `stopping`; what is then being counted stays for the next process."""
        while not stopping:
            try:
                busy = self.read()
            except (OSError, sqlite3.Error) as error:
                self._say(f"{self.settings.state} cannot be written ({error}): make room; flows wait in their file")
                self._resume()
                time.sleep(DISK_SECONDS)
                continue
            busy = self.send() or busy
            if not busy:
                time.sleep(POLL_SECONDS)
        self.hec.close()
        self.outbox.close()

    def read(self) -> bool:
        """One round of reading, on disk when it returns; return whether there is more to read already."""
        before = (self.flows.position, self.drift.position)
        frames = [*self._packets(), *self._drifts()]
        frames += [frame("network.flow", step=0, **fields) for fields in self.counting.due(time.time())]
        self._queue(frames, self._receipts(), moved=(self.flows.position, self.drift.position) != before)
        return self.flows.more or self.drift.more

    def send(self) -> bool:
        """Send what waits longest, unless the log is being given time; return whether it was taken."""
        if time.monotonic() < self._retry:
            return False
        batch = self._taken or self.outbox.oldest()
        if batch is None:
            return False
        try:
            if batch is not self._taken:
                self.hec.post(batch.body)
                self._answer(batch)
            self._taken = batch
            self.outbox.sent(batch)
        except LogError as error:
            self._later(f"the log at {self.hec.url} does not take what the hypervisor saw: {error}; it waits on disk")
            return False
        except sqlite3.Error as error:
            # Sent again each time, it would fill the log.
            self._later(f"{self.settings.state} cannot be written ({error}): make room; nothing is sent meanwhile")
            return False
        self._taken = None
        self._wait = 0.0
        self._say("the log takes what the hypervisor saw")
        return True

    def _later(self, why: str) -> None:
        self._wait = min(LONGEST_WAIT, self._wait * 2 or 0.5)
        self._retry = time.monotonic() + self._wait
        self._say(why)

    def _answer(self, batch: Batch) -> None:
        """Tell who dropped receipts that they are in the log; what cannot be told is no reason to send them again."""
        for name, session, seq, event_id in batch.receipts:
            said = {"session_id": session, "seq": seq, "event_id": event_id, "acknowledged": True}
            try:
                self.spool.answer(name, said)
            except OSError as error:
                self._say(f"{self.spool.done}: {error.strerror}: {name} is in the log, and nobody is told so")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"glasslab-witness: {text}", file=sys.stderr, flush=True)

    def _lines(self, tail: Tail) -> list[bytes]:
        try:
            lines = tail.read()
        except OSError as error:
            self._say(f"{tail.path} cannot be read ({error.strerror}); check its owner and mode")
            return []
        if tail.gap:
            tail.gap = False
            self._lose("lines", f"{tail.path.name} was rotated away unread", 0)
        return lines

    def _lose(self, what: str, reason: str, count: int) -> None:
        key = f"{what}: {reason}"
        self.lost[key] = self.lost.get(key, 0) + count

    def _packets(self) -> list[Frame]:
        frames = []
        for line in self._lines(self.flows):
            try:
                packet = parse(line)
            except LineError as error:
                self._lose("lines", f"flows.json: {error}", 1)
                continue
            if packet.number is not None:
                # The kernel numbers what it hands out: a gap is what nobody here got. It begins at 0 with its reader.
                if self.number is not None and packet.number > self.number + 1:
                    self._lose("packets", "more than kernel or file could hold", packet.number - self.number - 1)
                self.number = packet.number
            fields = self.counting.add(packet)
            if fields is not None:
                frames.append(frame("network.flow", step=0, **fields))
        return frames

    def _drifts(self) -> list[Frame]:
        frames = []
        now = time.time()
        if abs(now - self.drifts["since"]) >= self.settings.window:
            if self.drifts["count"] > MOST_DRIFTS:
                more = int(self.drifts["count"]) - MOST_DRIFTS
                frames.append(frame("network.drift", step=0, drift={"what": "more of the same window"}, count=more))
            self.drifts = {"since": now, "count": 0}
        for line in self._lines(self.drift):
            self.drifts["count"] += 1
            if self.drifts["count"] > MOST_DRIFTS:
                continue
            try:
                said = json.loads(line) if len(line) <= LARGEST_DRIFT else None
            except (ValueError, RecursionError):
                said = None
            drift = said if isinstance(said, dict) else {"text": line[:LARGEST_DRIFT].decode("utf-8", "replace")}
            frames.append(frame("network.drift", step=0, drift=drift, count=1))
        return frames

    def _receipts(self) -> list[Dropped]:
        self.spool.sweep()
        dropped = []
        for item in self.spool.waiting():
            # Sealed already: by a process that was killed before it could remove the file, or where none can.
            if self.spooled.get(item.path.name) != item.tag:
                dropped.append(item)
            else:
                self.spool.remove(item.path)
        return dropped

    def _queue(self, frames: list[Frame], dropped: list[Dropped], *, moved: bool) -> None:
        """Seal and save in one step; what the bounded queue cannot hold is counted instead."""
        if self.outbox.bytes >= self.settings.queue_bytes:
            if frames:
                self._lose("frames", "the queue was full while the log was away", len(frames))
            frames, dropped = [], []  # receipts stay in the spool
        else:
            frames = [*self._losses(), *frames]
        if not (frames or dropped or moved):
            return
        queued: list[tuple[bytes, list[Any]]] = []
        for start in range(0, len(frames), MOST_FRAMES):
            body, _ = self.stream.seal(frames[start : start + MOST_FRAMES])
            queued.append((body, []))
        for item in dropped:  # one POST each: a receipt may be large
            name = item.path.name
            body, events = self.stream.seal(
                [frame("network.receipt", step=0, name=name, sha256=item.sha256, receipt=item.receipt)]
            )
            queued.append((body, [[name, *(events[-1][field] for field in ("session_id", "seq", "event_id"))]]))
        there = {name: tag for name, tag in self.spooled.items() if (self.settings.spool / name).exists()}
        self.spooled = there | {item.path.name: item.tag for item in dropped}
        self.outbox.save(self._state(), queued)
        for item in dropped:
            self.spool.remove(item.path)

    def _losses(self) -> list[Frame]:
        lost, self.lost = self.lost, {}
        named = [(*key.split(": ", 1), count or None) for key, count in lost.items()]
        return [
            frame("network.lost", step=0, what=what, reason=reason, count=count or None)
            for what, reason, count in named
        ]

    def _state(self) -> dict[str, Any]:
        return {
            "stream": self.stream.state,
            "spooled": self.spooled,
            "counting": self.counting.state(),
            "flows": self.flows.position.state(),
            "drift": self.drift.position.state(),
            "number": self.number,
            "lost": self.lost,
            "drifts": self.drifts,
        }


def main(settings_path: Path) -> int:
    """Run until SIGTERM; return 0, or 2 with one line when the configuration cannot be used."""
    credentials = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/etc/glasslab/hypervisor"))
    try:
        settings = Settings.load(settings_path)
        token = (credentials / "hec_token").read_text(encoding="utf-8").strip()
        key = load_pem_private_key((credentials / "signing_key").read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{credentials / 'signing_key'} is not Ed25519")
        forwarder = Forwarder(settings, token, key)
    except (OSError, ValueError, TypeError) as error:
        print(f"glasslab-witness: cannot start: {error}; run playbooks/witness.yml", file=sys.stderr)
        return 2
    except sqlite3.Error as error:
        remedy = "make room there; where it is damaged, move it away: what waits in it is lost"
        print(f"glasslab-witness: cannot start: {settings.state}: {error}: {remedy}", file=sys.stderr)
        return 2
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda caught, _: stopping.append(caught))
    try:
        forwarder.run(stopping)
    except KeyboardInterrupt:
        return 0
    except sqlite3.Error as error:  # what was saved cannot be read, either
        print(f"glasslab-witness: {settings.state}: {error}: mend that; it is tried again", file=sys.stderr)
        return 1
    return 0
