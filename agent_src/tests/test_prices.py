"""What calls cost: the reply's word, the price table, an estimate that says so; and the limit on it."""

from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded
from agent_lab import turn
from glasslab.models import Reply, Request, ToolRequest, Usage
from glasslab.models.usage import cost_of, estimated, priced
from glasslab.prices import Price, cost, parse_prices
from glasslab.statuses import EXIT_CODES

TABLE = {"m": Price(1, 10), "*": Price(100, 1000)}


def paid(dollars: Any) -> dict[str, Any]:
    """A call of a tool, with what it cost in the usage, as some gateways tell it."""
    return {**turn(("list_files", "{}")), "usage": {"prompt_tokens": 10, "completion_tokens": 2, "cost": dollars}}


def test_a_table() -> None:
    text = " a/b:c-1=0.25/2 ,x=y=1e0/0, *=3/15,"
    assert parse_prices(text) == {"a/b:c-1": Price(0.25, 2), "x=y": Price(1, 0), "*": Price(3, 15)}
    assert parse_prices(" ") == {}


@pytest.mark.parametrize("text", ["m", "m=1", "m=1/", "m=/1", "=1/2", " =1/2", "m=-1/2", "m=1/inf", "m=a/b", "m=1/2/3"])
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(ValueError, match="give MODEL=IN/OUT"):
        parse_prices(text)


def test_what_tokens_cost() -> None:
    assert cost(TABLE, "m", 1_000_000, 100_000) == 2.0
    assert cost(TABLE, "other", 1, 1) == 0.0011
    assert cost({"m": Price(1, 1)}, "other", 1, 1) is None


def test_the_replys_own_word_comes_first() -> None:
    assert priced(Usage(10, 10, cost=0.5, cost_from="reply"), "m", TABLE).cost == 0.5
    assert priced(Usage(10, 10, cost=0.0, cost_from="reply"), "m", TABLE).cost == 0.00011
    assert priced(Usage(10, 10, cost=0.0, cost_from="reply"), "m", {}).cost == 0.0
    assert priced(Usage(10, 10), "m", TABLE) == Usage(10, 10, cost=0.00011, cost_from="prices")
    assert priced(Usage(10, 10), "m", {}) == Usage(10, 10)


@pytest.mark.parametrize("value", [None, True, "0.1", -1, float("nan"), float("inf"), [1]])
def test_a_cost_that_is_none(value: Any) -> None:
    assert cost_of(value) is None


def test_an_estimate_is_of_the_size_and_only_for_what_is_missing() -> None:
    request = Request([{"role": "user", "content": "x" * 3000}], [])
    reply = Reply(None, [ToolRequest("c", "list_files", "{}" * 10)], "stop", Usage(completion=7))
    got = estimated(reply, request).usage
    assert (got.completion, got.estimated) == (7, True)
    assert 1000 <= (got.prompt or 0) <= 1020
    assert estimated(Reply("x" * 30, [], "stop", Usage(prompt=1)), request).usage.completion == 10
    assert estimated(Reply("\ud800", [], "stop"), request).usage.completion == 1
    nothing = estimated(Reply("x" * 30, [], "stop", Usage(0, 0)), request).usage
    assert (nothing.completion, nothing.estimated) == (10, True), "what was sent and received took something"
    assert 1000 <= (nothing.prompt or 0) <= 1020
    assert estimated(Reply(None, [], "stop", Usage(5, 0)), request).usage == Usage(5, 0)
    whole = Reply("x", [], "stop", Usage(1, 1))
    assert estimated(whole, request) is whole


def test_costs_are_on_record_and_in_the_outcome(bench: Bench) -> None:
    outcome = bench.run(paid(0.25), ANSWER, model_prices="test-model=1/10")
    first, second = bench.hec.events("llm")
    assert (first["cost"], first["cost_from"]) == (0.25, "reply")
    assert (second["cost"], second["cost_from"]) == (0.00003, "prices")
    assert outcome.usage["cost"] == bench.hec.events("session.end")[0]["cost"] == 0.25003
    assert "estimated" not in outcome.usage


def test_where_no_price_is_known_nothing_is_said(bench: Bench) -> None:
    outcome = bench.run(ANSWER)
    assert set(outcome.usage) == {"prompt", "completion", "reasoning", "total"}
    for kind in ("llm", "session.end"):
        assert not {"cost", "cost_from", "estimated"} & bench.hec.events(kind)[0].keys()


def test_the_cost_limit(bench: Bench) -> None:
    outcome = bench.run(paid(0.04), repeat_last=True, max_cost=0.1)
    assert_recorded(bench, outcome, "max_cost_reached", "max_cost_reached")
    assert EXIT_CODES[outcome.status] == 3
    assert (bench.requests, len(bench.tools.calls)) == (3, 2)  # what the third asks for is not run
    assert outcome.usage["cost"] == 0.12
    assert "raise MAX_COST" in str(outcome.problem)


def test_a_limit_that_cannot_be_kept_ends_the_session(bench: Bench) -> None:
    outcome = bench.run(turn(("list_files", "{}")), repeat_last=True, max_cost=5)
    assert_recorded(bench, outcome, "max_cost_reached", "cost_unknown")
    assert "MODEL_PRICES" in str(outcome.problem)
    assert (bench.requests, bench.tools.calls) == (1, [])


@pytest.mark.parametrize("told", [None, 0, -1_000_000, "9", True, 10**30, [9]])
def test_a_limit_on_tokens_holds_where_none_are_told_or_none_that_can_be(bench: Bench, told: Any) -> None:
    reply = {name: value for name, value in turn(("list_files", "{}")).items() if name != "usage"}
    if told is not None:
        reply["usage"] = {"prompt_tokens": told, "completion_tokens": told}
    outcome = bench.run(reply, repeat_last=True, max_total_tokens=100)
    assert_recorded(bench, outcome, "max_tokens_reached", "max_tokens_reached")
    assert outcome.usage["estimated"] is True
    assert 100 <= outcome.usage["total"] < 10_000
