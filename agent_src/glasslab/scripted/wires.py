"""The two APIs that the scripted model speaks: a turn as a reply of each, whole or streamed. Does no I/O."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from glasslab.scripted.script import Turn

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
PIECE: Final = 12  # characters of a streamed piece
STOP_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

Value = dict[str, Any]


def reply(path: str, turn: Turn, model: str) -> Value | None:
    """Return the turn as a reply of the API at that path; None when it is written in the other one's form."""
    if path == MESSAGES:
        return _message(turn, model)
    return None if turn.message is None else _completion(turn, model)


def streamed(path: str, whole: Value) -> bytes:
    """Return a reply as the server-sent events in which that API streams it."""
    if path == MESSAGES:
        return b"".join(_event(event, str(event["type"])) for event in _message_events(whole))
    return b"".join(_event(chunk) for chunk in _chunks(whole)) + b"data: [DONE]\n\n"


def error(path: str, status: int, text: str) -> Value:
    """Return an error in that API's form."""
    said = f"scripted model: {text}"
    if path == MESSAGES:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    return {"error": {"message": said, "type": "scripted_error", "code": status}}


def _completion(turn: Turn, model: str) -> Value:
    made: Value = {
        "id": f"gen-{int(time.time())}-{uuid.uuid4().hex[:20]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": turn.message, "finish_reason": turn.reason, "logprobs": None}],
    }
    return made if turn.usage is None else {**made, "usage": turn.usage}


def _message(turn: Turn, model: str) -> Value:
    blocks, reason, usage = turn.content, turn.reason, turn.usage
    if turn.message is not None:
        blocks, reason = list(_blocks(turn.message)), STOP_REASONS.get(turn.reason, turn.reason)
        usage = usage and {"input_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens")}
    made = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model, "content": blocks}
    made |= {"stop_reason": reason, "stop_sequence": None}
    return made if usage is None else {**made, "usage": usage}


def _blocks(message: Value) -> Iterator[Value]:
    if message.get("content"):
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            given = json.loads(function["arguments"] or "{}")
        except ValueError:
            given = function["arguments"]  # as it is: what is malformed in one form stays so in the other
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _event(value: Value, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def _chunks(whole: Value) -> Iterator[Value]:
    choice = whole["choices"][0]
    message = choice["message"]
    frame = {**{name: whole[name] for name in ("id", "created", "model")}, "object": "chat.completion.chunk"}

    def chunk(delta: Value, finish: str | None = None) -> Value:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("content", "refusal"):
        for piece in _pieces(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        begun = {"name": function["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": begun}]})
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if "usage" in whole:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def _message_events(whole: Value) -> Iterator[Value]:
    usage = whole.get("usage") or {}
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage.get("output_tokens")}}
    yield {"type": "message_stop"}


def _deltas(block: Value) -> tuple[Value, list[Value]]:
    """Return a block as it begins, and the deltas that fill it."""
    match block.get("type"):
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "tool_use":
            text = json.dumps(block.get("input"))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in _pieces(text)]
        case "thinking":
            thought = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [*thought, signed]
    return block, []
