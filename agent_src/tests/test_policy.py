"""What a question may take and has taken: every limit by its value, every count, and what is left for a delegate."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glasslab import policy
from glasslab.models import Usage
from glasslab.policy import LIMITS, Budget, Limits, limits_of
from glasslab.settings import Settings
from glasslab.statuses import EXIT_CODES

NONE = {"prompt": 0, "completion": 0, "reasoning": 0, "total": 0}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall clock of a budget, to be put forward by hand."""
    now = [100.0]
    monkeypatch.setattr(policy, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def used(**more: Any) -> Usage:
    return Usage(**({"prompt": 10, "completion": 5, "reasoning": 2} | more))


def test_what_is_allowed_unless_it_is_said() -> None:
    assert Limits() == Limits(turns=6, tool_calls=None, tokens=None, seconds=None, cost=None, calls_a_turn=None)


def test_each_limit_has_its_setting(clean_home: Path) -> None:
    given = {
        "max_turns": 2,
        "max_tool_calls": 3,
        "max_total_tokens": 4,
        "max_seconds": 5.5,
        "max_cost": 6.5,
        "max_tool_calls_per_turn": 7,
    }
    base = {"hec_url": "http://127.0.0.1:1", "hec_token": "t", "hec_token_mcp": "t", "model": "m"}
    made = Settings.load(**base, model_base_url="http://127.0.0.1:1/v1", **given)
    assert limits_of(made) == Limits(turns=2, tool_calls=3, tokens=4, seconds=5.5, cost=6.5, calls_a_turn=7)


def test_each_reason_is_a_status_with_a_remedy() -> None:
    for status, remedy in LIMITS.values():
        assert EXIT_CODES[status] == 3
        assert " or " in remedy or ": " in remedy


def test_at_the_beginning_nothing_is_taken(clock: list[float]) -> None:
    budget = Budget(Limits(6, 5, 100, 9.0, 1.0, 3))
    assert (budget.turns, budget.tool_calls, budget.estimated, budget.delegated) == (0, 0, False, {})
    assert (budget.tokens, budget.cost, budget.extra, budget.usage) == (NONE, None, {}, NONE)
    assert (budget.seconds, budget.seconds_left, budget.on_last_turn) == (0.0, 9.0, False)
    assert budget.left == budget.limits
    assert budget.exceeded() is None


def test_without_limits_nothing_is_left_to_say() -> None:
    budget = Budget(Limits(6))
    budget.count_usage(used(cost=0.5))
    budget.count_tool_call()
    assert budget.seconds_left is None
    assert budget.left == Limits(6)
    assert budget.exceeded(1000) is None


def test_seconds_are_the_wall_clocks_to_the_millisecond(clock: list[float]) -> None:
    budget = Budget(Limits(seconds=2.0))
    clock[0] += 1.23456
    assert (budget.seconds, budget.seconds_left, budget.exceeded()) == (1.235, pytest.approx(0.765), None)
    clock[0] += 0.76544
    assert (budget.seconds_left, budget.exceeded()) == (0.0, "deadline_reached")
    clock[0] += 5
    assert (budget.seconds_left, budget.left.seconds) == (0.0, 0.0), "never less than none"


def test_tokens_are_added_up_whatever_a_reply_leaves_out() -> None:
    budget = Budget(Limits())
    budget.count_usage(used())
    budget.count_usage(Usage(prompt=None, completion=None, reasoning=None))
    assert budget.tokens == {"prompt": 10, "completion": 5, "reasoning": 2, "total": 15}
    budget.count_usage(used(prompt=1, completion=1, reasoning=1))
    assert budget.tokens == {"prompt": 11, "completion": 6, "reasoning": 3, "total": 17}
    assert budget.usage == budget.tokens
    assert budget.estimated is False


def test_that_tokens_are_estimated_stays_said() -> None:
    budget = Budget(Limits())
    budget.count_usage(used(estimated=True))
    budget.count_usage(used())
    assert (budget.estimated, budget.extra) == (True, {"estimated": True})
    assert budget.usage == {**budget.tokens, "estimated": True}


def test_a_cost_is_known_when_that_of_every_reply_is() -> None:
    budget = Budget(Limits())
    budget.count_usage(used(cost=0.1))
    budget.count_usage(used(cost=0.2))
    assert (budget.cost, budget.extra) == (0.3, {"cost": 0.3})
    budget.count_usage(used(cost=0.0))
    assert budget.cost == 0.3, "nothing is a price, too"
    budget.count_usage(used(cost=None))
    assert (budget.cost, budget.extra) == (None, {})


def test_a_cost_is_told_to_the_billionth() -> None:
    budget = Budget(Limits())
    budget.count_usage(used(cost=0.12345678949))
    assert budget.cost == 0.123456789


@pytest.mark.parametrize(("turns", "reason"), [(1, None), (2, "max_steps_reached"), (3, "max_steps_reached")])
def test_turns(turns: int, reason: str | None) -> None:
    budget = Budget(Limits(turns=2))
    for _ in range(turns):
        budget.count_turn()
    assert (budget.turns, budget.exceeded(), budget.on_last_turn) == (turns, reason, turns >= 2)
    assert budget.left.turns == 2 - turns


@pytest.mark.parametrize(
    ("asked", "reason"), [(0, None), (1, None), (2, "max_tool_calls_reached"), (4, "too_many_calls_in_a_turn")]
)
def test_tool_calls_in_all_and_in_a_turn(asked: int, reason: str | None) -> None:
    budget = Budget(Limits(tool_calls=3, calls_a_turn=3))
    budget.count_tool_call()
    budget.count_tool_call()
    assert (budget.tool_calls, budget.left.tool_calls, budget.left.calls_a_turn) == (2, 1, 3)
    assert budget.exceeded(asked) == reason


def test_no_less_than_no_call_is_left() -> None:
    budget = Budget(Limits(tool_calls=1))
    for _ in range(2):
        budget.count_tool_call()
        assert budget.left.tool_calls == 0


def test_as_many_calls_in_a_turn_as_are_allowed() -> None:
    assert Budget(Limits(calls_a_turn=2)).exceeded(2) is None
    assert Budget(Limits(calls_a_turn=2)).exceeded(3) == "too_many_calls_in_a_turn"
    assert Budget(Limits(tool_calls=0)).exceeded() is None
    assert Budget(Limits(tool_calls=0)).exceeded(1) == "max_tool_calls_reached"


@pytest.mark.parametrize(
    ("tokens", "reason", "left"), [(16, None, 1), (15, "max_tokens_reached", 0), (9, "max_tokens_reached", 0)]
)
def test_tokens(tokens: int, reason: str | None, left: int) -> None:
    budget = Budget(Limits(tokens=tokens))
    budget.count_usage(used())
    assert (budget.exceeded(), budget.left.tokens) == (reason, left)


@pytest.mark.parametrize(
    ("cost", "reason", "left"), [(0.75, None, 0.25), (0.5, "max_cost_reached", 0.0), (0.4, "max_cost_reached", 0.0)]
)
def test_cost(cost: float, reason: str | None, left: float) -> None:
    budget = Budget(Limits(cost=cost))
    budget.count_usage(used(cost=0.5))
    assert (budget.exceeded(), budget.left.cost) == (reason, left)


def test_a_cost_that_is_not_known_cannot_be_kept_to() -> None:
    budget = Budget(Limits(cost=1.0))
    assert budget.exceeded() is None, "nothing was asked yet"
    budget.count_usage(used(cost=None))
    assert budget.exceeded() == "cost_unknown"
    assert Budget(Limits()).exceeded() is None
    free = Budget(Limits())
    free.count_usage(used(cost=None))
    assert free.exceeded() is None


def test_what_a_delegate_took_is_a_part_of_the_whole() -> None:
    budget, taken = Budget(Limits(turns=6, tool_calls=9)), Budget(Limits())
    budget.count_turn()
    budget.count_tool_call()
    budget.count_usage(used(cost=0.5))
    for _ in range(2):
        taken.count_turn()
        taken.count_tool_call()
        taken.count_usage(used(cost=0.25, estimated=True))
    taken.count_tool_call()
    budget.count_delegate(taken)
    assert budget.delegated == {"sessions": 1, "turns": 2, "tool_calls": 3, "tokens": 30}
    assert budget.tokens == {"prompt": 30, "completion": 15, "reasoning": 6, "total": 45}
    assert (budget.cost, budget.estimated, budget.turns, budget.tool_calls) == (1.0, True, 1, 4)
    assert budget.left == Limits(turns=3, tool_calls=5)
    budget.count_delegate(taken)
    assert budget.delegated == {"sessions": 2, "turns": 4, "tool_calls": 6, "tokens": 60}
    assert (budget.on_last_turn, budget.exceeded()) == (False, None)
    budget.count_turn()
    assert (budget.on_last_turn, budget.exceeded()) == (True, "max_steps_reached")


def test_a_delegate_without_a_price_makes_the_cost_unknown_and_an_honest_one_no_estimate() -> None:
    budget, taken = Budget(Limits(cost=5.0)), Budget(Limits())
    budget.count_usage(used(cost=0.5))
    taken.count_usage(used(cost=None))
    budget.count_delegate(taken)
    assert (budget.cost, budget.estimated, budget.exceeded()) == (None, False, "cost_unknown")


def test_the_clock_starts_when_a_budget_is_made() -> None:
    before = time.monotonic()
    budget = Budget(Limits(seconds=60))
    assert 0 <= budget.seconds <= time.monotonic() - before + 0.001
