"""Record, then act: one POST a commit, acknowledged (HTTP 200 and code 0) within the deadline, or LoggingError.

Use: `Recorder(hec, component, signing_key, trace=...)` once a process, `.open(session_id)` once a session, then
`.commit(frame(...), frame(...))` before each action, or `.note(...)` and `.act(action, frame(...))`, which are built
on it. A commit blocks; in an event loop call it from a thread, unless the process serves one session only. Nothing is
ever queued in the background, dropped or sent twice.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from glasslab.frames import ENDS, KINDS, Chain, Event, Frame, canonical_json
from glasslab.hec import HecConnection
from glasslab.hec_errors import LoggingError
from glasslab.settings import HecSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["LoggingError", "Recorder", "SessionRecorder"]

MAX_IDLE_CONNECTIONS: Final = 8


class Observer(Protocol):
    """Sees what the log has acknowledged: beside the record, never in its place."""

    def observe(self, events: Sequence[Event]) -> None:
        """Take the events of one acknowledged commit. Never raises and never waits."""

    def close(self) -> None:
        """Be done with it."""


class Recorder:
    """One writer's way to the log; shared by its sessions, safe for several threads, usable after a fork."""

    def __init__(
        self, hec: HecSettings, component: str, signing_key: Ed25519PrivateKey | None = None, *, trace: bool = False
    ) -> None:
        """`hec` holds URL, token, CA, index, deadline (seconds) and kind of ack; `component` is `agent` or `mcp`.

        `trace` True sends trace frames too (`LAB_TRACE=full`); False leaves them out of every commit.
        """
        self.hec = hec
        self.component = component
        self.trace = trace
        self.observer: Observer | None = None
        self._signing_key = signing_key
        self._idle: list[HecConnection] = []
        self._lock = threading.Lock()

    def open(self, session_id: str, clock: int = 0, parent: Mapping[str, Any] | None = None) -> SessionRecorder:
        """Begin one session's chain. `clock` is the highest Lamport value heard so far (0 for the agent).

        `parent` says whose delegate the session is (vocabulary.PARENT_FIELDS).
        """
        chain = Chain(session_id, self.component, self._signing_key, clock, parent)
        return SessionRecorder(self, chain)

    def warm(self, connections: int = 1) -> bool:
        """Open connections ahead (TLS included); return whether the log answered. Never raises. Call after a fork."""
        made = [HecConnection(self.hec) for _ in range(connections)]
        answered = [connection.warm() for connection in made]
        for connection in made:
            self.give_back(connection)
        return all(answered)

    def take(self) -> HecConnection:
        """Return an idle connection, or a new one; SessionRecorder's side."""
        with self._lock:
            return self._idle.pop() if self._idle else HecConnection(self.hec)

    def give_back(self, connection: HecConnection) -> None:
        """Keep a working connection for the next session; SessionRecorder's side."""
        with self._lock:
            if not connection.broken and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self.observer is not None:
            self.observer.close()


class SessionRecorder:
    """One session's chain and its connection. After a failed commit every later one raises the same error."""

    def __init__(self, recorder: Recorder, chain: Chain) -> None:
        """Use `Recorder.open`."""
        self._recorder = recorder
        self._chain = chain
        self._connection = recorder.take()
        self._host = socket.gethostname()
        self._last_time = 0  # microseconds since the epoch
        self._failure: LoggingError | None = None
        self._noted: list[Frame] = []
        self.on_acknowledged: Callable[[Event], None] | None = None  # told of each event that the log has taken

    @property
    def session_id(self) -> str:
        """The session that is recorded."""
        return self._chain.session_id

    @property
    def clock(self) -> int:
        """The Lamport clock: the value of the frame recorded or heard last."""
        return self._chain.clock

    @property
    def head(self) -> str:
        """The hash of the frame recorded last."""
        return self._chain.position[1]

    @property
    def failure(self) -> LoggingError | None:
        """The error that ended this session's recording, if one did."""
        return self._failure

    def merge(self, remote: object) -> None:
        """Lift the clock to the other writer's value; anything but a positive integer is ignored."""
        if type(remote) is int and 0 < remote < 1 << 53:
            self._chain.merge(remote)

    def commit(self, *frames: Frame) -> None:
        """Record the frames in one POST and return once it is acknowledged; only then may their action happen.

        In summary mode trace frames are left out, and a commit with nothing left is skipped. Raises LoggingError.
        """
        if self._failure is not None:
            raise self._failure
        kept = [item for item in frames if self._recorder.trace or not KINDS[item["kind"]].is_trace]
        if not kept:
            return
        events = self._chain.seal(kept)
        body = self._body(events)
        try:
            self._connection.post(body, last=any(item["kind"] in ENDS for item in kept))
        except LoggingError as error:
            self._failure = error
            raise
        if self._recorder.observer is not None:
            self._recorder.observer.observe(events)
        if self.on_acknowledged is not None:
            for event in events:
                self.on_acknowledged(event)

    def note(self, *frames: Frame) -> None:
        """Keep frames for the next commit: what happened, and releases nothing by itself."""
        self._noted.extend(frames)

    def act[T](self, action: Callable[[], T], *frames: Frame) -> T:
        """Record what was noted and these frames; once they are acknowledged, and only then, do the action."""
        noted, self._noted = self._noted, []
        self.commit(*noted, *frames)
        return action()

    def close(self) -> None:
        """Hand the connection back. Records nothing. A writer without an end of its own settles here what is open."""
        if self._failure is None:
            try:
                self._connection.settle()
            except LoggingError as error:  # what it would have withheld has happened: it can only be said
                print(f"glasslab: session {self.session_id}: accepted, and not indexed: {error}", file=sys.stderr)
        self._recorder.give_back(self._connection)

    def _body(self, events: Sequence[Event]) -> bytes:
        """Return the POST's body: concatenated envelopes, each event in the very bytes that were hashed."""
        source = f"glasslab:{self._recorder.component}"
        parts = []
        for event in events:
            # HEC keeps microseconds; strictly rising times make `sort 0 _time` the order in which frames were written.
            # Whole numbers: a float that grows by a microsecond at a time, while the clock stands back, falls behind.
            self._last_time = max(int(time.time() * 1_000_000), self._last_time + 1)
            envelope = canonical_json(
                {
                    "host": self._host,
                    "source": source,
                    "sourcetype": KINDS[event["kind"]].sourcetype,
                    "index": self._recorder.hec.index,
                }
            )
            when = b"%d.%06d" % divmod(self._last_time, 1_000_000)
            parts.append(b'{"time":%s,%s,"event":%s}' % (when, envelope[1:-1], canonical_json(event)))
        return b"\n".join(parts)
