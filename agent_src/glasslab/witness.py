"""What the hypervisor saw against what the sessions say. Pure functions over the events that the log gives back.

Two questions. An allowed flow at a time when nothing was on record that would have used it: a *flow without a frame*.
Calls of the model on record when the hypervisor saw no connection that can have carried them: *frames without a flow*.

Only frames that the hypervisor signed are believed: those that its key signed, and those that they name as the ones
before them. They also say when a receipt was taken, whose probes are flows without a session. The agent's service keeps
a connection to the model open for KEEPALIVE seconds after its last use, so a call may use one that was opened before;
and it opens one ahead when it starts, which is on record as `service.start`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from glasslab.frames import GENESIS, HYPERVISOR, Event, event_hash, verify_event_signature
from glasslab.search import StoredEvent
from glasslab.verify import once, verify_session

if TYPE_CHECKING:  # see frames.py: cryptography is imported where it is used
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEEPALIVE: Final = 30.0
MARGIN: Final = 3600.0
# As the policy names the flow to the model, and, in its open mode, all that goes to the internet.
MODEL_FLOWS: Final = ("model", "internet")
RECEIPT: Final = 60.0  # seconds that the taking of a receipt may last
CLOCKS: Final = 2.0  # seconds that the clocks of the machines may differ
OPENING: Final = 10.0  # seconds after its start in which the service opens its connection to the model


@dataclass(slots=True)
class Comparison:
    """What was found. `denied`, `drifts` and `losses` are shown, the others are findings."""

    unframed: list[StoredEvent] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    denied: list[StoredEvent] = field(default_factory=list)
    drifts: list[StoredEvent] = field(default_factory=list)
    losses: list[StoredEvent] = field(default_factory=list)
    flows: int = 0
    sessions: int = 0
    unjudged: int = 0  # sessions from before there was a witness

    @property
    def agree(self) -> bool:
        """True when hypervisor and sessions tell the same story."""
        return not (self.unframed or self.unseen or self.broken)


def earliest(since: float) -> dict[str, float]:
    """Return from when on each sourcetype is needed to judge from `since` on: sessions and connections open by then,
    and whole streams of the hypervisor's, which begin with a day (UTC).
    """
    before = max(0.0, since - MARGIN)
    return {"agent:network": before - before % 86_400, "agent:session": before, "agent:llm": before}


def compare(
    network: Sequence[StoredEvent],
    sessions: Sequence[StoredEvent],
    calls: Sequence[StoredEvent],
    key: Ed25519PublicKey | None,
    *,
    since: float,
    model_flows: Iterable[str] = MODEL_FLOWS,
    unframed_flows: Iterable[str] = (),
) -> Comparison:
    """Compare the events of `agent:network`, `agent:session` and `agent:llm`.

    It is judged from `since` (epoch seconds) on, or from the hypervisor's first frame of all. The events have to reach
    further back: see `earliest`. `model_flows` are the policy's names of flows that may lead to the model;
    `unframed_flows` are those that no session accounts for.
    """
    found = Comparison()
    found.sessions = sum(item.event.get("kind") == "session.start" and item.time >= since for item in sessions)
    frames = _authentic(network, key, found)
    flows = [item for item in frames if item.event["kind"] == "network.flow" and _is_flow(item.event)]
    allowed = [item for item in flows if item.event["verdict"] == "allowed"]
    found.flows = sum(item.event["last"] >= since for item in allowed)
    before: list[float] = []
    if frames and frames[0].event["kind"] == "network.start" and frames[0].event.get("reason") == "first":
        begun = min(item.time for item in frames)
        found.unjudged = sum(item.event.get("kind") == "session.start" and item.time < begun for item in sessions)
        since = max(since, begun)
        before = [begun]  # a connection may have been opened just before
    found.denied = [item for item in flows if item.event["verdict"] == "denied" and item.event["last"] >= since]
    found.drifts = [item for item in frames if item.event["kind"] == "network.drift" and item.time >= since]
    found.losses = [item for item in frames if item.event["kind"] == "network.lost" and item.time >= since]
    windows = _windows(sessions, calls) + [(at - RECEIPT, at) for at in _receipts(frames)]
    unasked = set(unframed_flows)
    found.unframed = [
        item
        for item in allowed
        if item.event["flow"] not in unasked and item.event["last"] >= since and not _inside(item.event, windows)
    ]
    names = set(model_flows)
    model = [item.event for item in allowed if item.event["flow"] in names]
    seen = {float(event[name]) for event in model for name in ("first", "last")}
    found.unseen = _unseen(sorted(seen.union(before)), calls, since)
    return found


def _authentic(network: Sequence[StoredEvent], key: Ed25519PublicKey | None, found: Comparison) -> list[StoredEvent]:
    """Return the hypervisor's own frames, in order; name every stream that is not whole."""
    if key is None:
        found.broken.append(
            "no public key: VERIFY_KEYS has no hypervisor.pub, so nothing of the hypervisor is believed"
        )
        return []
    streams: dict[str, list[StoredEvent]] = {}
    for item in once(network):
        streams.setdefault(str(item.event.get("session_id")), []).append(item)
    frames: list[StoredEvent] = []
    ends: dict[str, tuple[int, str]] = {}
    starts: list[Event] = []
    for session_id, stored in streams.items():
        report = verify_session(session_id, stored, {HYPERVISOR: key})
        faults = [problem.text for writer in report.writers for problem in writer.problems]
        faults += [problem.text for problem in report.problems]
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            found.broken.append(f"stream {session_id}: {faults[0]}{more}")
        mine = _signed(stored, key)
        frames += mine
        if mine:
            ends[session_id] = (mine[-1].event["seq"], event_hash(mine[-1].event))
            starts += [item.event for item in mine if item.event["kind"] == "network.start"]
    for event in starts:
        before = event.get("previous_session")
        if before in ends and ends[before] != (event.get("previous_seq"), event.get("previous_hash")):
            found.broken.append(f"stream {before}: its end was cut off: {event['session_id']} names a later one")
    return sorted(frames, key=lambda item: item.time)


