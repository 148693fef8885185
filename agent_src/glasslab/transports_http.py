"""The host's end of an MCP connection over streamable HTTP: the SDK's transport, bounded and listened to.

As on a socket (transports.py) answers are kept as they were sent, for pinning, and what a server tells unasked is not
heard. No redirect leaves the server's origin, no proxy of the environment is used, every certificate is verified.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.message import SessionMessage

from glasslab.exchange import End, Exchange, ReadingEnd
from glasslab.models.retries import retry_after
from glasslab.tls import client_context
from glasslab.tooltypes import OAuthClient, ServerUrl

_CLOSE_SECONDS: Final = 1.0  # for the goodbye to a server, with whatever it takes to be let say it
_AGAIN: Final = (408, 409, 425, 429)  # and 5xx: HTTP statuses that may pass


class TooLargeError(httpx2.TransportError):
    """An answer beyond the bound; it is not read to its end."""


class HttpWire(Exchange):
    """One connection over HTTP, with what a `Wire` has."""

    def __init__(self, reader: Any, writer: Any, below: "_Bounded") -> None:
        """`reader` and `writer` are the SDK's streams, `below` is what they go through."""
        super().__init__()
        self._below = below
        self.reader = _Reader(reader, self)
        self.writer = _Writer(writer, self)

    @property
    def problem(self) -> str:
        """What went wrong with the last request, as HTTP or below it; empty when nothing did."""
        return self._below.problem

    @property
    def again(self) -> bool:
        """Whether that may pass."""
        return self._below.again

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the server says that it may."""
        return self._below.retry_after


class _Writer(End):
    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(self._exchange.sending(item))


class _Reader(ReadingEnd):
    async def receive(self) -> SessionMessage | Exception:
        while True:
            item: SessionMessage | Exception = await self._stream.receive()
            if self._exchange.heard(item):
                return item


class _Bounded(httpx2.AsyncHTTPTransport):
    """Its base, but an answer beyond `max_bytes`, or a compressed one, is an error."""

    def __init__(self, max_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._max_bytes = max_bytes
        self.problem, self.again = "", False
        self.retry_after: float | None = None
        self._until: float | None = None  # when all has to be over, once the connection is being closed

    def end_soon(self) -> None:
        """Give all that is still to be sent _CLOSE_SECONDS, and do not read what is answered."""
        self._until = anyio.current_time() + _CLOSE_SECONDS

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        try:
            with anyio.fail_after(None if self._until is None else max(0.0, self._until - anyio.current_time())):
                response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            self.problem, self.again = f"{request.url.host}: {error or type(error).__name__}", True
            raise
        if request.method == "POST":
            status = response.status_code
            remedy = "; check its token, or what it is allowed" if status in (401, 403) else ""
            self.problem = f"HTTP {status} {response.reason_phrase}{remedy}" if status >= 400 else ""
            self.again = status in _AGAIN or status >= 500
            self.retry_after = retry_after(response.headers)
        inner = response.stream
        assert isinstance(inner, httpx2.AsyncByteStream)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await inner.aclose()
            raise self.too_large("the answer is compressed, which was not asked for", request)
        if self._until is not None:
            await inner.aclose()
            response.stream = httpx2.ByteStream(b"")
            return response
        response.stream = _Stream(inner, self, request)
        return response

    def too_large(self, problem: str, request: httpx2.Request) -> TooLargeError:
        """Keep why an answer is not read, and return the error."""
        self.problem, self.again = problem, False
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
    """The tokens of one session, in memory only; `seen` gets each one's text, so that no message quotes it."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._seen += [text for text in (tokens.access_token, tokens.refresh_token) if text]
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


@asynccontextmanager
async def http_wire(server: ServerUrl, *, timeout: float, max_bytes: int) -> AsyncIterator[HttpWire]:
    """Run a connection to a server over HTTP."""
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
        try:
            yield HttpWire(streams[0], streams[1], below)
        finally:
            below.end_soon()


def _authorization(url: str, oauth: OAuthClient | None) -> httpx2.Auth | None:
    if oauth is None:
        return None
    return ClientCredentialsOAuthProvider(
        url, _Tokens(oauth.tokens), oauth.client_id, oauth.client_secret, issuer=oauth.issuer
    )
