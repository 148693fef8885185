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
    named = ("changed", "missing", "extra", "files", "refused_characters")
    parts = [f"{name} {_names(event.get(name), 'name')}" for name in named if event.get(name)]
    return f"{_get(event, 'server', 60)} differs from the lock: {'; '.join(parts) or 'instructions'}"


def _guardrail(event: Event) -> str:
    found = event.get("findings")
    items = sorted(found.items())[:8] if isinstance(found, dict) else []
    rules = ", ".join(f"{visible(number, 12)} {visible(rule, 60)}" for rule, number in items)
    how = "REFUSED" if event.get("action") == "refuse" else _get(event, "action", 20)
    return f"{how}: {_get(event, 'stage', 20)}{' of ' + _get(event, 'tool', 60) if event.get('tool') else ''}: {rules}"


def _origin(event: Event) -> str:
    """Return what a session comes from: a session that it goes on with, or the one whose delegate it is."""
    ways = (("continues", "goes on with"), ("parent_session_id", "delegate of"))
    return "".join(f"; {words} {_get(event, name, 40)}" for name, words in ways if event.get(name))


def _reduced(event: Event) -> str:
    size = f"{_get(event, 'before', 12)} to {_plural(event.get('after'), 'token')} of {_get(event, 'limit', 12)}"
    what = _plural(event.get("replaced_count"), "result")
    return f"{_get(event, 'how', 20)}: {what}, {size}" + (
        f": {_get(event, 'reason', 60)}" if event.get("reason") else ""
    )


def _approval(event: Event) -> str:
    if event.get("decision") is None:
        waits = f"waits at most {_get(event, 'seconds', 12)} s"
        return f"{_get(event, 'tool', 60)} of {_get(event, 'server', 40)} ({_get(event, 'reason', 80)}) {waits}"
    word = "approved" if event.get("decision") == "approved" else "REFUSED"
    who = "" if event.get("by") is None else f" by user {_get(event, 'by', 12)}"
    why = f": {_get(event, 'why', 80)}" if event.get("why") else ""
    return f"{word}: {_get(event, 'tool', 60)} of {_get(event, 'server', 40)}, {_get(event, 'how', 20)}{who}{why}"


def _protocol(event: Event) -> str:
    server = f"{_get(event, 'server_name', 60)} {_get(event, 'server_version', 20)}"
    return f"{server}, MCP {_get(event, 'protocol_version', 20)}"


def _flow(event: Event) -> str:
    ends = []
    for name in ("source", "destination"):
        address = event.get(name) or (event.get("source_mac") if name == "source" else None) or "several"
        port = event.get(f"{name}_port")
        ends.append(visible(address, 45) + ("" if port is None else f":{visible(port, 5)}"))
    times = f", {_plural(event.get('count'), 'packet')}" if event.get("count") != 1 else ""
    word = "REFUSED" if event.get("verdict") == "denied" else _get(event, "verdict", 20)
    protocol = f"{_get(event, 'protocol', 20)} " if event.get("protocol") else ""
    return f"{word}: {_get(event, 'flow', 40)}: {protocol}{' to '.join(ends)}{times}"


def _network_drift(event: Event) -> str:
    drift = event.get("drift")
    if not isinstance(drift, dict) or not isinstance(drift.get("found"), list):
        return f"ERROR: {_get(event, 'drift')}"
    how = f"{_get(drift, 'outcome', 20)} after {_get(drift, 'milliseconds', 12)} ms"
    return f"ERROR: {how}: {'; '.join(visible(text, 80) for text in drift['found'][:5])}"


def _receipt(event: Event) -> str:
    receipt = event.get("receipt")
    counts = receipt.get("counts") if isinstance(receipt, dict) else None
    return f"{_get(event, 'name', 60)} sha256 {_get(event, 'sha256', 12)} {visible(counts or '')}".rstrip()


TEMPLATES: Final[Mapping[str, Callable[[Event], str]]] = {
    "agent.start": lambda e: f"{_get(e, 'question')}{_origin(e)}",
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
    "delegate.request": lambda e: _get(e, "arguments"),
    "delegate.result": lambda e: (
        f"{_get(e, 'status', 40)}, {_plural(e.get('turns'), 'turn')}, {_plural(e.get('characters'), 'character')};"
        f" session {_get(e, 'delegate_session_id', 40)}"
    ),
    "context.reduced": _reduced,
    "agent.call_refused": lambda e: f"REFUSED: {_get(e, 'tool', 60)} ({_get(e, 'reason', 60)})",
    "agent.final": _final,
    "session.start": lambda e: f"model {_get(e, 'model', 80)}{_origin(e)}",
    "tools.drift": _drift,
    "mcp.tools_drift": lambda e: f"{_get(e, 'server', 60)}: {_plural(_count(e, 'diff'), 'line')} of difference",
    "guardrail": _guardrail,
    "approval.request": _approval,
    "approval.decision": _approval,
    "session.end": lambda e: f"{_get(e, 'status', 40)}, {_plural(e.get('turns'), 'turn')}{_session_tokens(e)}",
    "session.verified": lambda e: (
        f"session {_get(e, 'verified_session', 40)}: "
        + ("whole" if e.get("whole") is True else f"{_plural(e.get('found'), 'finding')}: {_get(e, 'problems')}")
    ),
    "service.start": lambda e: f"model {_get(e, 'model', 80)}",
    "llm": _llm,
    "llm.failed": lambda e: (
        f"ERROR: attempt {_get(e, 'attempt', 12)}: {_get(e, 'reason', 60)}"
        + (f", again in {_get(e, 'wait_seconds', 12)} s" if e.get("wait_seconds") is not None else "")
    ),
    "toolcall": _toolcall,
    "mcp.get_prompt.request": lambda e: f"{_get(e, 'server', 40)}: {_get(e, 'name', 60)} {_get(e, 'arguments')}",
    "mcp.get_prompt.result": lambda e: f"{_get(e, 'name', 60)}: {_plural(e.get('characters'), 'character')}",
    "mcp.read_resource.request": lambda e: f"{_get(e, 'server', 40)}: {_get(e, 'name')}",
    "mcp.read_resource.result": lambda e: f"{_get(e, 'name', 60)}: {_plural(e.get('characters'), 'character')}",
    "attachment": lambda e: f"{_get(e, 'what', 12)} {_get(e, 'name', 60)}: {_get(e, 'bytes', 12)} bytes",
    "mcp.failed": lambda e: (
        f"attempt {_get(e, 'attempt', 12)} of {_get(e, 'request', 40)}; again in {_get(e, 'wait_seconds', 12)} s"
    ),
    "toolcall.refused": lambda e: f"REFUSED: {_get(e, 'requested_path')} ({_get(e, 'reason', 60)})",
    "network.start": lambda e: f"{_get(e, 'reason', 20)}; before it {_get(e, 'previous_session', 60)}",
    "network.flow": _flow,
    "network.drift": _network_drift,
    "network.receipt": _receipt,
    "network.lost": lambda e: f"ERROR: {_get(e, 'count', 20)} {_get(e, 'what', 20)} lost: {_get(e, 'reason')}",
}


def happened(event: Event) -> str:
    """Return what happened in a frame, in one line; its summary when its kind is unknown."""
    template = TEMPLATES.get(str(event.get("kind")))
    return template(event) if template else _get(event, "summary")
