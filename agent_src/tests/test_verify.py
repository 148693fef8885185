"""Verification: a session as it was written passes, and every way of tampering with it is named."""

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from glasslab.frames import GENESIS, KINDS, Chain, canonical_json, event_hash, frame
from glasslab.search import StoredEvent
from glasslab.verified import verified
from glasslab.verify import Report, verify_session
from session_sample import SESSION, fresh_signature, make_keys, make_session

KEYS = make_keys()
PUBLIC = {name: key.public_key() for name, key in KEYS.items()}

Stored = list[StoredEvent]


def check(stored: Stored, keys: Any = PUBLIC) -> Report:
    return verify_session(SESSION, stored, keys)


def problems(report: Report) -> list[str]:
    """Every problem as `writer seq: text`."""
    return [f"{w.name} {p.seq}: {p.text}" for w in report.writers for p in w.problems] + [
        f"session: {p.text}" for p in report.problems
    ]


def place(stored: Stored, writer: str, seq: int) -> int:
    return next(
        number for number, item in enumerate(stored) if item.event["component"] == writer and item.event["seq"] == seq
    )


def change(stored: Stored, writer: str, seq: int, **fields: Any) -> None:
    number = place(stored, writer, seq)
    stored[number] = replace(stored[number], event={**stored[number].event, **fields})


def reseal(stored: Stored, writer: str, **fields: Any) -> None:
    """What an attacker without the key can do: compute every link of a writer's chain anew."""
    prev = GENESIS
    for number, item in enumerate(stored):
        if item.event["component"] == writer:
            stored[number] = replace(item, event={**item.event, "prev": prev, **fields})
            prev = event_hash(stored[number].event)


@pytest.mark.parametrize(("full", "agent", "mcp"), [(True, 27, 6), (False, 8, 0)])
def test_a_session_as_written_is_whole(full: bool, agent: int, mcp: int) -> None:
    report = check(make_session(KEYS, full=full))
    assert problems(report) == []
    assert report.whole
    assert {w.name: w.frames for w in report.writers} == ({"agent": agent, "mcp": mcp} if mcp else {"agent": agent})
    assert sum(w.signatures for w in report.writers) == (14 if full else 7)


def edit(stored: Stored) -> None:
    change(stored, "agent", 5, message_count=3)


def edit_last(stored: Stored) -> None:
    change(stored, "agent", 27, status="max_steps_reached")


def delete(stored: Stored) -> None:
    del stored[place(stored, "agent", 8)]


def delete_first(stored: Stored) -> None:
    del stored[place(stored, "mcp", 1)]


def insert(stored: Stored) -> None:
    number = place(stored, "mcp", 3)
    stored.insert(number, replace(stored[number], event={**stored[number].event, "event_id": "f" * 32}))


def insert_resealed(stored: Stored) -> None:
    """A frame of an attacker's own in the middle, with everything after it numbered and linked anew."""
    number = place(stored, "mcp", 3)
    stored.insert(number, replace(stored[number], event=copy.deepcopy(stored[number].event)))
    seq = 0
    for at, item in enumerate(stored):
        if item.event["component"] == "mcp":
            seq += 1
            stored[at] = replace(item, event={**item.event, "seq": seq, "clock": item.event["clock"] + (seq > 3)})
    reseal(stored, "mcp")


def swap(stored: Stored) -> None:
    first, second = place(stored, "agent", 9), place(stored, "agent", 10)
    one, two = stored[first].event["seq"], stored[second].event["seq"]
    stored[first] = replace(stored[first], event={**stored[first].event, "seq": two})
    stored[second] = replace(stored[second], event={**stored[second].event, "seq": one})


def truncate_agent(stored: Stored) -> None:
    del stored[-5:]


def cut_within_a_commit(stored: Stored) -> None:
    del stored[-1]


def truncate_mcp(stored: Stored) -> None:
    del stored[place(stored, "mcp", 6)]


def no_agent(stored: Stored) -> None:
    stored[:] = [item for item in stored if item.event["component"] == "mcp"]


def no_mcp(stored: Stored) -> None:
    stored[:] = [item for item in stored if item.event["component"] == "agent"]


def edit_resealed(stored: Stored) -> None:
    change(stored, "agent", 3, server_name="evil")
    reseal(stored, "agent")


def unsign_resealed(stored: Stored) -> None:
    for number, item in enumerate(stored):
        stored[number] = replace(item, event={k: v for k, v in item.event.items() if k != "sig"})
    reseal(stored, "mcp")


def foreign_signature(stored: Stored) -> None:
    change(stored, "agent", 27, sig=fresh_signature())


