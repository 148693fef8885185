"""Limits of one question: turns, tool calls, tokens, seconds. Cost and approvals have their place here, too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from glasslab.models import Usage


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may take; None where nothing is limited. Seconds by the wall clock."""

    turns: int = 6
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None


class Budget:
    """What one question has taken so far, against its limits. Asking never changes anything; `count_` does."""

    def __init__(self, limits: Limits) -> None:
        """The clock starts here."""
        self.limits = limits
        self.turns = 0
        self.tool_calls = 0
        self._prompt = self._completion = self._reasoning = 0
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
    def usage(self) -> dict[str, Any]:
        """Token counts so far: prompt, completion, reasoning (a part of completion), total."""
        return {
            "prompt": self._prompt,
            "completion": self._completion,
            "reasoning": self._reasoning,
            "total": self._prompt + self._completion,
        }

    def count_turn(self) -> None:
        """Count one model call that is about to be made."""
        self.turns += 1

    def count_usage(self, usage: Usage) -> None:
        """Count a call's tokens; what the provider did not say counts as none."""
        self._prompt += usage.prompt or 0
        self._completion += usage.completion or 0
        self._reasoning += usage.reasoning or 0

    def count_tool_call(self) -> None:
        """Count one tool call that is about to be made."""
        self.tool_calls += 1

    def exceeded(self, tool_calls: int = 0) -> str | None:
        """Return the status of the limit that forbids to go on, or None.

        Going on means: these tool calls, then a model call that reads their results. A tool is not run when no turn
        is left to read what it gives.
        """
        limits = self.limits
        if self.turns >= limits.turns:
            return "max_steps_reached"
        if limits.tool_calls is not None and self.tool_calls + tool_calls > limits.tool_calls:
            return "max_tool_calls_reached"
        if limits.tokens is not None and self._prompt + self._completion >= limits.tokens:
            return "max_tokens_reached"
        if self.seconds_left == 0.0:
            return "deadline_reached"
        return None
