"""What a session's own steps look like on record: pure functions from what happened to the agent's frames.

Its tools' are in tool_frames.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glasslab.context import Call
from glasslab.fitting import MAX_NAMED, Reduction
from glasslab.frames import Frame, frame, text_sha256
from glasslab.models import ModelError, Reply, Request, Usage
from glasslab.policy import Budget
from glasslab.settings import Settings


def start(settings: Settings, question: str, more: Mapping[str, Any]) -> list[Frame]:
    """agent.start and session.start. `more`: the session that this one goes on with, and what is attached."""
    return [
        frame(
            "agent.start",
            step=0,
            question=question,
            model=settings.model,
            system_prompt=settings.system_prompt,
            max_turns=settings.max_turns,
            settings=settings.shown(),
            **more,
        ),
        frame("session.start", step=0, model=settings.model, question_sha256=text_sha256(question), **more),
    ]


def reduced(turn: int, limit: int, change: Reduction) -> Frame:
    """context.reduced: what the model no longer gets whole, by hash and frame."""
    whole = {"messages_sha256": change.messages_sha256, "text_sha256": change.text_sha256}
    return frame(
        "context.reduced",
        step=turn,
        how=change.how,
        before=change.before,
        after=change.after,
        limit=limit,
        replaced=change.replaced[-MAX_NAMED:],
        replaced_count=len(change.replaced),
        **({"messages": change.messages, **whole} if change.messages else {}),
        **({"reason": change.reason} if change.reason else {}),
    )


def request(turn: int, asked: Request, **more: str) -> Frame:
    """llm.request: the exact context that the model gets, in chat-completions form whatever its API is."""
    return frame(
        "llm.request",
        step=turn,
        turn=turn,
        messages=asked.messages,
        tools=asked.tools,
        message_count=len(asked.messages),
        **({"tool_choice": "none"} if asked.answer_only else {}),
        **more,
    )


def call_failed(turn: int, model: str, attempt: int, error: ModelError, wait: float | None) -> Frame:
    """llm.failed: an attempt that brought no reply. What the provider said stays out: it may quote the question."""
    return frame("llm.failed", step=turn, model=model, attempt=attempt, reason=error.reason, wait_seconds=wait)


def reply(turn: int, model: str, definitions: Mapping[str, str], got: Reply, usage: Usage, **more: str) -> list[Frame]:
    """llm.response and llm. `definitions` are the hashes of the tools that were offered; `usage` with its cost."""
    estimated: dict[str, Any] = {"estimated": True} if usage.estimated else {}
    cost = {} if usage.cost is None else {"cost": usage.cost, "cost_from": usage.cost_from}
    return [
        frame(
            "llm.response",
            step=turn,
            content=got.content,
            tool_calls=[{"id": r.id, "name": r.name, "arguments": r.arguments} for r in got.tool_requests],
            finish_reason=got.finish_reason,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            reasoning_tokens=usage.reasoning,
            latency_ms=got.latency_ms,
            refusal=got.refusal,
            **estimated,
            **more,
        ),
        frame(
            "llm",
            step=turn,
            model=model,
            definitions=definitions,
            tools_requested=[{"tool": r.name, "arguments": r.arguments} for r in got.tool_requests],
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            reasoning_tokens=usage.reasoning,
            finish_reason=got.finish_reason,
            duration_ms=got.latency_ms,
            **cost,
            **estimated,
            **more,
        ),
    ]


def decision(turn: int, decided: str, calls: Sequence[Call] = (), reason: str | None = None) -> Frame:
    """agent.decision: run_tools, answer or stop."""
    return frame(
        "agent.decision",
        step=turn,
        decision=decided,
        calls=len(calls),
        tools=[call.name for call in calls],
        reason=reason,
    )


def end(
    budget: Budget,
    status: str,
    answer: str | None,
    reason: str | None = None,
    detail: str | None = None,
    so_far: str | None = None,
) -> list[Frame]:
    """agent.final and session end. `reason` is a fixed code; `detail` and `so_far`, the user's, stay in the trace."""
    more: dict[str, Any] = {"reason": reason} if reason else {}
    return [
        frame(
            "agent.final",
            step=budget.turns,
            status=status,
            answer=answer,
            turns=budget.turns,
            seconds=budget.seconds,
            **more,
            **({"detail": detail} if detail else {}),
            **({"so_far": so_far} if so_far else {}),
        ),
        frame(
            "session.end",
            step=budget.turns,
            status=status,
            turns=budget.turns,
            tokens=budget.tokens,
            answer_sha256=None if answer is None else text_sha256(answer),
            **budget.extra,
            **({"delegated": budget.delegated} if budget.delegated else {}),
            **more,
        ),
    ]
