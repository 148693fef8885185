"""Chat completions on the wire: what is sent, and what is read of a reply. Nothing of its form is taken for granted."""

from __future__ import annotations

import json
from typing import Any

from glasslab.models import Message, Reply, Request, ToolRequest, Usage
from glasslab.models.replies import MAX_TOOL_REQUESTS, Unusable, check, error_of, finish_text, token_count
from glasslab.models.streams import Pieces
from glasslab.models.usage import cost_of

# Fields of our messages that say something to other APIs: this one refuses names that it does not know.
OURS = ("is_error", "thinking")


def body_of(request: Request, max_tokens: int | None) -> dict[str, Any]:
    """Return the fields of the request's body, beside the model's name."""
    body: dict[str, Any] = {"messages": [_sent(message) for message in request.messages]}
    if request.tools:
        body["tools"] = list(request.tools)
        if request.answer_only:
            body["tool_choice"] = "none"
    if max_tokens is not None:
        body["max_completion_tokens"] = max_tokens
    if request.watch is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _sent(message: Message) -> Message:
    return {name: value for name, value in message.items() if name not in OURS}


def reply_of(data: object, latency_ms: float) -> Reply:
    """Return the reply in a body. Raises Unusable."""
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        message = error_of(data)[1]
        said = f" ({message[:200].strip()})" if message else ""
        text = f"the reply has no choices{said}; try again or another MODEL"
        raise Unusable("model_invalid", "no_choices", text)
    message, finish = choices[0].get("message"), choices[0].get("finish_reason")
    if not isinstance(message, dict):
        text = "the reply has no message; check that MODEL_BASE_URL speaks chat completions"
        raise Unusable("model_invalid", "no_message", text)
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    reply = Reply(
        content=_text(message.get("content")),
        tool_requests=[_tool_request(item) for item in calls[:MAX_TOOL_REQUESTS]],
        finish_reason=finish_text(finish),
        usage=_usage(data.get("usage")),
        latency_ms=latency_ms,
        refusal=_text(message.get("refusal")),
        carry=_carry(message),
    )
    return check(reply, len(calls))


def _carry(message: dict[str, Any]) -> dict[str, Any]:
    """Return what a gateway wants back with the next call: signed reasoning, without which it refuses the history."""
    details = message.get("reasoning_details")
    good = isinstance(details, list) and bool(details) and all(isinstance(item, dict) for item in details)
    return {"reasoning_details": details} if good else {}


def _text(value: object) -> str | None:
    """Return a content as text: providers send a string, nothing, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def _tool_request(item: object) -> ToolRequest:
    """Return a call as sent. One without a name keeps an empty one, which the loop answers as an unknown tool."""
    call = item if isinstance(item, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments, id_ = function.get("name"), function.get("arguments"), call.get("id")
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = json.dumps(arguments)
    return ToolRequest(
        id=id_ if isinstance(id_, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=arguments if isinstance(arguments, str) else "",
    )


def _usage(value: object) -> Usage:
    usage: dict[str, Any] = value if isinstance(value, dict) else {}
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    cost = cost_of(usage.get("cost"))
    return Usage(
        token_count(usage.get("prompt_tokens")),
        token_count(usage.get("completion_tokens")),
        token_count(reasoning),
        cost=cost,
        cost_from=None if cost is None else "reply",
    )


class Chunks:
    """Puts a streamed chat completion together: see streams.Assembler."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces = Pieces()
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: object = None
        self._usage: object = None
        self._error: object = None
        self._details: list[Any] = []

    def add(self, event: dict[str, Any]) -> str:
        """Take one chunk; return its text."""
        self._error = event.get("error") or self._error
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        self._pieces.add("refusal", delta.get("refusal"))
        details, calls = delta.get("reasoning_details"), delta.get("tool_calls")
        self._details += details if isinstance(details, list) and len(self._details) < 10_000 else []
        for position, item in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(item, dict):
                self._add_call(item, position)
        return self._pieces.add("content", delta.get("content"))

    def _add_call(self, item: dict[str, Any], position: int) -> None:
        index = item.get("index")
        index = index if type(index) is int else position
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._calls.setdefault(index, {"id": item.get("id"), "name": function.get("name")})
        call["id"], call["name"] = call["id"] or item.get("id"), call["name"] or function.get("name")
        self._pieces.add(index, function.get("arguments"))

    def body(self) -> dict[str, Any] | None:
        """Return it as it would have come unstreamed; None when no finish reason has come, and no error."""
        if self._error:
            return {"error": self._error}
        if self._finish is None:
            return None
        message: dict[str, Any] = {"content": self._pieces.text("content"), "refusal": self._pieces.text("refusal")}
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["tool_calls"] = [
                {"id": call["id"], "function": {"name": call["name"], "arguments": self._pieces.text(index) or ""}}
                for index, call in sorted(self._calls.items())
            ]
        return {"choices": [{"message": message, "finish_reason": self._finish}], "usage": self._usage}