def _signed(stored: Iterable[StoredEvent], key: Ed25519PublicKey) -> list[StoredEvent]:
    """Return the frames that the key signed, and those that they stand behind by hash, in their order."""
    by_hash: dict[str, StoredEvent] = {}
    for item in stored:
        try:
            by_hash[event_hash(item.event)] = item
        except (ValueError, RecursionError):
            continue  # no writer can have sent it
    good: dict[str, StoredEvent] = {}
    for name, item in by_hash.items():
        if name in good or "sig" not in item.event or not verify_event_signature(item.event, key):
            continue
        link = name
        while link != GENESIS and link in by_hash and link not in good:
            good[link] = by_hash[link]
            link = str(by_hash[link].event.get("prev"))
    return sorted(good.values(), key=lambda item: int(item.event["seq"]))


def _is_flow(event: Mapping[str, Any]) -> bool:
    return all(isinstance(event.get(name), int | float) for name in ("first", "last", "count"))


def _windows(sessions: Sequence[StoredEvent], calls: Sequence[StoredEvent]) -> list[tuple[float, float]]:
    """Return from when to when each session was open. One without an end lasts until its last call of the model."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for item in sessions:
        session, kind = str(item.event.get("session_id")), item.event.get("kind")
        if kind in ("session.start", "service.start"):
            begun.setdefault(session, item.time)
        if kind in ("session.end", "service.start"):
            until = item.time + (OPENING if kind == "service.start" else 0)
            ended[session] = max(until, ended.get(session, 0))
    last: dict[str, float] = {}
    for item in calls:
        session = str(item.event.get("session_id"))
        last[session] = max(item.time, last.get(session, 0))
    return [
        (start - CLOCKS, ended.get(session, max(start, last.get(session, start))) + CLOCKS)
        for session, start in sorted(begun.items())
    ]


def _receipts(frames: Iterable[StoredEvent]) -> list[float]:
    """Return when each receipt on record was judged; its probes came before."""
    found = []
    for item in frames:
        if item.event["kind"] == "network.receipt":
            receipt = item.event.get("receipt")
            said = str(receipt.get("time")) if isinstance(receipt, dict) else ""
            try:
                at = datetime.fromisoformat(said).timestamp()
            except (ValueError, OverflowError):
                at = item.time
            found.append(min(at, item.time))
    return found


def _inside(event: Mapping[str, Any], windows: Iterable[tuple[float, float]]) -> bool:
    """Whether a flow's first and last packet each fell into the time of a session."""
    return all(any(start <= event[name] <= end for start, end in windows) for name in ("first", "last"))


def _unseen(flows: Sequence[float], calls: Sequence[StoredEvent], since: float) -> list[str]:
    """Return the sessions with a call that no connection can have carried, in the order of their calls."""
    spans = []
    for item in calls:
        if item.event.get("kind") == "llm":
            duration = item.event.get("duration_ms")
            spans.append((item.time - (duration if isinstance(duration, int | float) else 0) / 1000, item))
    spans.sort(key=lambda span: span[0])
    unseen: dict[str, None] = {}
    warm = 0.0  # until when some connection to the model may still be open
    for began, item in spans:
        opened = [moment for moment in flows if moment <= item.time + CLOCKS]
        if opened:
            warm = max(warm, opened[-1] + KEEPALIVE + CLOCKS)
        if began <= warm:
            warm = max(warm, item.time + KEEPALIVE + CLOCKS)
        elif item.time >= since:
            unseen[str(item.event.get("session_id"))] = None
    return list(unseen)
