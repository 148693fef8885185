"""`delegate`: the one built-in tool. A part of the question goes to the same loop again, with a clean history.

It is off unless DELEGATE_TOOLS names what a delegate may use. A delegate has smaller limits, a connection of its own to
the tools, a session and chain of its own, and no delegate. What it takes counts against its parent's limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from glasslab import tool_frames
from glasslab.context import Call
from glasslab.endings import Ended, Findings, Outcome
from glasslab.models.usage import BYTES_A_TOKEN
from glasslab.policy import Budget
from glasslab.recorder import SessionRecorder
from glasslab.settings import Settings
from glasslab.tooltypes import ToolResult

NAME: Final = "delegate"
ANSWER_TOKENS: Final = 2_000
MAX_TASK: Final = 8_000  # characters
PROMPT: Final = (
    "Another agent has handed you a part of its work. You know nothing of the rest: do what the task says, and answer "
    f"with what it asks for and nothing else, in at most {ANSWER_TOKENS} tokens."
)
# What ends a delegate and its parent with it: no log, no step; and what is wrong with the tools is wrong for both.
SHARED_ENDS: Final = (
    "log_unreachable",
    "log_rejected",
    "tool_drift",
    "tool_server_unreachable",
    "cancelled",
    "internal_error",
)

NO_TURNS: Final = ToolResult("Error: no turn would be left to read a delegate's answer; do it without", True)


def definition(settings: Settings) -> dict[str, Any]:
    """Return the tool's definition, in MCP's form."""
    tools = (settings.delegate_tools or "").replace(",", ", ")
    return {
        "name": NAME,
        "description": (
            f"Hand one part of the work to another agent that has these tools: {tools}. It sees nothing of this "
            f"conversation, so the task has to say everything. It returns an answer of at most {ANSWER_TOKENS} tokens."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_TASK,
                    "description": "What to do, and what to answer with.",
                }
            },
            "required": ["task"],
            "additionalProperties": False,
        },
    }


def chosen(tools: Mapping[str, dict[str, Any]], settings: Settings, for_delegate: bool) -> dict[str, dict[str, Any]]:
    """Return the tools of a delegate, or its parent's with this one; without the setting they stay as they are."""
    if settings.delegate_tools is None:
        return dict(tools)
    if not for_delegate:
        return {**tools, NAME: definition(settings)}
    return {name: tools[name] for name in tools if name in settings.delegate_tools.split(",")}


def settings_of(settings: Settings, budget: Budget) -> Settings | None:
    """Return the settings of a delegate: its own limits, and never more than its parent has left.

    None when no model call would be left for the parent to read the answer.
    """
    left = budget.left
    turns = min(settings.delegate_turns, left.turns - 1)
    if turns < 1:
        return None
    calls = settings.delegate_tool_calls
    return settings.model_copy(
        update={
            "max_turns": turns,
            "max_tool_calls": calls if left.tool_calls is None else min(calls, left.tool_calls),
            "max_total_tokens": left.tokens,
            "max_cost": left.cost,
            "max_seconds": left.seconds,
            "last_turn": "answer",
            "system_prompt": f"{settings.system_prompt}\n\n{PROMPT}",
        }
    )


def hand_over(
    call: Call,
    settings: Settings,
    budget: Budget,
    log: SessionRecorder,
    findings: Findings,
    begin: Callable[[Settings, str], tuple[Outcome, Budget]],
) -> ToolResult:
    """Have a delegate do what the call asks for; return what the parent's model is told. Raises Ended.

    `begin` runs it, with its settings and its task; what it took is counted, however it ended.
    """
    budget.count_tool_call()
    made, arguments = settings_of(settings, budget), call.arguments
    if made is None or not isinstance(arguments, dict):
        log.note(*tool_frames.delegate_result(budget.turns, call, None, NO_TURNS))
        return NO_TURNS
    outcome, taken = begin(made, arguments["task"])
    budget.count_delegate(taken)
    result = result_of(outcome)
    log.note(*tool_frames.delegate_result(budget.turns, call, outcome, result))
    findings.ran(call.name, arguments, len(result.text))
    if outcome.status in SHARED_ENDS:
        raise Ended(outcome.status, "delegate", f"a delegate ended: {outcome.problem}")
    return result


def result_of(outcome: Outcome) -> ToolResult:
    """Return what the parent's model is told."""
    if outcome.answer is not None:
        return ToolResult(_cut(outcome.answer), False, outcome.seconds * 1000)
    found = f"\nIt found so far:\n{outcome.so_far}" if outcome.so_far else ""
    text = f"Error: the delegate ended without an answer: {outcome.status}{found}"
    return ToolResult(_cut(text), True, outcome.seconds * 1000)


def _cut(text: str) -> str:
    data = text.encode("utf-8", "backslashreplace")
    most = ANSWER_TOKENS * BYTES_A_TOKEN
    if len(data) <= most:
        return text
    note = f"\n[cut: a delegate's answer has at most {ANSWER_TOKENS} tokens]"
    return data[: most - len(note)].decode("utf-8", "ignore") + note
