"""What happened in a frame, in one short line made from its fields by fixed templates.

Everything in a frame may come from a model, a document or an attacker. So a value is clipped and its control, format
and other invisible characters are shown as escapes: no text of theirs can drive a terminal or hide in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from glasslab.guardrails import escaped

CLIP: Final = 160

Event = Mapping[str, Any]


def visible(value: object, clip: int = CLIP) -> str:
    """Return a value as text of at most `clip` characters, in which every invisible character is an escape."""
    text = value if isinstance(value, str) else "?" if value is None else json.dumps(value, ensure_ascii=False)
    cut = len(text) > clip
    shown = "".join(escaped(letter) for letter in text[:clip])
    return f"{shown}…" if cut or len(shown) > 6 * clip else shown


def _get(event: Event, name: str, clip: int = CLIP) -> str:
    return visible(event.get(name), clip)


def _count(event: Event, name: str) -> int:
    value = event.get(name)
    return len(value) if isinstance(value, list | dict | str) else 0


def _plural(number: object, word: str) -> str:
    return f"{visible(number, 20)} {word}{'' if number == 1 else 's'}"


def _names(value: object, key: str) -> str:
    items = value if isinstance(value, list) else []
    return ", ".join(visible(item.get(key) if isinstance(item, dict) else item, 60) for item in items[:8])


def _session_tokens(event: Event) -> str:
    tokens = event.get("tokens")
    total = tokens.get("total") if isinstance(tokens, dict) else None
    return f", {_plural(total, 'token')}" if total is not None else ""


def _tokens(event: Event) -> str:
    return f"{_get(event, 'prompt_tokens', 20)} + {_get(event, 'completion_tokens', 20)} tokens"


def _reply(event: Event) -> str:
    calls = event.get("tool_calls")
    if isinstance(calls, list) and calls:
        return f"{_plural(len(calls), 'call')}: {_names(calls, 'name')}; {_tokens(event)}"
    return f"{_plural(_count(event, 'content'), 'character')}, {_get(event, 'finish_reason', 30)}; {_tokens(event)}"


def _decision(event: Event) -> str:
    decision = event.get("decision")
    if decision == "run_tools":
        return f"run {_plural(event.get('calls'), 'call')}: {_names(event.get('tools'), 'name')}"
    if decision == "answer":
        return "the answer is final"
    return f"{visible(decision, 40)}: {_get(event, 'reason', 80)}"


def _path_check(event: Event) -> str:
    if event.get("inside_sandbox") is True:
        return f"{_get(event, 'requested_path')} is inside"
    return f"REFUSED: {_get(event, 'requested_path')} ({_get(event, 'reason', 60)})"


def _result(event: Event) -> str:
    if event.get("is_error") is True:
        return f"ERROR from {_get(event, 'tool', 60)}: {_get(event, 'result')}"
    size = _plural(event.get("characters"), "character")
    return f"{_get(event, 'tool', 60)}: {size} in {_get(event, 'duration_ms', 12)} ms"


def _final(event: Event) -> str:
    how = f"{_get(event, 'status', 40)}, {_plural(event.get('turns'), 'turn')}, {_get(event, 'seconds', 12)} s"
    if event.get("answer"):
        return f"{how}: {_get(event, 'answer')}"
    return f"{how}, no answer" + (f": {_get(event, 'detail')}" if event.get("detail") else "")


def _toolcall(event: Event) -> str:
    how = "refused" if event.get("refused") is True else "error" if event.get("is_error") is True else "done"
    size, time = _plural(event.get("bytes"), "byte"), _get(event, "duration_ms", 12)
    return f"{_get(event, 'tool', 60)} {_get(event, 'arguments')} {how}: {size} in {time} ms"


def _llm(event: Event) -> str:
    tools = _names(event.get("tools_requested"), "tool")
    return f"{_tokens(event)}, {_get(event, 'finish_reason', 30)}" + (f", asks for {tools}" if tools else "")


def _drift(event: Event) -> str:
    parts = [f"{name} {_names(event.get(name), 'name')}" for name in ("changed", "missing", "extra") if event.get(name)]
    return f"{_get(event, 'server', 60)} differs from the lock: {'; '.join(parts) or 'instructions'}"


def _protocol(event: Event) -> str:
    server = f"{_get(event, 'server_name', 60)} {_get(event, 'server_version', 20)}"
    return f"{server}, MCP {_get(event, 'protocol_version', 20)}"


TEMPLATES: Final[Mapping[str, Callable[[Event], str]]] = {
    "agent.start": lambda e: _get(e, "question"),
    "server.start": lambda e: f"folder {_get(e, 'sandbox')}, pid {_get(e, 'pid', 12)}",
    "mcp.initialize": _protocol,
    "mcp.discover": _protocol,
    "mcp.tools_list": lambda e: f"{_plural(_count(e, 'tools'), 'tool')}: {_names(e.get('tools'), 'name')}",
    "llm.request": lambda e: f"turn {_get(e, 'turn', 12)}: {_plural(e.get('message_count'), 'message')}",
    "llm.response": _reply,
    "agent.decision": _decision,
    "mcp.call_tool.request": lambda e: f"{_get(e, 'tool', 60)} {_get(e, 'arguments')}",
    "server.path_check": _path_check,
    "server.list_files": lambda e: f"{_plural(_count(e, 'files'), 'file')}: {_names(e.get('files'), 'name')}",
    "server.read_file": lambda e: (
        f"{_get(e, 'bytes_read', 20)} of {_plural(e.get('bytes_total'), 'byte')} of {_get(e, 'path')}"
    ),
    "mcp.call_tool.result": _result,
    "agent.call_refused": lambda e: f"REFUSED: {_get(e, 'tool', 60)} ({_get(e, 'reason', 60)})",
    "agent.final": _final,
    "session.start": lambda e: f"model {_get(e, 'model', 80)}",
    "tools.drift": _drift,
    "session.end": lambda e: f"{_get(e, 'status', 40)}, {_plural(e.get('turns'), 'turn')}{_session_tokens(e)}",
    "llm": _llm,
    "toolcall": _toolcall,
    "toolcall.refused": lambda e: f"REFUSED: {_get(e, 'requested_path')} ({_get(e, 'reason', 60)})",
}


def happened(event: Event) -> str:
    """Return what happened in a frame, in one line; its summary when its kind is unknown."""
    template = TEMPLATES.get(str(event.get("kind")))
    return template(event) if template else _get(event, "summary")
