"""What a session's tools look like on record: the servers, drift of the pinned definitions, and each call."""

from __future__ import annotations

from collections.abc import Mapping

from glasslab import pindiff, pins
from glasslab.context import Call
from glasslab.endings import Outcome
from glasslab.frames import Frame, frame, recordable, text_sha256
from glasslab.tooltypes import ServerInfo, ToolResult
from glasslab.wire import META_REFUSED


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