def broken_signature(stored: Stored) -> None:
    change(stored, "agent", 27, sig="no base64 ä")


def clock_back(stored: Stored) -> None:
    change(stored, "agent", 4, clock=1)


def another_session(stored: Stored) -> None:
    change(stored, "agent", 2, session_id="f" * 32)


def relabelled(stored: Stored) -> None:
    number = place(stored, "agent", 8)
    stored[number] = replace(stored[number], sourcetype="agent:llm")


def no_frame(stored: Stored) -> None:
    stored.append(replace(stored[0], event={"session_id": SESSION, "note": "hello"}))


def unknown_kind(stored: Stored) -> None:
    change(stored, "agent", 8, kind="agent.dream")


def unknown_writer(stored: Stored) -> None:
    chain = Chain(SESSION, "agent", KEYS["agent"], clock=33)
    event = {**chain.seal([frame("session.start", step=0, model="m", question_sha256="")])[0], "component": "mallory"}
    stored.append(replace(stored[1], event=event))


def others_kind(stored: Stored) -> None:
    change(stored, "mcp", 6, kind="agent.decision")


def later(stored: Stored) -> None:
    number = place(stored, "agent", 6)
    stored[number] = replace(stored[number], time=stored[-1].time + 1)


def enormous_clock(stored: Stored) -> None:
    change(stored, "agent", 27, clock=10**15)


TAMPERING: list[tuple[Callable[[Stored], None], list[str]]] = [
    (edit, ["agent 5: signature is not", "agent 6: prev is not the hash"]),
    (edit_last, ["agent 27: signature is not"]),
    (delete, ["agent 8: missing: 8", "session: no frame has clock"]),
    (delete_first, ["mcp 1: missing: 1", "session: no frame has clock 3"]),
    (insert, ["mcp 3: there twice"]),
    (insert_resealed, ["mcp 4: signature is not"]),
    (swap, ["agent 9: prev is not the hash", "agent 10: clock"]),
    (truncate_agent, ["agent 22: last frame is llm.request, not session.end"]),
    (cut_within_a_commit, ["agent 26: agent.final ends a commit and is not signed", "agent 26: last frame is"]),
    (truncate_mcp, ["session: no frame has clock"]),
    (no_agent, ["agent None: no frame at all"]),
    (no_mcp, ["session: no frame has clock 3,"]),
    (edit_resealed, ["agent 5: signature is not"]),
    (unsign_resealed, ["mcp 6: server.read_file ends a commit and is not signed"]),
    (foreign_signature, ["agent 27: signature is not"]),
    (broken_signature, ["agent 27: signature is not"]),
    (clock_back, ["agent 4: clock 1 does not follow"]),
    (another_session, ["session: agent seq 2 belongs to session"]),
    (relabelled, ["session: agent seq 8 (", "agent 8: missing: 8"]),
    (no_frame, ["session: an event of sourcetype agent:trace is no frame"]),
    (unknown_kind, ["session: agent seq 8 is of kind 'agent.dream'"]),
    (unknown_writer, ["mallory None: no public key: VERIFY_KEYS has no mallory.pub"]),
    (others_kind, ["session: mcp seq 6 is of kind agent.decision, which mcp does not write"]),
    (later, ["agent 7: its time is before that of seq 6"]),
    (enormous_clock, ["session: clock reaches 1000000000000000"]),
]


@pytest.mark.parametrize(("tamper", "named"), TAMPERING, ids=[tamper.__name__ for tamper, _ in TAMPERING])
def test_tampering_is_named(tamper: Callable[[Stored], None], named: list[str]) -> None:
    stored = make_session(KEYS)
    tamper(stored)
    report = check(stored)
    assert not report.whole
    found = problems(report)
    for text in named:
        assert any(line.startswith(text) for line in found), found


def test_a_chain_signed_with_another_key_is_broken_though_it_is_consistent() -> None:
    report = check(make_session({**KEYS, "agent": make_keys()["agent"]}))
    assert {problem.text for problem in report.writers[0].problems} == {"signature is not that of the writer's key"}
    assert report.writers[1].problems == []


def test_a_key_found_in_a_frame_counts_for_nothing() -> None:
    report = check(make_session(KEYS), {"agent": PUBLIC["agent"]})
    assert problems(report) == ["mcp None: no public key: VERIFY_KEYS has no mcp.pub"]


