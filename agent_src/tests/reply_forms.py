"""How the cases of model replies are written: a cause, on a wire, as the HTTP answers of a script."""

import json
from dataclasses import dataclass, field
from typing import Any

CHAT, MESSAGES = "openai", "anthropic"
WIRES = (CHAT, MESSAGES)
ANSWERED = ("answered", None)
UNREACHABLE, REFUSED, INVALID = "model_unreachable", "model_refused", "model_invalid"


@dataclass(frozen=True)
class Case:
    """One cause on one wire: what is sent first, how the session ends, what its settings and its tool are."""

    cause: str
    wire: str
    turns: list[Any]
    end: tuple[str, str | None]
    settings: dict[str, Any] = field(default_factory=dict)
    result: str | None = None

    def __str__(self) -> str:
        return f"{self.cause}-{self.wire}"


def said(wire: str, text: Any = "The answer.", **more: Any) -> dict[str, Any]:
    """A reply of text."""
    return whole(wire, [{"type": "text", "text": text}], {"content": text}, "end_turn", "stop", **more)


def whole(
    wire: str, blocks: Any, message: Any, stop: Any, finish: Any, usage: Any = None, **more: Any
) -> dict[str, Any]:
    """A reply as a raw HTTP answer, so that nothing in it is made good on the way."""
    if wire == MESSAGES:
        body = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": stop}
    else:
        body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return {"status": 200, "body": {**body, **({} if usage is None else {"usage": usage})}, **more}


def calls(wire: str, *wanted: dict[str, Any], text: str | None = None, **more: Any) -> dict[str, Any]:
    """A reply that asks for tools; each wanted one has name, arguments (text, or what else is sent) and id."""
    blocks = [{"type": "text", "text": text}] if text else []
    sent = []
    for number, each in enumerate(wanted):
        id_, arguments = each.get("id", f"c{number}"), each.get("arguments", "{}")
        try:
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError):
            given = arguments
        blocks.append({"type": "tool_use", "id": id_, "name": each.get("name", "list_files"), "input": given})
        function = {"name": each.get("name", "list_files"), "arguments": arguments}
        sent.append({"id": id_, "type": "function", "function": function})
    return whole(wire, blocks, {"content": text, "tool_calls": sent}, "tool_use", "tool_calls", **more)
