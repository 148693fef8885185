"""The message history that is sent to the model. Whatever a model or a tool sent, what stays here is well-formed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from glasslab.arguments import ArgumentError, parse
from glasslab.frames import canonical_json, recordable, sha256_hex
from glasslab.models import Message, Reply, ToolRequest
from glasslab.models.usage import BYTES_A_TOKEN
from glasslab.schemas import validate

INVALID_NAME: Final = "invalid_tool_name"
DEFAULT_LIMIT: Final = 100_000  # tokens
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


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a call's result, whatever the history still holds of it.

    `sha256` and `characters` are those of the whole text as recorded; `frame` says where that is on record: seq and
    event_id, and session_id when it is another session's; empty until the log has it.
    """

    tool: str
    arguments: str
    sha256: str
    characters: int
    frame: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Continued:
    """An earlier session's conversation, to go on with: its id, its last frame's hash, its messages and results."""

    session_id: str
    head_sha256: str
    messages: Sequence[Message]
    results: Mapping[str, Kept]

    @property
    def named(self) -> dict[str, str]:
        """What the new session's first frames say of it."""
        return {"continues": self.session_id, "continues_sha256": self.head_sha256}


class Context:
    """The messages of one session, in chat-completions form: the system prompt, what was said before, the question,
    and then rounds of a reply with calls and their results. `limit` is in tokens; fitting.py keeps to it.
    """

    def __init__(
        self, system_prompt: str, question: str, limit: int = DEFAULT_LIMIT, earlier: Sequence[Message] = ()
    ) -> None:
        """Begin with the system prompt and the question; `earlier` is a conversation that this one continues."""
        self.limit, self.overhead = limit, 0  # overhead: tokens that are sent beside the messages
        self.summaries = True  # a session that got no usable summary once asks for no other
        self.results: dict[str, Kept] = {}
        self._messages: list[Message] = [{"role": "system", "content": recordable(system_prompt)}, *earlier]
        self._ids = {call["id"] for message in earlier for call in message.get("tool_calls", ())}
        self._question = len(self._messages)
        self._messages.append({"role": "user", "content": recordable(question)})

    def messages(self) -> Sequence[Message]:
        """Return the messages as the next call sends them."""
        return list(self._messages)

    @property
    def tokens(self) -> int:
        """What the next call sends, in tokens: estimated from the sizes, rather too many than too few."""
        return self.overhead + tokens_of(self._messages)

    @property
    def question(self) -> Message:
        """The message with the question that this session answers."""
        return self._messages[self._question]

    @property
    def newest(self) -> int:
        """Where the newest round begins, of which the model has not seen the results yet; the end without one."""
        rounds = [number for number, message in enumerate(self._messages) if message.get("tool_calls")]
        return rounds[-1] if rounds and rounds[-1] > self._question else len(self._messages)

    def older(self) -> list[Message]:
        """Return what a summary may stand for: all but the system prompt, the question and the newest round."""
        return [*self._messages[1 : self._question], *self._messages[self._question + 1 : self.newest]]

    def put(self, number: int, content: str) -> None:
        """Put another content into a message."""
        self._messages[number] = {**self._messages[number], "content": content}

    def replace_older(self, content: str) -> None:
        """Put one message in the place of all the older ones, whole rounds: no call loses its result."""
        newest = self._messages[self.newest :]
        self._messages = [self._messages[0], self.question, {"role": "user", "content": content}, *newest]
        self._question = 1

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
        self._messages.append(
            {"role": "assistant", "content": recordable(reply.content), "tool_calls": sent, **carried}
        )
        return calls

    def add_result(self, call: Call, text: str, is_error: bool = False, recorded: str | None = None) -> None:
        """Append a call's result, or its error. `recorded` is the text as it is on record, where that differs."""
        marked = {"is_error": True} if is_error else {}
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": recordable(text), **marked})
        whole = str(recordable(text if recorded is None else recorded))
        given = call.arguments if isinstance(call.arguments, str) else canonical_json(call.arguments).decode()
        arguments = str(recordable(given[:200]))
        self.results[call.id] = Kept(call.name, arguments, sha256_hex(whole.encode()), len(whole), {})

    def add_note(self, text: str) -> None:
        """Append a word of the lab's own to the model."""
        self._messages.append({"role": "user", "content": text})

    def filed(self, event: Mapping[str, Any]) -> None:
        """Learn from an event that the log has acknowledged where a result is on record; its first frame counts."""
        kept = self.results.get(str(event.get("tool_call_id")))
        if kept is not None and event["kind"] in RESULT_KINDS and not kept.frame:
            place = {"seq": event["seq"], "event_id": event["event_id"]}
            self.results[event["tool_call_id"]] = replace(kept, frame=place)

    def known(self, session_id: str) -> dict[str, Kept]:
        """Return what is known of the results, as another session takes it: the frames are those of this session."""
        return {
            id_: replace(kept, frame={"session_id": session_id, **kept.frame}) for id_, kept in self.results.items()
        }

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


# The frames that a result is found by: its text (LAB_TRACE=full), or its hash.
RESULT_KINDS: Final = ("mcp.call_tool.result", "agent.call_refused", "delegate.result", "toolcall")


def conversation(sent: Sequence[Message], answer: str | None, last_turn: str) -> list[Message]:
    """Return what a later session goes on with: what a model was sent last, and the answer that it gave, if it did.

    Without the system prompt, which is the later session's own, and without `last_turn`, the lab's own word of the last
    turn, which holds for one session only.
    """
    kept = [message for message in sent if message.get("role") != "system" and message.get("content") != last_turn]
    return [*kept, {"role": "assistant", "content": answer}] if answer else kept


def tokens_of(messages: object) -> int:
    """Return what some messages, or other JSON, take in tokens."""
    return math.ceil(len(canonical_json(messages)) / BYTES_A_TOKEN)


def _sendable(arguments: str) -> str:
    """Return arguments that were understood, as they may be sent back: blanks count as none, and are no JSON."""
    return arguments if arguments.strip() else "{}"
