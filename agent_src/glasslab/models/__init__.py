"""Talking to a model, one small interface. Messages and tools are in chat-completions form; nothing is run here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
ToolDefinition = dict[str, Any]


class ModelError(Exception):
    """A model call without a usable reply.

    `status` is model_unreachable, model_refused or model_invalid; `reason` a fixed code such as http_401; the text is
    one line with the remedy, without secrets. `reply` is what was read of a reply that cannot be used.
    """

    def __init__(self, status: str, reason: str, text: str, reply: Reply | None = None) -> None:
        super().__init__(text)
        self.status, self.reason, self.reply = status, reason, reply


class Stopped(Exception):
    """The caller asked to stop while the model was being waited for."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call that the model asks for, as sent: nothing here has been checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call; None where the provider gave none."""

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: text, calls, or both."""

    content: str | None
    tool_requests: Sequence[ToolRequest]
    finish_reason: str | None
    usage: Usage = field(default_factory=Usage)
    latency_ms: float = 0.0
    refusal: str | None = None


class Model(Protocol):
    """What the loop needs of a model."""

    def open(self) -> object:
        """Load what a call needs, without calling anything; a later call does it itself otherwise."""

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], stop: threading.Event, seconds: float | None
    ) -> Reply:
        """Make one call. Raises ModelError, or Stopped once `stop` is set. `seconds` may shorten the call's limit."""

    def warm(self) -> None:
        """Open a connection ahead. Never raises."""

    def problem(self) -> str | None:
        """Return why the model does not answer, as one line, or None. Never raises."""

    def close(self) -> None:
        """Close the connections."""
