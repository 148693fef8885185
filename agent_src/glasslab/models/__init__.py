"""Talking to a model, one small interface. Messages and tools are in chat-completions form; nothing is run here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
ToolDefinition = dict[str, Any]


class ModelError(Exception):
    """A model call without a usable reply.

    `status` is model_unreachable, model_refused or model_invalid; `reason` a fixed code such as http_401; the text is
    one line with the remedy, without secrets. `reply` is what was read of a reply that cannot be used. `again` tells
    whether the same call may work later, `retry_after` when the server said so (seconds).
    """

    def __init__(
        self,
        status: str,
        reason: str,
        text: str,
        reply: Reply | None = None,
        *,
        again: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.reason, self.reply = status, reason, reply
        self.again, self.retry_after = again, retry_after


class Stopped(Exception):
    """The caller asked to stop while the model was being waited for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one call asks: the conversation, and the tools that the model may call.

    `answer_only` forbids calls; the tools stay defined, since a history with calls of unknown tools is refused.
    `watch` gets the reply's text as it arrives, for a person who looks on: nothing of it is on record yet.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    answer_only: bool = False
    watch: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call that the model asks for, as sent: nothing here has been checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call, and its cost in US dollars; None where nobody knows.

    `estimated`: the provider gave no counts, these are from the sizes. `cost_from` is reply or prices.
    """

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    estimated: bool = False
    cost: float | None = None
    cost_from: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: text, calls, or both. `carry` are fields that its message must keep in the history."""

    content: str | None
    tool_requests: Sequence[ToolRequest]
    finish_reason: str | None
    usage: Usage = field(default_factory=Usage)
    latency_ms: float = 0.0
    refusal: str | None = None
    carry: Mapping[str, Any] = field(default_factory=dict)


class Model(Protocol):
    """What the loop needs of a model."""

    def open(self) -> object:
        """Load what a call needs, without calling anything; a later call does it itself otherwise."""

    def complete(self, request: Request, stop: threading.Event, seconds: float | None) -> Reply:
        """Make one call, once. Raises ModelError, or Stopped once `stop` is set. `seconds` may shorten its limit."""

    def warm(self) -> None:
        """Open a connection ahead. Never raises."""

    def problem(self) -> str | None:
        """Return why the model does not answer, as one line, or None. Never raises."""

    def close(self) -> None:
        """Close the connections."""
