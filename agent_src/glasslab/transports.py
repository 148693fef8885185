"""The host's end of an MCP connection: newline-delimited JSON-RPC over one socket, to a child or to a unix socket.

The SDK's own transports are not used because the lab needs three things from the wire that they do not offer: its
`_meta` on every request, the first included; answers as they were sent, for pinning; and bounds, so that neither an
oversized answer nor one that is not valid JSON leaves the caller waiting for ever.
"""

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
import mcp_types as types
from anyio.abc import SocketStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from glasslab.wire import ANSWER_UNUSABLE

_CHUNK: Final = 65_536
_KEPT_RAW: Final = ("initialize", "server/discover", "tools/list")


class Wire:
    """One connection: what both directions share."""

    def __init__(self, stream: SocketStream, max_line_bytes: int, stamp: Callable[[], dict[str, Any]]) -> None:
        """`stamp` returns the `_meta` entries that every request carries at the moment it is sent."""
        self.stream = stream
        self.max_line_bytes = max_line_bytes
        self.stamp = stamp
        self.pending: dict[types.RequestId, str] = {}
        self.raw: dict[str, dict[str, Any]] = {}
        self.problem = ""  # of what is below the messages; a socket has nothing to say
        self.reader = _Reader(self)
        self.writer = _Writer(self)


class _End:
    """A stream's closing half, the same in both directions."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def aclose(self) -> None:
        await self._wire.stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Writer(_End):
    """Requests and notifications to the server, one line each."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._lock = anyio.Lock()  # a socket takes one sender at a time, the session may have several tasks

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            params = dict(message.params or {})
            params["_meta"] = {**(params.get("_meta") or {}), **self._wire.stamp()}
            message = message.model_copy(update={"params": params})
            self._wire.pending[message.id] = message.method
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8") + b"\n"
        async with self._lock:
            await self._wire.stream.send(line)


class _Reader(_End):
    """Answers of the server, one line each; an unusable line becomes an error answer to the request it blocks."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._buffer = bytearray()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        while True:
            line = await self._line()
            if line is None:
                return self._unusable(f"the answer is longer than {self._wire.max_line_bytes} bytes")
            if line.strip():
                message = self._message(line)
                # What a server tells unasked means nothing here: the tools are listed anew at each turn.
                if not (isinstance(message, SessionMessage) and isinstance(message.message, types.JSONRPCNotification)):
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
                return None if dropping or len(line) > self._wire.max_line_bytes else line
            if len(self._buffer) > self._wire.max_line_bytes:
                dropping = True
            if dropping:
                self._buffer.clear()
            searched = len(self._buffer)
            self._buffer += await self._wire.stream.receive(_CHUNK)

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
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
            method = self._wire.pending.pop(message.id, "")
            if method in _KEPT_RAW and isinstance(message, types.JSONRPCResponse):
                self._wire.raw[method] = message.result
        return SessionMessage(message)

    def _unusable(self, reason: str) -> SessionMessage | Exception:
        """Answer the oldest open request in the server's place; the host sends one request at a time."""
        if not self._wire.pending:
            return ValueError(reason)
        request_id = next(iter(self._wire.pending))
        del self._wire.pending[request_id]
        error = types.ErrorData(code=ANSWER_UNUSABLE, message=reason)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
