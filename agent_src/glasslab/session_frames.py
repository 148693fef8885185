"""What a session's steps look like on record: pure functions from what happened to the agent's frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glasslab import pindiff, pins
from glasslab.context import Call
from glasslab.endings import Outcome
from glasslab.fitting import MAX_NAMED, Reduction
from glasslab.frames import Frame, frame, recordable, sha256_hex
from glasslab.models import ModelError, Reply, Request, Usage
from glasslab.policy import Budget
from glasslab.settings import Settings
from glasslab.tooltypes import ServerInfo, ToolResult
from glasslab.wire import META_REFUSED


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8, as it is recorded."""
    return sha256_hex(str(recordable(text)).encode())


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


def server(info: ServerInfo) -> list[Frame]:
    """mcp.initialize or mcp.discover, and mcp.tools_list."""
    tools = [
        {
            "name": definition.get("name"),
            "description": definition.get("description"),
            "input_schema": definition.get("inputSchema"),
            "description_sha256": pins.description_sha256(definition),
            "definition_sha256": pins.definition_sha256(definition),
        }
        for definition in info.definitions
    ]
    return [
        frame(
            f"mcp.{info.agreed_by}",
            step=0,
            protocol_version=info.protocol_version,
            server_name=info.name,
            server_version=info.version,
            capabilities=info.capabilities,
        ),
        frame("mcp.tools_list", step=0, tools=tools),
    ]


def drift(turn: int, info: ServerInfo, found: pins.Drift, lock: pins.Lock) -> list[Frame]:
    """mcp.tools_drift with what differs, and tools.drift with hashes alone."""
    old, new = pindiff.old_and_new(lock, info.pinned_as, found, info.definitions, info.instructions)
    lines = pindiff.diff(old, new)
    entry = lock.get(info.pinned_as) or {}
    return [
        frame("mcp.tools_drift", step=turn, server=info.pinned_as, old=old, new=new, diff=lines),
        _drift_hashes(turn, info, found, entry.get("tools", {})),
    ]


def _drift_hashes(turn: int, info: ServerInfo, found: pins.Drift, expected: Mapping[str, str]) -> Frame:
    return frame(
        "tools.drift",
        step=turn,
        server=info.pinned_as,
        changed=found.changed,
        missing=found.missing,
        extra=found.extra,
        instructions_changed=found.instructions_changed,
        refused_characters=found.refused_characters,
        expected=expected,
        observed=pins.lock_entry(info.definitions, info.instructions)["tools"],
        files=found.files,
    )


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


def call_request(turn: int, call: Call) -> Frame:
    """mcp.call_tool.request."""
    return frame("mcp.call_tool.request", step=turn, tool=call.name, arguments=call.arguments, tool_call_id=call.id)


def call_result(turn: int, call: Call, result: ToolResult) -> list[Frame]:
    """mcp.call_tool.result and toolcall."""
    return [
        frame(
            "mcp.call_tool.result",
            step=turn,
            tool=call.name,
            tool_call_id=call.id,
            result=result.text,
            characters=len(result.text),
            is_error=result.is_error,
            duration_ms=result.duration_ms,
        ),
        _toolcall(turn, call, result.text, result.duration_ms, result.is_error, bool(result.meta.get(META_REFUSED))),
    ]


def delegate_request(turn: int, call: Call) -> Frame:
    """delegate.request."""
    return frame("delegate.request", step=turn, tool=call.name, arguments=call.arguments, tool_call_id=call.id)


def delegate_result(turn: int, call: Call, outcome: Outcome | None, result: ToolResult) -> list[Frame]:
    """delegate.result and toolcall. Without an outcome there was no delegate."""
    return [
        frame(
            "delegate.result",
            step=turn,
            tool_call_id=call.id,
            delegate_session_id=outcome.session_id if outcome else None,
            status=outcome.status if outcome else "not_started",
            result=result.text,
            characters=len(result.text),
            is_error=result.is_error,
            turns=outcome.turns if outcome else 0,
            tokens=outcome.usage["total"] if outcome else 0,
            seconds=outcome.seconds if outcome else 0.0,
        ),
        _toolcall(turn, call, result.text, result.duration_ms, result.is_error, refused=False),
    ]


def call_refused(turn: int, call: Call) -> list[Frame]:
    """agent.call_refused and toolcall: a call that was never made."""
    error = call.error or ""
    return [
        frame(
            "agent.call_refused",
            step=turn,
            tool=call.name,
            arguments=call.arguments,
            tool_call_id=call.id,
            reason=call.reason,
            error=error,
        ),
        _toolcall(turn, call, error, 0.0, is_error=True, refused=True),
    ]


def _toolcall(turn: int, call: Call, text: str, duration_ms: float, is_error: bool, refused: bool) -> Frame:
    return frame(
        "toolcall",
        step=turn,
        tool=call.name,
        arguments=call.arguments,
        tool_call_id=call.id,
        duration_ms=duration_ms,
        result_sha256=text_sha256(text),
        bytes=len(str(recordable(text)).encode()),
        is_error=is_error,
        refused=refused,
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
