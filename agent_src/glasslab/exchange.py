"""What both transports of an MCP connection have in common: which requests are open, what is sent with each, and what
of the answers is kept as it came.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

_KEPT_RAW: Final = ("initialize", "server/discover", "tools/list", "prompts/list", "resources/list")
# Of the task that asks, so that requests at the same time each carry their own.
_meta: ContextVar[Mapping[str, Any] | None] = ContextVar("glasslab_request_meta", default=None)


async def carrying[**P, T](
    meta: Mapping[str, Any], ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Ask, with these `_meta` entries in every request that is sent for it."""
    _meta.set(meta)
    return await ask(*args, **kwargs)


class Exchange:
    """The requests and answers of one connection."""

    def __init__(self) -> None:
        self.pending: dict[types.RequestId, str] = {}
        self.raw: dict[str, dict[str, Any]] = {}

    def sending(self, item: SessionMessage) -> SessionMessage:
        """Return a message as it goes out."""
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self.pending[message.id] = message.method
            more = _meta.get()
            if more:
                params = dict(message.params or {})
                params["_meta"] = {**(params.get("_meta") or {}), **more}
                return SessionMessage(message.model_copy(update={"params": params}), item.metadata)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self.pending.pop((message.params or {}).get("requestId", ""), None)  # it is not waited for any longer
        return item

    def heard(self, item: SessionMessage | Exception) -> bool:
        """Take note of what came in; return whether it is to be looked at.

        What a server tells unasked means nothing here: the tools are listed anew at each turn.
        """
        if not isinstance(item, SessionMessage):
            return True
        message = item.message
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
            method = self.pending.pop(message.id, "")
            if method in _KEPT_RAW and isinstance(message, types.JSONRPCResponse):
                self.raw[method] = message.result
        return not isinstance(message, types.JSONRPCNotification)


class End:
    """One direction of a connection; its stream is whatever the transport has for it."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream, self._exchange = stream, exchange

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class ReadingEnd(End):
    """The direction that answers come from, read message by message."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio's exceptions when there is none."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise StopAsyncIteration from None
