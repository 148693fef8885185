"""Anthropic Messages on the wire: the conversation in its form, and what is read of a reply.

Our history is in chat-completions form. There, results are messages of their own; here they are blocks that begin the
user turn right after the calls, each call with exactly one. Nothing of a reply's form is taken for granted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from glasslab.models import Message, Reply, Request, ToolDefinition, ToolRequest, Usage
from glasslab.models.replies import MAX_TOOL_REQUESTS, Unusable, check, error_of, finish_text, token_count
from glasslab.models.streams import Pieces

THINKING: Final = ("thinking", "redacted_thinking")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")

Block = dict[str, Any]


def body_of(request: Request, model: str, max_tokens: int) -> dict[str, Any]:
    """Return the request's body."""
    system = "\n\n".join(str(item["content"]) for item in request.messages if item["role"] == "system")
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": turns(request.messages)}
    if system.strip():
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(definition) for definition in request.tools]
        if request.answer_only:
            body["tool_choice"] = {"type": "none"}
    if request.watch is not None:
        body["stream"] = True
    return body


def turns(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation as turns of user and assistant, in blocks; results stand first in theirs."""
    ids = _Ids()
    made: list[Message] = []
    for message in messages:
        match message["role"]:
            case "assistant":
                made.append({"role": "assistant", "content": _said(message, ids)})
            case "tool":
                _append(made, _result(message, ids))
            case "user":
                _append(made, *_texts(message["content"]))
    return made


def _append(made: list[Message], *blocks: Block) -> None:
    if made and made[-1]["role"] == "user":
        made[-1]["content"] += blocks
    else:
        made.append({"role": "user", "content": list(blocks)})


def _texts(content: object) -> list[Block]:
    """Return a text block; none for a text without anything to see, which this API refuses."""
    return [{"type": "text", "text": content}] if isinstance(content, str) and content.strip() else []


def _said(message: Message, ids: _Ids) -> list[Block]:
    calls = [
        {
            "type": "tool_use",
            "id": ids.safe(call["id"]),
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return [*message.get("thinking", ()), *_texts(message["content"]), *calls]


def _result(message: Message, ids: _Ids) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": ids.safe(message["tool_call_id"])}
    if texts := _texts(message["content"]):
        block["content"] = texts
    if message.get("is_error"):
        block["is_error"] = True
    return block


def _tool(definition: ToolDefinition) -> dict[str, Any]:
    function = definition["function"]
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function["parameters"],
    }


class _Ids:
    """Ids that this API takes: letters, digits, - and _; the same for the same id, and none for two."""

    def __init__(self) -> None:
        self._safe: dict[str, str] = {}

    def safe(self, sent: str) -> str:
        if sent not in self._safe:
            made = sent if _ID.fullmatch(sent) else re.sub(r"[^a-zA-Z0-9_-]", "_", sent) or "call"
            while made in self._safe.values():
                made += "_"
            self._safe[sent] = made
        return self._safe[sent]


def reply_of(data: object, latency_ms: float) -> Reply:
    """Return the reply in a body. Raises Unusable."""
    blocks = data.get("content") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(blocks, list):
        message = error_of(data)[1]
        said = f" ({message[:200].strip()})" if message else ""
        text = f"the reply has no content{said}; check that MODEL_BASE_URL speaks Anthropic Messages"
        raise Unusable("model_invalid", "no_content", text)
    good = [block for block in blocks if isinstance(block, dict)]
    texts = [block["text"] for block in good if block.get("type") == "text" and isinstance(block.get("text"), str)]
    calls = [block for block in good if block.get("type") == "tool_use"]
    thinking = [block for block in good if block.get("type") in THINKING]
    reply = Reply(
        content="".join(texts) or None,
        tool_requests=[_tool_request(call) for call in calls[:MAX_TOOL_REQUESTS]],
        finish_reason=finish_text(data.get("stop_reason")),
        usage=_usage(data.get("usage")),
        latency_ms=latency_ms,
        # Signed by the provider: a turn with calls is refused without what was thought before them.
        carry={"thinking": thinking} if thinking else {},
    )
    return check(reply, len(calls))


def _tool_request(block: Block) -> ToolRequest:
    """Return a call as sent, its input as text: the loop parses it as strictly as any other model's."""
    name, id_, given = block.get("name"), block.get("id"), block.get("input")
    return ToolRequest(
        id=id_ if isinstance(id_, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=given if isinstance(given, str) else "" if given is None else json.dumps(given),
    )


def _usage(value: object) -> Usage:
    usage: dict[str, Any] = value if isinstance(value, dict) else {}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    sent, *cached = (usage.get(name) for name in names)
    prompt = None if token_count(sent) is None else token_count(sent, *cached)
    return Usage(prompt, token_count(usage.get("output_tokens")))


class Events:
    """Puts a streamed message together: see streams.Assembler."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces = Pieces()
        self._blocks: dict[int, Block] = {}
        self._reason: object = None
        self._usage: dict[str, Any] = {}
        self._error: object = None

    def add(self, event: dict[str, Any]) -> str:
        """Take one event; return its text."""
        delta, index = event.get("delta"), event.get("index")
        delta, index = delta if isinstance(delta, dict) else {}, index if type(index) is int else -1
        match event.get("type"):
            case "message_start":
                message = event.get("message")
                self._count(message.get("usage") if isinstance(message, dict) else None)
            case "content_block_start":
                block = event.get("content_block")
                self._blocks[index] = dict(block) if isinstance(block, dict) else {}
            case "content_block_delta" if index in self._blocks:
                for name in ("partial_json", "thinking", "signature"):
                    self._pieces.add((index, name), delta.get(name))
                return self._pieces.add((index, "text"), delta.get("text"))
            case "message_delta":
                self._reason = delta.get("stop_reason") or self._reason
                self._count(event.get("usage"))
            case "error":
                self._error = event.get("error") or "the provider broke the reply off"
        return ""

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: count for name, count in usage.items() if count is not None}

    def body(self) -> dict[str, Any] | None:
        """Return it as it would have come unstreamed; None when no stop reason has come, and no error."""
        if self._error:
            return {"error": self._error}
        if self._reason is None:
            return None
        for index, block in self._blocks.items():
            for name in ("text", "thinking", "signature"):
                if (text := self._pieces.text((index, name))) is not None:
                    block[name] = text
            if (given := self._pieces.text((index, "partial_json"))) is not None:
                block["input"] = given
        blocks = [block for _, block in sorted(self._blocks.items())]
        return {"content": blocks, "stop_reason": self._reason, "usage": self._usage}
