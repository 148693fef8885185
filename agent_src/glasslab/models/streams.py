"""Server-sent events, as model APIs stream their replies: bytes in, the events' JSON out. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from glasslab.models.replies import MAX_REPLY_BYTES, Unusable

EVENT_STREAM: Final = "text/event-stream"


class Assembler(Protocol):
    """Puts a streamed reply together, in the form that it has when it is not streamed."""

    def add(self, event: dict[str, Any]) -> str:
        """Take one event; return the text in it, to be watched. Nothing of its form is taken for granted."""

    def body(self) -> dict[str, Any] | None:
        """Return the whole reply, or None when its end has not come."""


class Stream:
    """Reads one streamed answer as it arrives."""

    def __init__(self, assembler: Assembler, watch: Callable[[str], None]) -> None:
        """`watch` gets the text, piece by piece."""
        self._assembler, self._watch = assembler, watch
        self._rest = b""
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises Unusable for what is no stream, and for more text than a reply may hold."""
        for event in self._events(data):
            text = self._assembler.add(event)
            if text:
                self._watch(text)

    def body(self) -> bytes:
        """Return the reply as the JSON of one that was not streamed. Raises Unusable when the end is missing."""
        whole = self._assembler.body()
        if whole is None:
            text = "the streamed reply ends in the middle; try again"
            raise Unusable("model_unreachable", "stream_cut", text, again=True)
        return json.dumps(whole).encode()

    def _events(self, data: bytes) -> Iterator[dict[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_REPLY_BYTES:
            raise _too_large()
        for line in lines:
            # Names, ids and comments say nothing that the data does not; what is sent over several lines is not in use.
            if not line.startswith(b"data:"):
                continue
            text = line.removeprefix(b"data:").strip()
            if not text or text == b"[DONE]":
                continue
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                line_said = "the streamed reply has a line that is not JSON; try again, or without --stream"
                raise Unusable("model_invalid", "not_json", line_said) from None
            if isinstance(event, dict):
                yield event


class Pieces:
    """Text that arrives in pieces, bounded over all of them."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._parts: dict[object, list[str]] = {}
        self._size = 0

    def add(self, key: object, text: object) -> str:
        """Append to the text of that key; return what was appended. Raises Unusable beyond a reply's bound."""
        if not isinstance(text, str):
            return ""
        self._size += len(text)
        if self._size > MAX_REPLY_BYTES:
            raise _too_large()
        self._parts.setdefault(key, []).append(text)
        return text

    def text(self, key: object) -> str | None:
        """Return the text of that key, None when there never was any."""
        return "".join(self._parts[key]) if key in self._parts else None


def _too_large() -> Unusable:
    return Unusable("model_invalid", "not_readable", f"the reply is larger than {MAX_REPLY_BYTES} bytes; ask for less")
