"""Tool arguments: strict JSON, whatever the text."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasslab.arguments import MAX_CHARACTERS, MAX_DEPTH, MAX_KEY, ArgumentError, parse
from glasslab.frames import canonical_json
from soak import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), VALUES, max_size=4))
@examples(100)
def test_an_ordinary_object_is_taken_as_it_is(value: dict[str, Any]) -> None:
    assert parse(json.dumps(value)) == value


@given(st.text(st.characters(exclude_categories=())) | st.text('{}[]",:\\ue19.-+ntf dD80', max_size=40))
@examples(300)
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
        ('{"a":' * MAX_DEPTH + "{}" + "}" * MAX_DEPTH, "too_deep"),
        ('{"' + "k" * (MAX_KEY + 1) + '": 1}', "too_long"),
        ('{"a": 1, "\\u0061": 2}', "duplicate_key"),
        ("[NaN]", "not_a_number"),
        ('{"a": "x\ny"}', "invalid_json"),
        ("\ufeff{}", "invalid_json"),
        ('{"a": 01}', "invalid_json"),
        ('{"a": 0x1}', "invalid_json"),
        ('{"a": .5}', "invalid_json"),
        ('{"a": 1} // why', "invalid_json"),
        ('```json\n{"a": 1}\n```', "invalid_json"),
        ('{"a": "\\x41"}', "invalid_json"),
        ('{"a": "unterminated', "invalid_json"),
        ('"{\\"a\\": 1}"', "not_an_object"),
        ("-0", "not_an_object"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 300


BAD_VALUES = {
    "NaN": "not_a_number", "-Infinity": "not_a_number", "1e999": "not_a_number", "9" * 5000: "integer_too_large",
    '"\\ud800"': "lone_surrogate", '{"x": 1, "x": 2}': "duplicate_key",
}  # fmt: skip
PLACES = st.lists(st.integers(0, 3) | st.sampled_from(["tags", "from", "a b", "ключ"]), min_size=1, max_size=6)


@given(place=PLACES.filter(lambda place: isinstance(place[0], str)), bad=st.sampled_from(sorted(BAD_VALUES)))
@examples(150)
def test_what_is_refused_is_named_wherever_it_is(place: list[str | int], bad: str) -> None:
    text = bad
    for step in reversed(place):
        text = (
            f"[{'0, ' * step}{text}]" if isinstance(step, int) else json.dumps({"z": 0, step: "@"}).replace('"@"', text)
        )
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert caught.value.reason == BAD_VALUES[bad]
    more = "/x" if "x" in bad else ""
    assert str(caught.value).startswith(f"argument {'/'.join(map(str, place))}{more}: ")


@given(st.text(st.characters(exclude_categories=())) | st.text('{}[]",:\\ue19.-+ntf dD80', max_size=40))
@examples(200)
def test_what_is_taken_is_what_any_other_parser_reads(text: str) -> None:
    value: dict[str, Any] = {}
    with contextlib.suppress(ArgumentError):
        value = parse(text)
    if value:
        assert json.loads(text) == value
        assert parse(json.dumps(value)) == value


def test_a_place_cannot_hide_or_grow() -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(json.dumps({"a\u202eb\n" + "k" * 900: float("nan")}))
    assert str(caught.value).startswith("argument a\\u202eb kkk")
    assert len(str(caught.value)) < 300


def test_the_limits_themselves_are_fine() -> None:
    assert parse('{"a": 9223372036854775807}') == {"a": 2**63 - 1}
    nested = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert list(parse('{"a": ' + nested + "}")) == ["a"]


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


BOUNDS = {
    "characters": ('{"a":"' + "x" * (65_536 - 8) + '"}', '{"a":"' + "x" * (65_536 - 7) + '"}', "too_long"),
    "levels": (nested(32), nested(33), "too_deep"),
    "of a name": ('{"' + "k" * 1_000 + '":1}', '{"' + "k" * 1_001 + '":1}', "too_long"),
    "upwards": ('{"a":9223372036854775807}', '{"a":9223372036854775808}', "integer_too_large"),
    "downwards": ('{"a":-9223372036854775808}', '{"a":-9223372036854775809}', "integer_too_large"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_bounds_are_where_they_are_said_to_be(bound: str) -> None:
    taken, refused, reason = BOUNDS[bound]
    assert parse(taken) == json.loads(taken)
    with pytest.raises(ArgumentError) as caught:
        parse(refused)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * 65_537, "the arguments have 65537 characters; at most 65536"),
        ("[1]", "the arguments are a JSON array; send one object"),
        ('"a"', "the arguments are a JSON string; send one object"),
        ("true", "the arguments are a JSON boolean; send one object"),
        ("1", "the arguments are a JSON number; send one object"),
        ("1.5", "the arguments are a JSON number; send one object"),
        ("null", "the arguments are a JSON null; send one object"),
        ('{"a"}', "the arguments are not valid JSON (Expecting ':' delimiter at character 4); send one object"),
        ('{"a": NaN}', "argument a: NaN is no JSON number; send a finite one"),
        ('{"a": 1%s}' % ("0" * 400 + ".0"), f"argument a: 1{'0' * 39} is too large for a number; send a finite one"),
        ('{"a": 123456789012345678901}', "argument a: an integer of 21 characters; at most 64 bits"),
        ('{"a": {"b": 1, "b": 2}}', "argument a/b: it is given twice; send it once"),
        ('{"a": ["\\ud800"]}', "argument a/0: a text is not valid Unicode (lone surrogate)"),
        ('{"%s": NaN}' % ("k" * 200), f"argument {'k' * 120}: NaN is no JSON number; send a finite one"),
    ],
    ids=lambda value: ascii(value)[:30],
)  # fmt: skip
def test_what_the_model_is_told(text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert str(caught.value) == said
