"""Patterns of others: which are not tried at all, and on how long a text the others are."""

import re
import time

import pytest

from glasslab.arguments import ArgumentError
from glasslab.patterns import MAX_MATCHED, longest_matched
from glasslab.schemas import schema_problem, validate

SLOW = [
    "(a+)+$", "(a*)*", "^(\\w+\\s?)*$", "(a|a)*", "(a|ab)+", "(.|x)*", "((a+)b?)+", "(?:a+){2,}", "(?P<n>x*)+",
    "([a-z]+)*", "((ab|ac)x)*", "(x(y(z+)))*", "(a{1,3})+", "(a?){50}", "(a+){10}", "(a?b?c?)*", "(a|b|ab)*",
    "a?" * 30 + "b", "((a{1,9}){1,9}){1,9}", "x" * 1001,
]  # fmt: skip
ORDINARY = {
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}$": MAX_MATCHED,
    "^(foo|bar)$": MAX_MATCHED,
    "^(foo|bar)*$": MAX_MATCHED,
    "^[a-z]+$": MAX_MATCHED,
    "^[a-z]+(-[a-z]){0,3}$": MAX_MATCHED,
    "^([0-9]{1,3}\\.){3}[0-9]{1,3}$": MAX_MATCHED,
    "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$": MAX_MATCHED,
    "\\(a+\\)+": 200,
    "[(a+)]+": MAX_MATCHED,
    "(?i:abc)+": MAX_MATCHED,
    "^https?://[^/]+/.*$": 2000,
    "(a+)(b+)": 200,
    "^(?:x|y)+$": MAX_MATCHED,
    "a|b+": 1000,
    "{}": MAX_MATCHED,
    "": MAX_MATCHED,
}


@pytest.mark.parametrize("pattern", SLOW)
def test_what_may_take_for_ever_is_not_tried(pattern: str) -> None:
    assert longest_matched(pattern) is None
    assert schema_problem({"properties": {"a": {"items": [{"pattern": pattern}]}}})
    assert schema_problem({"patternProperties": {pattern: {}}})


@pytest.mark.parametrize(("pattern", "least"), ORDINARY.items())
def test_ordinary_patterns_are_tried_on_texts_of_some_length(pattern: str, least: int) -> None:
    most = longest_matched(pattern)
    assert most is not None
    assert least <= most <= MAX_MATCHED


@pytest.mark.parametrize(
    ("pattern", "letter"),
    [("a*a*a*a*c", "a"), ("^a*a*c", "a"), ("\\s+x", " "), (".*.*=.*", "."), ("^(a{1,3}){5}a*c", "a"), ("a+b|a+c", "a")],
)
def test_the_longest_text_takes_some_seconds_at_the_very_worst(pattern: str, letter: str) -> None:
    most = longest_matched(pattern)
    assert most
    began = time.process_time()
    assert re.search(pattern, letter * most) is None
    assert time.process_time() - began < 5
    if most < MAX_MATCHED:
        with pytest.raises(ArgumentError, match=f"at most {most} can be matched"):
            validate({"a": letter * (most + 1)}, {"properties": {"a": {"pattern": pattern}}})


def test_the_bound_is_on_what_is_matched_and_on_nothing_else() -> None:
    schema = {"properties": {"day": {"pattern": "^x*$"}, "text": {"type": "string"}}}
    validate({"day": "x" * MAX_MATCHED, "text": "y" * 60_000}, schema)


def test_a_beginning_that_is_not_fixed_counts_as_one_repetition_more() -> None:
    assert longest_matched("a*a*a*c") == longest_matched("^a*a*a*a*c")
    assert (longest_matched("a*a*a*c") or 0) < (longest_matched("^a*a*a*c") or 0)
