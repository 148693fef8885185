"""What the real APIs refuse in a conversation: `strict: true` makes the scripted model refuse it too.

For tests of agents: a reply that spoils the history shows only in the next call, and only where somebody looks. The
strictest of the servers in use is the measure. Each function returns why a request is refused, or None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
CHAT_KEYS: Final = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_details"},
    "tool": {"role", "content", "tool_call_id"},
}
BLOCK_KEYS: Final = {
    "text": {"type", "text"},
    "tool_use": {"type", "id", "name", "input"},
    "tool_result": {"type", "tool_use_id", "content", "is_error"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}


class _Refused(Exception):
    pass


def _need(condition: object, text: str) -> None:
    if not condition:
        raise _Refused(text)


def chat_problem(request: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return why a chat completion is refused; there is nothing to refuse in its headers."""
    try:
        _unicode(request)
        _chat_tools(request)
        _chat(request["messages"])
    except _Refused as refused:
        return str(refused)
    return None


def messages_problem(request: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return why a request to Anthropic Messages is refused."""
    try:
        _unicode(request)
        _need(any(name.lower() == "anthropic-version" for name in headers), "the header anthropic-version is required")
        most = request.get("max_tokens")
        _need(type(most) is int and most > 0, "max_tokens: required, more than 0")
        _need(isinstance(request.get("system", "x"), str), "system: must be text")
        tools = request.get("tools", [])
        for tool in tools:
            _need(NAME.fullmatch(tool["name"]), f"tools: bad name {tool['name']!r}")
            _need(tool["input_schema"].get("type") == "object", "tools: input_schema.type must be object")
        _need("tool_choice" not in request or tools, "tool_choice without tools")
        _turns(request["messages"], bool(tools))
    except _Refused as refused:
        return str(refused)
    return None


def _unicode(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise _Refused(f"the body is no valid JSON in UTF-8: {error}") from None


def _chat_tools(request: Mapping[str, Any]) -> None:
    tools = request.get("tools", [])
    for tool in tools:
        _need(NAME.fullmatch(tool["function"]["name"]), "tools: bad function name")
        _need(tool["function"]["parameters"].get("type") == "object", "tools: parameters must be an object's schema")
    _need("tool_choice" not in request or tools, "tool_choice is only allowed when tools are specified")


def _chat(messages: Sequence[Any]) -> None:
    _need(messages, "messages: at least one")
    waiting: list[str] = []
    for number, message in enumerate(messages):
        where, role = f"messages[{number}]", message.get("role")
        _need(role in CHAT_KEYS, f"{where}: bad role {role!r}")
        _need(
            not set(message) - CHAT_KEYS[role], f"{where}: unknown parameter {sorted(set(message) - CHAT_KEYS[role])}"
        )
        if role == "tool":
            _need(message["tool_call_id"] in waiting, f"{where}: no call waits for {message['tool_call_id']!r}")
            waiting.remove(message["tool_call_id"])
        else:
            _need(not waiting, f"{where}: tool_call_ids without a result: {waiting}")
        if role == "assistant" and "tool_calls" in message:
            waiting = [_chat_call(call, where) for call in message["tool_calls"]]
            _need(waiting and len(set(waiting)) == len(waiting), f"{where}: tool_calls empty, or ids not unique")
            _need(message["content"] is None or isinstance(message["content"], str), f"{where}: bad content")
        else:
            _need(isinstance(message["content"], str), f"{where}: content must be text")
    _need(not waiting, f"tool_call_ids without a result: {waiting}")
    _need(messages[-1]["role"] in ("user", "tool"), "the last message must be the user's, or a result")


def _chat_call(call: Mapping[str, Any], where: str) -> str:
    function = call["function"]
    _need(call["type"] == "function" and NAME.fullmatch(function["name"]), f"{where}: bad function name")
    _need(isinstance(call["id"], str) and 0 < len(call["id"]) <= 64, f"{where}: bad id {call['id']!r}")
    try:
        arguments = json.loads(function["arguments"], parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        arguments = None
    _need(isinstance(arguments, dict), f"{where}: arguments are no JSON object")
    return str(call["id"])


def _turns(turns: Sequence[Any], tools: bool) -> None:
    _need(turns and turns[0]["role"] == "user", "messages: must begin with the user")
    _need(turns[-1]["role"] == "user", "messages: must end with the user")
    waiting: list[str] = []
    seen: set[str] = set()
    for number, turn in enumerate(turns):
        where, role = f"messages.{number}", turn["role"]
        _need(role == ("assistant" if number % 2 else "user"), f"{where}: roles must alternate")
        blocks = turn["content"]
        _need(isinstance(blocks, list) and blocks, f"{where}: content must not be empty")
        for block in blocks:
            _block(block, where)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        _need(sorted(results) == sorted(waiting), f"{where}: tool_use ids without tool_result, or the other way round")
        first = [block["type"] for block in blocks[: len(results)]]
        _need(set(first) <= {"tool_result"}, f"{where}: tool_result blocks must begin the turn")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _need(len(set(waiting)) == len(waiting) and not seen & set(waiting), f"{where}: tool_use ids must be unique")
        _need(role == "assistant" or not waiting, f"{where}: tool_use in a user turn")
        _need(tools or not (waiting or results), f"{where}: tool blocks, and no tools are defined")
        thought = [block["type"].endswith("thinking") for block in blocks]
        _need(thought == sorted(thought, reverse=True), f"{where}: thinking must come first")
        seen |= set(waiting)


def _block(block: Mapping[str, Any], where: str) -> None:
    kind = block.get("type")
    _need(kind in BLOCK_KEYS, f"{where}: unknown block {kind!r}")
    _need(not set(block) - BLOCK_KEYS[str(kind)], f"{where}: unknown field in a {kind} block")
    match kind:
        case "text":
            _need(block["text"].strip(), f"{where}: text blocks must hold more than blanks")
        case "tool_use":
            _need(ID.fullmatch(block["id"]), f"{where}: bad tool_use id {block['id']!r}")
            _need(NAME.fullmatch(block["name"]), f"{where}: bad tool_use name")
            _need(isinstance(block["input"], dict), f"{where}: tool_use input must be an object")
        case "tool_result":
            for inner in block.get("content", []):
                _block(inner, where)
