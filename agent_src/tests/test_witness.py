"""The hypervisor's streams verified, and what it saw compared with what the sessions say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from glasslab.frames import AGENT, HYPERVISOR, Chain, Event, Frame, event_hash, frame
from glasslab.search import StoredEvent
from glasslab.verify import verify_session
from glasslab.witness import Comparison, compare, earliest

KEY = Ed25519PrivateKey.generate()
DAY = 20_000 * 86_400.0
STREAM = "hypervisor-20241004-0a"


def stored(event: Event, time: float, sourcetype: str = "agent:network") -> StoredEvent:
    return StoredEvent(time, sourcetype, "glasslab:x", "agents", json.dumps(event), event)


def flow(
    at: float, *, verdict: str = "allowed", name: str = "model", until: float | None = None, count: int = 1
) -> Frame:
    ends = {"source": "10.10.10.10", "source_port": 40_000, "destination": "203.0.113.10", "destination_port": 443}
    about = {"in": "vmbr1", "out": None, "source_mac": "02:10:00:00:00:10", "protocol": "tcp"}
    seen = {"count": count, "first": DAY + at, "last": DAY + (at if until is None else until)}
    return frame("network.flow", step=0, verdict=verdict, flow=name, **ends, **about, **seen)


def start(reason: str = "day", before: tuple[str, int, str] | None = None) -> Frame:
    session, seq, last = before or (None, None, None)
    previous = {"previous_session": session, "previous_seq": seq, "previous_hash": last}
    return frame("network.start", step=0, reason=reason, **previous, window_seconds=10.0)


def stream(*frames: Frame, name: str = STREAM, key: Ed25519PrivateKey = KEY, at: float = 0) -> list[StoredEvent]:
    """The stream as the log holds it: the frames in commits of two, one second after what they tell of."""
    chain = Chain(name, HYPERVISOR, key)
    found: list[StoredEvent] = []
    for first in range(0, len(frames), 2):
        for event in chain.seal(frames[first : first + 2]):
            last = event.get("last", DAY + at)
            found.append(stored(event, max([last + 1, *(item.time + 1e-6 for item in found)])))
    return found


def session(name: str, began: float, ended: float | None, *calls: float) -> tuple[list[StoredEvent], list[StoredEvent]]:
    """A session's start and end, and its calls of the model, each having taken a second."""
    about = {"session_id": name, "component": AGENT}
    kinds = [("session.start", began), *([("session.end", ended)] if ended is not None else [])]
    sessions = [stored({**about, "kind": kind}, DAY + at, "agent:session") for kind, at in kinds]
    return sessions, [stored({**about, "kind": "llm", "duration_ms": 1000.0}, DAY + at, "agent:llm") for at in calls]


def look(network: list[StoredEvent], *pairs: tuple[list[StoredEvent], list[StoredEvent]], **ways: Any) -> Comparison:
    sessions = sorted((item for one, _ in pairs for item in one), key=lambda item: item.time)
    calls = sorted((item for _, one in pairs for item in one), key=lambda item: item.time)
    ways = {"since": DAY, "unframed_flows": ("log",), **ways}
    return compare(network, sessions, calls, KEY.public_key(), **ways)


def service(at: float) -> tuple[list[StoredEvent], list[StoredEvent]]:
    return [stored({"session_id": "service-1", "kind": "service.start"}, DAY + at, "agent:session")], []


def test_a_stream_is_whole_and_tampering_shows() -> None:
    events = stream(start(), flow(1), flow(2), flow(3))
    keys = {HYPERVISOR: KEY.public_key()}
    assert verify_session(STREAM, events, keys).whole
    assert verify_session(STREAM, [*events, events[1]], keys).whole, "the same bytes sent again count once"
    assert not verify_session(STREAM, [*events, stored(events[1].event, events[1].time + 1)], keys).whole
    assert not verify_session(STREAM, [events[0], *events[2:]], keys).whole
    changed = stored({**events[1].event, "count": 9}, events[1].time)
    assert not verify_session(STREAM, [events[0], changed, *events[2:]], keys).whole
    assert not verify_session(STREAM, stream(start(), flow(1), key=Ed25519PrivateKey.generate()), keys).whole


def test_no_other_writer_gets_into_a_stream_and_no_hypervisor_into_a_session() -> None:
    keys = {HYPERVISOR: KEY.public_key(), AGENT: KEY.public_key()}
    forged = Chain(STREAM, AGENT, KEY).seal([frame("session.start", step=0, model="m", question_sha256="0")])
    report = verify_session(STREAM, [*stream(start()), stored(forged[0], DAY + 9, "agent:session")], keys)
    assert next(problem.text for problem in report.problems).startswith(
        "a frame of agent in a session named hypervisor-"
    )
    (alone,) = Chain("s1", HYPERVISOR, KEY).seal([flow(1)])
    report = verify_session("s1", [stored(alone, DAY)], keys)
    assert next(problem.text for problem in report.problems).startswith("a frame of hypervisor in a session named s1")


def test_a_benign_day_agrees() -> None:
    """A connection opened by the service ahead, one kept alive from question to question, one opened anew."""
    network = stream(start(), flow(10), flow(10.5, name="log"), flow(300))
    found = look(
        network, service(10), session("a", 20, 22, 21, 21.9), session("b", 50, 52, 51), session("c", 299, 302, 301)
    )
    assert found.agree, (found.unframed, found.unseen, found.broken)
    assert (found.flows, found.sessions) == (3, 3)


