"""Limits of one question: turns, tool calls, tokens, cost, seconds. What waits for a person: approvals.py."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from glasslab.models import Usage
from glasslab.settings import Settings

# A limit's reason -> the status it ends a session with (statuses.py), and what can be done about it.
LIMITS: Final = {
    "max_steps_reached": ("max_steps_reached", "raise MAX_TURNS or ask for less"),
    "max_tool_calls_reached": ("max_tool_calls_reached", "raise MAX_TOOL_CALLS or ask for less"),
    "too_many_calls_in_a_turn": ("max_tool_calls_reached", "raise MAX_TOOL_CALLS_PER_TURN or ask for less"),
    "max_tokens_reached": ("max_tokens_reached", "raise MAX_TOTAL_TOKENS or ask for less"),
    "max_cost_reached": ("max_cost_reached", "raise MAX_COST or ask for less"),
    "cost_unknown": ("max_cost_reached", "no price is known: set MODEL_PRICES, or unset MAX_COST"),
    "deadline_reached": ("deadline_reached", "raise MAX_SECONDS or ask for less"),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may take; None where nothing is limited. Seconds by the wall clock, cost in US dollars."""

    turns: int = 6
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    calls_a_turn: int | None = None


def limits_of(settings: Settings) -> Limits:
    """Return the limits that the settings name."""
    return Limits(
        settings.max_turns,
        settings.max_tool_calls,
        settings.max_total_tokens,
        settings.max_seconds,
        settings.max_cost,
        settings.max_tool_calls_per_turn,
    )


class Budget:
    """What one question has taken so far, against its limits. Asking never changes anything; `count_` does."""

    def __init__(self, limits: Limits) -> None:
        """The clock starts here."""
        self.limits = limits
        self.turns = 0
        self.tool_calls = 0
        self.estimated = False  # some of the tokens are
        self._replies = self._priced = 0
        self._prompt = self._completion = self._reasoning = 0
        self._cost = 0.0
        self.delegated: dict[str, int] = {}  # what its delegates took, a part of all the rest but the turns
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the question came in."""
        return round(time.monotonic() - self._began, 3)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left, None without a limit; never negative."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.seconds)

    @property
    def on_last_turn(self) -> bool:
        """Whether the model call that was counted last is the last one that is allowed."""
        return self._model_calls >= self.limits.turns

    @property
    def _model_calls(self) -> int:
        return self.turns + self.delegated.get("turns", 0)

    @property
    def left(self) -> Limits:
        """What is left of the limits; None where nothing is limited."""
        limits, tokens = self.limits, self._prompt + self._completion
        return Limits(
            limits.turns - self._model_calls,
            None if limits.tool_calls is None else max(0, limits.tool_calls - self.tool_calls),
            None if limits.tokens is None else max(0, limits.tokens - tokens),
            self.seconds_left,
            None if limits.cost is None else max(0.0, limits.cost - self._cost),
            limits.calls_a_turn,
        )

    @property
    def tokens(self) -> dict[str, int]:
        """Token counts so far: prompt, completion, reasoning (a part of completion), total."""
        return {
            "prompt": self._prompt,
            "completion": self._completion,
            "reasoning": self._reasoning,
            "total": self._prompt + self._completion,
        }

    @property
    def cost(self) -> float | None:
        """US dollars so far; None when some call's cost is not known, or there was none."""
        return round(self._cost, 9) if self._replies and self._priced == self._replies else None

    @property
    def extra(self) -> dict[str, Any]:
        """What is said of the tokens where there is something to say: their cost, and that they are estimated."""
        cost = {} if self.cost is None else {"cost": self.cost}
        return cost | ({"estimated": True} if self.estimated else {})

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts so far, and what is said of them."""
        return self.tokens | self.extra

    def count_turn(self) -> None:
        """Count one model call that is about to be made."""
        self.turns += 1

    def count_usage(self, usage: Usage) -> None:
        """Count what a reply took."""
        self._prompt += usage.prompt or 0
        self._completion += usage.completion or 0
        self._reasoning += usage.reasoning or 0
        self._cost += usage.cost or 0.0
        self._replies += 1
        self._priced += usage.cost is not None
        self.estimated = self.estimated or usage.estimated

    def count_tool_call(self) -> None:
        """Count one tool call that is about to be made."""
        self.tool_calls += 1

    def count_delegate(self, taken: Budget) -> None:
        """Count all that a delegate took, however it ended."""
        self._prompt += taken._prompt
        self._completion += taken._completion
        self._reasoning += taken._reasoning
        self._cost += taken._cost
        self._replies += taken._replies
        self._priced += taken._priced
        self.estimated = self.estimated or taken.estimated
        self.tool_calls += taken.tool_calls
        more = {"sessions": 1, "turns": taken.turns, "tool_calls": taken.tool_calls, "tokens": taken.tokens["total"]}
        self.delegated = {name: self.delegated.get(name, 0) + number for name, number in more.items()}

    def exceeded(self, tool_calls: int = 0) -> str | None:
        """Return the limit (one of LIMITS) that forbids to go on, or None.

        Going on means: these tool calls, then a model call that reads their results. A tool is not run when no turn
        is left to read what it gives.
        """
        limits = self.limits
        if self._model_calls >= limits.turns:
            return "max_steps_reached"
        if limits.calls_a_turn is not None and tool_calls > limits.calls_a_turn:
            return "too_many_calls_in_a_turn"
        if limits.tool_calls is not None and self.tool_calls + tool_calls > limits.tool_calls:
            return "max_tool_calls_reached"
        return self.spent()

    def spent(self) -> str | None:
        """Return the limit of what the model takes (tokens, cost) or of time that is reached, or None.

        These forbid another attempt at the same call, too; what `exceeded` asks beside them is asked between turns.
        """
        limits = self.limits
        if limits.tokens is not None and self._prompt + self._completion >= limits.tokens:
            return "max_tokens_reached"
        if limits.cost is not None and self._cost >= limits.cost:
            return "max_cost_reached"
        if limits.cost is not None and self._priced < self._replies:
            return "cost_unknown"  # a limit that cannot be kept is not one: better to say so after the first call
        if self.seconds_left == 0.0:
            return "deadline_reached"
        return None
