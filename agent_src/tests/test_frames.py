"""The vocabulary and the chain: canonical JSON, what may be recorded, links, clock and signatures."""

import json
import math
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from glasslab.frames import (
    COMMON_FIELDS,
    GENESIS,
    KINDS,
    Chain,
    FrameError,
    canonical_json,
    event_hash,
    frame,
    recordable,
    sha256_hex,
    verify_event_signature,
)
from soak import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# What a parser may hand over: also lone surrogates, NaN, infinity and integers of any size.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(10**30), max_value=10**30) | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
@examples(150)
def test_canonical_json_survives_a_round_trip(value: Any) -> None:
    data = canonical_json(value)
    assert canonical_json(json.loads(data)) == data


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
@examples(50)
def test_canonical_json_knows_no_order_of_keys(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": math.nan}, "\ud800"])
def test_canonical_json_refuses_what_is_no_json(value: object) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|surrogates not allowed"):
        canonical_json(value)


def test_canonical_json_is_compact_utf8() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "–"}) == '{"a":"–","b":[1,2.5,null]}'.encode()


@given(ANYTHING)
@examples(150)
def test_whatever_came_can_be_recorded(value: Any) -> None:
    data = canonical_json(recordable(value))
    assert canonical_json(json.loads(data)) == data


def test_what_is_recordable_already_stays_as_it_is() -> None:
    value = {"a": [1, -2, 2.5, True, None, "é"], "b": {}}
    assert recordable(value) == value


def test_deep_and_huge_values_are_named() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert "nested deeper" in canonical_json(recordable(deep)).decode()
    assert recordable(10**5000) == f"integer of {(10**5000).bit_length()} bits"


def test_the_vocabulary_is_consistent() -> None:
    for name, kind in KINDS.items():
        assert name == kind.name
        assert kind.summary
        assert set(kind.writers) <= {"agent", "mcp", "hypervisor", "verifier"}
        assert not set(kind.fields + kind.optional) & set(COMMON_FIELDS)
    assert sum(kind.is_trace for kind in KINDS.values()) == 22
    assert {kind.sourcetype for kind in KINDS.values()} == {
        "agent:trace", "agent:session", "agent:llm", "agent:toolcall", "agent:network",
    }  # fmt: skip


def test_a_frame_has_exactly_its_kinds_fields() -> None:
    made = frame("session.start", step=0, model="m", question_sha256="0")
    assert made == {
        "kind": "session.start", "step": 0, "summary": "A session started", "model": "m", "question_sha256": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("session.begin", {}),
        ("session.start", {"model": "m"}),
        ("session.start", {"model": "m", "question_sha256": "0", "question": "?"}),
        ("session.start", {"model": "m", "question_sha256": "0", "summary": "said by the model"}),
    ],
)
def test_an_unknown_kind_or_field_is_a_programming_error(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        frame(kind, step=0, **fields)


def decision() -> dict[str, Any]:
    return frame("agent.decision", step=1, decision="answer", calls=0, tools=[])


def test_links_numbers_clock_and_signature_of_two_commits() -> None:
    key = Ed25519PrivateKey.generate()
    chain = Chain("s", "agent", key, clock=4)
    first = chain.seal([decision(), decision()])
    chain.merge(20)
    chain.merge(3)
    events = [*first, *chain.seal([decision()])]
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert [event["clock"] for event in events] == [5, 6, 21]
    assert [event["prev"] for event in events] == [GENESIS, event_hash(events[0]), event_hash(events[1])]
    assert ["sig" in event for event in events] == [False, True, True]
    assert len({event["event_id"] for event in events}) == 3
    assert event_hash(events[1]) == sha256_hex(canonical_json(events[1]))


def test_a_signature_holds_for_this_event_and_this_key_only() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    (event,) = Chain("s", "agent", key).seal([decision()])
    public = key.public_key()
    assert verify_event_signature(event, public)
    assert verify_event_signature(json.loads(canonical_json(event)), public)
    assert not verify_event_signature(event, other.public_key())
    for field in event:
        assert not verify_event_signature({**event, field: "changed"}, public), field
    assert not verify_event_signature({**event, "more": 1}, public)
    assert not verify_event_signature({name: value for name, value in event.items() if name != "sig"}, public)


def test_a_writer_cannot_write_the_others_frames() -> None:
    with pytest.raises(FrameError):
        Chain("s", "mcp").seal([decision()])
