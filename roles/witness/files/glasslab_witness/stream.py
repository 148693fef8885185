"""The hypervisor's own chain in the log: a new stream each day, each naming the last frame of the one before."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from glasslab.frames import HYPERVISOR, KINDS, WITNESS_PREFIX, Chain, Event, Frame, canonical_json, frame

STEP = 0.000001  # the log keeps microseconds, and orders by them


class Stream:
    """Seals frames into the bytes of one POST.

    Its state has to be saved in one step with what it sealed; a process that could not save has to end, and the next
    one goes on from what was saved.
    """

    def __init__(self, key: Ed25519PrivateKey, index: str, window: float, state: dict[str, Any] | None) -> None:
        """Go on where `state` says; without one a first stream begins with the first frame."""
        self._key, self._index, self._window = key, index, window
        self._state = state or {"session": "", "day": "", "seq": 0, "prev": "", "time": 0.0}
        self._host = socket.gethostname()

    @property
    def state(self) -> dict[str, Any]:
        """What another process needs to go on with."""
        return dict(self._state)

    def seal(self, frames: Sequence[Frame]) -> tuple[bytes, list[Event]]:
        """Return the body of a POST and the events in it, signed as one commit."""
        state = self._state
        now = time.time()
        day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
        if day > state["day"]:  # a clock that was set back begins no second stream of an earlier day
            frames = [self._begin(day), *frames]
        chain = Chain(state["session"], HYPERVISOR, self._key, state["seq"])
        if state["seq"]:
            chain.resume(state["seq"], state["prev"])
        sealed = chain.seal(frames)
        state["seq"], state["prev"] = chain.position
        parts = []
        for event in sealed:
            # Both are whole microseconds: two times that differ by less are printed alike.
            state["time"] = max(round(now, 6), round(state["time"] + STEP, 6))
            parts.append(self._envelope(event, state["time"]))
        return b"\n".join(parts), sealed

    def _begin(self, day: str) -> Frame:
        state = self._state
        begun = frame(
            "network.start",
            step=0,
            reason="day" if state["session"] else "first",
            previous_session=state["session"] or None,
            previous_seq=state["seq"] or None,
            previous_hash=state["prev"] or None,
            window_seconds=self._window,
        )
        state |= {"session": f"{WITNESS_PREFIX}{day}-{secrets.token_hex(6)}", "day": day, "seq": 0, "prev": ""}
        return begun

    def _envelope(self, event: Event, when: float) -> bytes:
        about = canonical_json(
            {
                "host": self._host,
                "source": f"glasslab:{HYPERVISOR}",
                "sourcetype": KINDS[event["kind"]].sourcetype,
                "index": self._index,
            }
        )
        return b'{"time":%.6f,%s,"event":%s}' % (when, about[1:-1], canonical_json(event))
