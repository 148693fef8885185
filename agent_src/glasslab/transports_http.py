"""The host's end of an MCP connection over streamable HTTP: the SDK's transport, bounded and listened to.

As on a socket (transports.py) answers are kept as they were sent, for pinning, and what a server tells unasked is not
heard. No redirect leaves the server's origin, no proxy of the environment is used, every certificate is verified.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
import mcp_types as types
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.message import SessionMessage

from glasslab.tls import client_context
from glasslab.tooltypes import OAuthClient, ServerUrl

_KEPT_RAW: Final = ("initialize", "server/discover", "tools/list")


class TooLargeError(httpx2.TransportError):
    """An answer beyond the bound; it is not read to its end."""


class HttpWire:
    """One connection over HTTP, with what a `Wire` has."""

    def __init__(self, reader: Any, writer: Any, below: "_Bounded", stamp: Callable[[], dict[str, Any]]) -> None:
        """`reader` and `writer` are the SDK's streams, `below` is what they go through."""
        self._below = below
        self.pending: dict[types.RequestId, str] = {}
        self.raw: dict[str, dict[str, Any]] = {}
        self.reader = _Reader(reader, self)
        self.writer = _Writer(writer, self)
        self.stamp = stamp

    @property
    def problem(self) -> str:
        """What went wrong with the last request, as HTTP or below it; empty when nothing did."""
        return self._below.problem


class _End:
    def __init__(self, stream: Any, wire: HttpWire) -> None:
        self._stream, self._wire = stream, wire

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Writer(_End):
    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._wire.pending[message.id] = message.method
            more = self._wire.stamp()
            if more:
                params = dict(message.params or {})
                params["_meta"] = {**(params.get("_meta") or {}), **more}
                item = SessionMessage(message.model_copy(update={"params": params}), item.metadata)
        await self._stream.send(item)


class _Reader(_End):
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item: SessionMessage | Exception = await self._stream.receive()
            if isinstance(item, SessionMessage):
                message = item.message
                if isinstance(message, types.JSONRPCNotification):
                    continue
                if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
                    method = self._wire.pending.pop(message.id, "")
                    if method in _KEPT_RAW and isinstance(message, types.JSONRPCResponse):
                        self._wire.raw[method] = message.result
            return item


class _Bounded(httpx2.AsyncHTTPTransport):
    """Its base, but an answer beyond `max_bytes`, or a compressed one, is an error."""

    def __init__(self, max_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._max_bytes = max_bytes
        self.problem = ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            self.problem = f"{request.url.host}: {error or type(error).__name__}"
            raise
        if request.method == "POST":
            status = response.status_code
            remedy = "; check its token, or what it is allowed" if status in (401, 403) else ""
            self.problem = f"HTTP {status} {response.reason_phrase}{remedy}" if status >= 400 else ""
        inner = response.stream
        assert isinstance(inner, httpx2.AsyncByteStream)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await inner.aclose()
            raise self.too_large("the answer is compressed, which was not asked for", request)
        response.stream = _Stream(inner, self, request)
        return response

    def too_large(self, problem: str, request: httpx2.Request) -> TooLargeError:
        """Keep why an answer is not read, and return the error."""
        self.problem = problem
        return TooLargeError(problem, request=request)

    @property
    def max_bytes(self) -> int:
        """The bound."""
        return self._max_bytes


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, transport: _Bounded, request: httpx2.Request) -> None:
        self._inner, self._transport, self._request = inner, transport, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > self._transport.max_bytes:
                text = f"the answer is longer than {self._transport.max_bytes} bytes"
                raise self._transport.too_large(text, self._request)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Tokens:
    """The tokens of one session, in memory only."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


@asynccontextmanager
async def http_wire(
    server: ServerUrl, *, timeout: float, max_bytes: int, stamp: Callable[[], dict[str, Any]]
) -> AsyncIterator[HttpWire]:
    """Run a connection to a server over HTTP; `stamp` gives the `_meta` of each request."""
    below = _Bounded(max_bytes, verify=client_context(server.ca), trust_env=False)
    client = httpx2.AsyncClient(
        transport=below,
        headers=dict(server.headers),
        auth=_authorization(server.url, server.oauth),
        timeout=httpx2.Timeout(timeout),
        follow_redirects=False,
        trust_env=False,
    )
    async with client, streamable_http_client(server.url, http_client=client, max_sse_event_size=max_bytes) as streams:
        yield HttpWire(streams[0], streams[1], below, stamp)


def _authorization(url: str, oauth: OAuthClient | None) -> httpx2.Auth | None:
    if oauth is None:
        return None
    return ClientCredentialsOAuthProvider(url, _Tokens(), oauth.client_id, oauth.client_secret, issuer=oauth.issuer)
