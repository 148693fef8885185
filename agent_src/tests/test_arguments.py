"""Tool arguments: strict JSON whatever the text, and the tool's schema."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glasslab.arguments import MAX_CHARACTERS, MAX_DEPTH, ArgumentError, parse, validate
from glasslab.frames import canonical_json
from glasslab.guardrails import hidden_characters

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@given(st.dictionaries(st.text(), VALUES, max_size=4))
@settings(max_examples=100, deadline=None)
def test_an_ordinary_object_is_taken_as_it_is(value: dict[str, Any]) -> None:
    assert parse(json.dumps(value)) == value


@given(st.text(st.characters(exclude_categories=())) | st.text('{}[]",:\\ue19.-+ntf dD80', max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_an_object_that_can_be_recorded_or_an_argument_error(text: str) -> None:
    value: object = {}
    with contextlib.suppress(ArgumentError):  # the only error that may come
        value = parse(text)
    assert isinstance(value, dict)
    assert canonical_json(value)


@pytest.mark.parametrize("text", ["", " ", "\n", "{}"])
def test_nothing_is_an_empty_object(text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("null", "not_an_object"),
        ("[]", "not_an_object"),
        ('"{}"', "not_an_object"),
        ("true", "not_an_object"),
        ("{", "invalid_json"),
        ("{} {}", "invalid_json"),
        ("{'a': 1}", "invalid_json"),
        ('{"a": 1,}', "invalid_json"),
        ('{"a": Infinity}', "not_a_number"),
        ('{"a": -1e400}', "not_a_number"),
        ('{"a": {"b": 1, "b": 1}}', "duplicate_key"),
        ('{"a": 9223372036854775808}', "integer_too_large"),
        ('{"a": -%s}' % ("1" * 30_000), "integer_too_large"),
        ('{"\\udc00": 1}', "lone_surrogate"),
        ('{"a": ["\\ud800x"]}', "lone_surrogate"),
        ('{"a": "\ud800"}', "lone_surrogate"),
        ('{"a": "' + "x" * MAX_CHARACTERS + '"}', "too_long"),
        ('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "too_deep"),
        ('{"a": ' + "[" * 30_000 + "]" * 30_000 + "}", "too_deep"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 300


def test_the_limits_themselves_are_fine() -> None:
    assert parse('{"a": 9223372036854775807}') == {"a": 2**63 - 1}
    nested = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert list(parse('{"a": ' + nested + "}")) == ["a"]


@pytest.mark.parametrize(
    ("arguments", "schema", "reason"),
    [
        ({}, SCHEMA, "schema"),
        ({"path": 1}, SCHEMA, "schema"),
        ({"path": "a", "more": 1}, SCHEMA, "unknown_argument"),
        ({"path": "a", "more": 1}, {**SCHEMA, "additionalProperties": False}, "schema"),
        ({"path": "a"}, {"$ref": "http://127.0.0.1:1/schema.json", "properties": {"path": {}}}, "schema_unusable"),
        ({"path": "a"}, {"type": "nonsense", "properties": {"path": {}}}, "schema_unusable"),
    ],
)
def test_what_the_schema_refuses(arguments: dict[str, Any], schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        validate(arguments, schema)
    assert caught.value.reason == reason


def test_what_the_schema_takes() -> None:
    validate({"path": "a"}, SCHEMA)
    validate({"path": "a", "more": 1}, {**SCHEMA, "additionalProperties": True})


def test_hidden_characters_are_found_and_ordinary_text_is_not() -> None:
    assert hidden_characters("Zwölf Bücher – 十二, 12 €\n\tнорма") == []
    assert hidden_characters("a\u200bb\u202ec\u200b\U000e0041\ud800") == ["U+200B", "U+202E", "U+D800", "U+E0041"]
