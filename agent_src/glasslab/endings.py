"""How a session ends: its outcome, what an error means for it, and what is shown where there is no answer."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Final

from glasslab.models import ModelError, Stopped
from glasslab.policy import LIMITS, Budget
from glasslab.recorder import LoggingError
from glasslab.tooltypes import LogFailedAtServer, ToolServerError

MAX_SAID: Final = 2_000
MAX_ARGUMENTS: Final = 120


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a question ended. `problem` is one line for the user, None when all is said by the answer.

    `so_far` is what was found when it was not answered: the tools that ran, the model's words; None without any.
    """

    status: str
    session_id: str
    answer: str | None
    turns: int
    usage: dict[str, Any]
    seconds: float
    problem: str | None = None
    so_far: str | None = None


class Ended(Exception):
    """A session that ends without an answer: status of the contract, a fixed reason code, one line for the user."""

    def __init__(self, status: str, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.status, self.reason = status, reason


class Findings:
    """What a session found on its way, to be shown when it ends without an answer."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._calls: list[str] = []
        self._said: str | None = None

    def heard(self, content: str | None) -> None:
        """Keep the model's words, in place of what it said before."""
        self._said = content.strip()[:MAX_SAID] if content and content.strip() else self._said

    def ran(self, tool: str, arguments: object, characters: int) -> None:
        """Keep that a tool ran."""
        given = json.dumps(arguments, ensure_ascii=False)
        shown = given if len(given) <= MAX_ARGUMENTS else f"{given[:MAX_ARGUMENTS]}..."
        self._calls.append(f"{tool} {shown}: {characters} characters")

    def text(self) -> str | None:
        """Return all of it, a line a tool; None when there is nothing."""
        lines = [*self._calls, *([f"the model: {self._said}"] if self._said else [])]
        return "\n".join(lines) or None


def limit_reached(limit: str, budget: Budget) -> Ended:
    """Return the end that a limit of policy.LIMITS brings."""
    status, remedy = LIMITS[limit]
    return Ended(status, limit, f"stopped after {_count(budget.turns, 'turn')}: {limit}; {remedy}")


def end_when_over(stop: threading.Event, budget: Budget) -> None:
    """End a wait when the session was cancelled, or its time is over. Raises Stopped, Ended."""
    if stop.is_set():
        raise Stopped
    if budget.seconds_left == 0.0:
        raise limit_reached("deadline_reached", budget)


def ending(error: Exception, budget: Budget) -> Ended:
    """Return the end that an error means."""
    match error:
        case Ended():
            return error
        case Stopped():
            return Ended("cancelled", "cancelled", "cancelled; the question was not answered")
        case ModelError() if error.reason == "timeout" and budget.seconds_left == 0.0:
            status, remedy = LIMITS["deadline_reached"]
            return Ended(status, status, f"stopped after {budget.seconds:g} s: {status}; {remedy}")
        case ModelError():
            return Ended(error.status, error.reason, str(error))
        case ToolServerError():
            remedy = "" if "; " in str(error) else "; check the tool server and MCP_SERVER"
            return Ended(error.status, error.status, f"{error}{remedy}")
        case LogFailedAtServer():
            line = str(LoggingError(error.status, error.url, f"the tool server's log: {error.cause}", error.remedy))
            return Ended(error.status, "server_log", line)
        case LoggingError():
            return Ended(error.status, error.status, str(error))
    trace, where = error.__traceback__, "unknown place"
    while trace is not None:
        where, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return Ended("internal_error", "internal_error", f"internal error at {where}: {type(error).__name__}: {error}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