@pytest.mark.parametrize(("at", "findings"), [(9, 0), (17, 0), (25, 1), (5, 1)])
def test_the_service_opens_a_connection_ahead_when_it_starts(at: float, findings: int) -> None:
    assert len(look(stream(start(), flow(at)), service(10)).unframed) == findings


def test_a_flow_outside_any_session_is_a_finding() -> None:
    network = stream(start(), flow(21), flow(60), flow(61, name="log"))
    found = look(network, session("a", 20, 22, 21.5))
    assert [item.event["first"] for item in found.unframed] == [DAY + 60]
    assert look(network, session("a", 20, 22, 21.5), unframed_flows=("log", "model")).unframed == []


def test_the_probes_of_a_receipt_are_accounted_for_by_it() -> None:
    about = {"name": "r.json", "sha256": "0"}
    when = "1970-01-01T00:00:00Z"
    for said, agree in ((None, True), ("nonsense", True), (when, False)):
        receipt = frame("network.receipt", step=0, receipt={"time": said} if said else {}, **about)
        found = look(stream(start(), flow(60), receipt, at=90))
        assert found.agree is agree, said


def test_a_repeated_flow_that_outlasts_its_session_is_a_finding() -> None:
    found = look(stream(start(), flow(21, until=40, count=3)), session("a", 20, 22, 21.5))
    assert len(found.unframed) == 1


def test_a_session_that_died_covers_its_calls_only() -> None:
    network = stream(start(), flow(21), flow(100))
    found = look(network, session("a", 20, None, 21.5))
    assert [item.event["first"] for item in found.unframed] == [DAY + 100]


@pytest.mark.parametrize(
    ("opened", "call", "unseen"), [(21, 21.5, []), (0, 29, []), (0, 40, ["a"]), (30, 21.5, ["a"]), (22, 21.5, [])]
)
def test_a_call_that_no_connection_carried_is_a_finding(opened: float, call: float, unseen: list[str]) -> None:
    found = look(stream(start(), flow(opened)), service(opened), session("a", call - 1, call + 1, call))
    assert found.unseen == unseen


def test_in_the_open_mode_the_flow_to_the_model_has_another_name() -> None:
    network = stream(start(), flow(21, name="internet"))
    assert look(network, session("a", 20, 22, 21.5)).agree
    assert look(network, session("a", 20, 22, 21.5), model_flows=("model",)).unseen == ["a"]


def test_a_later_session_does_not_live_on_a_call_that_was_not_carried() -> None:
    found = look(stream(start(), flow(500)), service(500), session("a", 20, 22, 21), session("b", 30, 32, 31))
    assert found.unseen == ["a", "b"]


def test_only_what_the_hypervisor_signed_is_believed() -> None:
    forged = stream(start(), flow(21), name="hypervisor-20241004-ff", key=Ed25519PrivateKey.generate())
    found = look([*stream(start()), *forged], session("a", 20, 22, 21.5))
    assert found.unseen == ["a"]
    assert [text.split(":")[0] for text in found.broken] == ["stream hypervisor-20241004-ff"]
    assert compare(stream(start()), [], [], None, since=DAY).broken


def test_a_forged_frame_in_the_hypervisors_own_stream_takes_no_true_one_along() -> None:
    network = stream(start(), flow(21), flow(22, verdict="denied", name="route"))
    forged = {**network[1].event, "first": DAY + 90, "last": DAY + 90, "seq": 4}
    found = look([*network, stored(forged, DAY + 91)], session("a", 20, 22, 21.5))
    assert found.broken
    assert (found.unframed, found.unseen, len(found.denied)) == ([], [], 1)


def test_an_end_that_was_cut_off_shows_in_the_next_stream() -> None:
    first = stream(start(), flow(1), flow(2), flow(3), name="hypervisor-1")
    before = ("hypervisor-1", 4, event_hash(first[-1].event))
    second = stream(start(before=before), name="hypervisor-2", at=10)
    ways = {"unframed_flows": ("model",)}
    assert look([*first, *second], **ways).agree
    assert "cut off" in look([*first[:2], *second], **ways).broken[0]


def test_what_came_before_the_hypervisors_first_word_is_not_judged() -> None:
    network = stream(start("first"), at=100)
    found = look(network, session("a", 20, 22, 21))
    assert (found.agree, found.unjudged) == (True, 1)
    network = stream(start("first"), at=0)
    assert look(network, session("a", 20, 22, 21)).agree, "by a connection that was opened just before"
    assert look(network, session("a", 60, 62, 61)).unseen == ["a"]


def test_drift_and_losses_are_shown() -> None:
    drift = frame("network.drift", step=0, drift={"found": ["x"]}, count=1)
    lost = frame("network.lost", step=0, what="packets", count=3, reason="r")
    found = look(stream(start(), drift, lost, at=5))
    assert (len(found.drifts), len(found.losses), found.agree) == (1, 1, True)


def test_the_past_that_is_needed_begins_with_a_whole_stream() -> None:
    assert earliest(DAY + 1800) == {
        "agent:network": DAY - 86_400, "agent:session": DAY - 1800, "agent:llm": DAY - 1800,
    }  # fmt: skip
