"""The message history that is sent to the model. Whatever a model or a tool sent, what stays here is well-formed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from glasslab.arguments import ArgumentError, parse
from glasslab.frames import canonical_json, recordable
from glasslab.models import Message, Reply, ToolRequest
from glasslab.schemas import validate

INVALID_NAME: Final = "invalid_tool_name"
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,64}")


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply, checked. With `error` set it must not be made: that text is its result.

    `id` is unique in the session; `arguments` is the parsed object, or the text as sent when it cannot be used.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str
    reason: str | None = None
    error: str | None = None


class Context:
    """The messages of one session, in chat-completions form."""

    def __init__(self, system_prompt: str, question: str) -> None:
        """Begin with the system prompt and the question."""
        self._messages: list[Message] = []
        self._ids: set[str] = set()
        self.bytes = 0  # of the messages, as JSON
        self._append({"role": "system", "content": recordable(system_prompt)})
        self._append({"role": "user", "content": recordable(question)})

    def messages(self) -> Sequence[Message]:
        """Return the messages as the next call sends them."""
        return self._messages

    def add_reply(self, reply: Reply, schemas: Mapping[str, Mapping[str, Any]]) -> list[Call]:
        """Append a reply that asks for tools, repaired; return its calls, checked against the tools' schemas.

        Repairs, since a malformed message would make every later call fail: an empty, overlong or repeated id gets a
        new one; a name that no tool can have becomes INVALID_NAME; arguments that cannot be used become `{}`. What
        was sent is in the frames of the reply.
        """
        calls = [self._check(request, schemas) for request in reply.tool_requests]
        sent = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name if _NAME.fullmatch(call.name) else INVALID_NAME,
                    "arguments": _sendable(request.arguments) if isinstance(call.arguments, dict) else "{}",
                },
            }
            for call, request in zip(calls, reply.tool_requests, strict=True)
        ]
        carried = recordable(dict(reply.carry))
        self._append({"role": "assistant", "content": recordable(reply.content), "tool_calls": sent, **carried})
        return calls

    def add_result(self, call: Call, text: str, is_error: bool = False) -> None:
        """Append a call's result, or its error."""
        marked = {"is_error": True} if is_error else {}
        self._append({"role": "tool", "tool_call_id": call.id, "content": recordable(text), **marked})

    def add_note(self, text: str) -> None:
        """Append a word of the lab's own to the model."""
        self._append({"role": "user", "content": text})

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self.bytes += len(canonical_json(message))

    def _check(self, request: ToolRequest, schemas: Mapping[str, Mapping[str, Any]]) -> Call:
        id_, name = self._unique(request.id), recordable(request.name[:200])
        try:
            arguments = parse(request.arguments)
        except ArgumentError as error:
            return Call(id_, name, request.arguments, error.reason, f"Error: {error}")
        if request.name not in schemas:
            known = ", ".join(sorted(schemas)) or "none"
            return Call(id_, name, arguments, "unknown_tool", f"Error: unknown tool {name!r}; known tools: {known}")
        try:
            validate(arguments, schemas[request.name])
        except ArgumentError as error:
            return Call(id_, name, arguments, error.reason, f"Error: {error}")
        return Call(id_, name, arguments)

    def _unique(self, sent: str) -> str:
        id_ = sent if _ID.fullmatch(sent) and sent not in self._ids else f"call_{len(self._ids) + 1}"
        while id_ in self._ids:
            id_ += "_"
        self._ids.add(id_)
        return id_


def _sendable(arguments: str) -> str:
    """Return arguments that were understood, as they may be sent back: blanks count as none, and are no JSON."""
    return arguments if arguments.strip() else "{}"
