"""The host's end of an MCP connection: newline-delimited JSON-RPC over one socket, to a child or to a unix socket.

The SDK's own transports are not used because the lab needs three things from the wire that they do not offer: its
`_meta` on every request, the first included; answers as they were sent, for pinning; and bounds, so that neither an
oversized answer nor one that is not valid JSON leaves the caller waiting for ever.
"""

import json
from typing import Final

import anyio
import mcp_types as types
from anyio.abc import SocketStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from glasslab.exchange import End, Exchange, ReadingEnd
from glasslab.wire import ANSWER_UNUSABLE

_CHUNK: Final = 65_536


class Wire(Exchange):
    """One connection: what both directions share."""

    problem, again, retry_after = "", False, None  # of what is below the messages; a socket has nothing to say

    def __init__(self, stream: SocketStream, max_line_bytes: int) -> None:
        super().__init__()
        self.reader = _Reader(stream, self, max_line_bytes)
        self.writer = _Writer(stream, self)


class _Writer(End):
    """Requests and notifications to the server, one line each."""

    def __init__(self, stream: SocketStream, wire: Wire) -> None:
        super().__init__(stream, wire)
        self._lock = anyio.Lock()  # a socket takes one sender at a time, the session may have several tasks

    async def send(self, item: SessionMessage, /) -> None:
        message = self._exchange.sending(item).message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8") + b"\n"
        async with self._lock:
            await self._stream.send(line)


class _Reader(ReadingEnd):
    """Answers of the server, one line each; an unusable line becomes an error answer to the requests it blocks."""

    def __init__(self, stream: SocketStream, wire: Wire, max_line_bytes: int) -> None:
        super().__init__(stream, wire)
        self._max_line_bytes = max_line_bytes
        self._buffer = bytearray()
        self._waiting: list[SessionMessage] = []

    async def receive(self) -> SessionMessage | Exception:
        while True:
            if self._waiting:
                return self._waiting.pop(0)
            line = await self._line()
            if line is None:
                return self._unusable(f"the answer is longer than {self._max_line_bytes} bytes")
            if line.strip():
                message = self._message(line)
                if self._exchange.heard(message):
                    return message

    async def _line(self) -> bytes | None:
        """Return the next line, or None when it was too long; what was too long is read and thrown away."""
        dropping = False
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return None if dropping or len(line) > self._max_line_bytes else line
            if len(self._buffer) > self._max_line_bytes:
                dropping = True
            if dropping:
                self._buffer.clear()
            searched = len(self._buffer)
            self._buffer += await self._stream.receive(_CHUNK)

    def _message(self, line: bytes) -> SessionMessage | Exception:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            # A lone surrogate is legal for json and not for pydantic: replaced, so that the answer arrives.
            try:
                text = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
                message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
            except (ValueError, RecursionError):
                return self._unusable("the answer is not a JSON-RPC message")
        return SessionMessage(message)

    def _unusable(self, reason: str) -> SessionMessage | Exception:
        """Answer the open requests in the server's place: nobody can tell which of them it was meant for."""
        error = types.ErrorData(code=ANSWER_UNUSABLE, message=reason)
        open_, self._exchange.pending = self._exchange.pending, {}
        self._waiting += [SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id_, error=error)) for id_ in open_]
        return self._waiting.pop(0) if self._waiting else ValueError(reason)