def at(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y%m%dT%H%M%SZ")


def test_a_session_from_before_a_rebuild_is_whole_by_the_key_of_its_time() -> None:
    old, older, last = make_session(KEYS), make_keys(), make_session(KEYS)[-1].time
    today = {name: key.public_key() for name, key in make_keys().items()}
    assert not check(old, today).whole
    kept = {f"{name}.{at(last + 60)}": key for name, key in PUBLIC.items()}
    earlier = {f"{name}.{at(last - 60)}": key.public_key() for name, key in older.items()}
    assert problems(check(old, today | kept | earlier)) == []


def test_a_retired_key_signs_nothing_after_its_time() -> None:
    late, last = make_session(KEYS), make_session(KEYS)[-1].time
    today = {name: key.public_key() for name, key in make_keys().items()}
    kept = {f"{name}.{at(last - 60)}": key for name, key in PUBLIC.items()}
    report = check(late, today | kept)
    assert {p.text for writer in report.writers for p in writer.problems} == {
        "signature is not that of the writer's key"
    }


@pytest.mark.parametrize(
    "name", ["agent.old", "agent.20261301T000000Z", "agent.x.20300101T000000Z", "mcp.20300101T000000Z"]
)
def test_a_key_under_another_name_is_not_the_writers(name: str) -> None:
    other = {name: PUBLIC["agent"], "mcp": PUBLIC["mcp"]}
    assert any(
        "no public key: VERIFY_KEYS has no agent.pub" in line for line in problems(check(make_session(KEYS), other))
    )


def test_an_event_no_writer_could_have_sent_is_reported_not_raised() -> None:
    stored = make_session(KEYS)
    change(stored, "agent", 27, answer_sha256="\ud800")
    assert any("agent 27: signature" in line for line in problems(check(stored)))


def test_what_is_recorded_of_a_check_is_bounded_whatever_it_quotes() -> None:
    stored = make_session(KEYS)
    for number in range(60):
        forged = {**stored[0].event, "component": f"a{number:02}\ud800{'w' * 100_000}"}
        stored.append(replace(stored[0], event=forged))
        stored.append(replace(stored[0], event={**stored[0].event, "kind": "k" * 100_000}))
    recorded = verified(check(stored))
    assert len(canonical_json(recorded)) < 30_000
    assert {"agent", "mcp"} <= set(recorded["writers"])
    assert (len(recorded["writers"]), len(recorded["problems"])) == (10, 50)
    assert recorded["found"] > 100


def stored(session: str, writer: str, *kinds: tuple[str, dict[str, Any]]) -> Stored:
    """What one writer recorded in a session, each frame in a commit of its own."""
    chain = Chain(session, writer, KEYS[writer])
    events = [event for kind, fields in kinds for event in chain.seal([frame(kind, step=0, **fields)])]
    return [
        StoredEvent(float(number), KINDS[event["kind"]].sourcetype, f"glasslab:{writer}", "agents", "", event)
        for number, event in enumerate(events)
    ]


START = ("server.start", {"sandbox": "/d", "pid": 7})


def test_a_session_of_another_host_has_the_servers_chain_alone() -> None:
    report = verify_session("host-1", stored("host-1", "mcp", START, ("server.list_files", {"files": []})), PUBLIC)
    assert problems(report) == []
    assert {writer.name: writer.frames for writer in report.writers} == {"mcp": 2}
    assert problems(verify_session("host-1", [], PUBLIC)) == ["mcp None: no frame at all"]


def test_no_agent_speaks_in_a_session_of_another_host() -> None:
    forged = stored("host-1", "agent", ("session.start", {"model": "m", "question_sha256": "0"}))
    named = problems(verify_session("host-1", [*stored("host-1", "mcp", START), *forged], PUBLIC))
    assert "session: a frame of agent in a session named host-1: one of the two is forged" in named


def test_what_a_person_was_asked_is_signed() -> None:
    """A person is asked after the request's commit, which is signed: a request that nobody signed was put there."""
    chain = Chain(SESSION, "agent", KEYS["agent"])
    start = dict.fromkeys(KINDS["session.start"].fields)
    request, decision, end = (
        frame(kind, step=1, **dict.fromkeys(KINDS[kind].fields))
        for kind in ("approval.request", "approval.decision", "session.end")
    )
    events = [*chain.seal([frame("session.start", step=0, **start)]), *chain.seal([request])]
    events += chain.seal([decision, end])
    first = make_session(KEYS, full=False)[0]
    stored = [replace(first, event=event) for event in events]
    assert problems(check(stored)) == []
    number = place(stored, "agent", 2)
    stored[number] = replace(stored[number], event={k: v for k, v in stored[number].event.items() if k != "sig"})
    reseal(stored, "agent")
    assert "agent 2: approval.request ends a commit and is not signed" in problems(check(stored))
