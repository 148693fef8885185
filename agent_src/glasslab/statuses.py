"""How a question can end, as exit codes and as JSON: the contract with whoever calls `glasslab ask`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXIT_CODES: Final[Mapping[str, int]] = {
    "answered": 0,
    "internal_error": 1,
    "max_steps_reached": 3,
    "max_tool_calls_reached": 3,
    "max_tokens_reached": 3,
    "max_cost_reached": 3,
    "deadline_reached": 3,
    "log_unreachable": 4,
    "log_rejected": 4,
    "tool_drift": 5,
    "tool_server_unreachable": 5,
    "model_unreachable": 6,
    "model_refused": 6,
    "model_invalid": 6,
    "input_refused": 7,
    "cancelled": 8,
}
USAGE_ERROR: Final = 2
MAX_QUESTION_CHARACTERS: Final = 20_000
JSON_FIELDS: Final = ("answer", "status", "session_id", "turns", "usage", "seconds")
NO_USAGE: Final[Mapping[str, int]] = {"prompt": 0, "completion": 0, "reasoning": 0, "total": 0}

Result = dict[str, Any]


def question_problem(question: str) -> str | None:
    """Return why a question cannot be asked, as one line with the remedy, or None."""
    if not question.strip():
        return "the question is empty; give one, or - to read it from standard input"
    if len(question) > MAX_QUESTION_CHARACTERS:
        most = f"at most {MAX_QUESTION_CHARACTERS}: put the rest in a document"
        return f"the question has {len(question)} characters; {most}"
    try:
        question.encode()
    except UnicodeEncodeError:
        return "the question is not valid UTF-8; check the terminal's encoding (LC_ALL=C.UTF-8)"
    return None


def refused(problem: str) -> Result:
    """Return the result of a question that was not asked."""
    return unasked("input_refused", problem)


def unasked(status: str, problem: str) -> Result:
    """Return a result without a session."""
    return {
        "answer": None,
        "status": status,
        "session_id": None,
        "turns": 0,
        "usage": dict(NO_USAGE),
        "seconds": 0.0,
        "problem": problem,
    }
