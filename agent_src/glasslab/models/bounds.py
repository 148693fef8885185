"""An HTTP transport whose answers are bounded, in bytes and by the wall clock: a model server may be anybody's.

The SDK reads the body of an error, and that of a list of models, to its end, however long that is and takes. So the
bounds are below it, where every answer passes. Imported with the SDK, on first use.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx2

STREAM_OVERHEAD = 20  # a streamed answer repeats its frame around every few characters; what it holds is counted apart


class UnboundedError(ValueError):
    """An answer that is not read any further; the text says why."""


class BoundedTransport(httpx2.HTTPTransport):
    """As its base, but an answer of more than `max_bytes`, or a compressed one, is an UnboundedError.

    The request's read timeout is the time that the whole answer has, not each part of it.
    """

    def __init__(self, max_bytes: int, **options: Any) -> None:
        """`options` are HTTPTransport's."""
        super().__init__(**options)
        self._max_bytes = max_bytes

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request; bound what is answered. Asks for no compression, since a small answer may unpack to any."""
        request.headers["Accept-Encoding"] = "identity"
        limit = request.extensions.get("timeout", {}).get("read")
        deadline = None if limit is None else time.monotonic() + limit
        response = super().handle_request(request)
        inner = response.stream
        assert isinstance(inner, httpx2.SyncByteStream)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            inner.close()
            raise UnboundedError("the answer is compressed, which was not asked for")
        streamed = response.headers.get("Content-Type", "").lower().startswith("text/event-stream")
        most = self._max_bytes * (STREAM_OVERHEAD if streamed else 1)
        response.stream = _BoundedStream(inner, most, deadline, request)
        return response


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(
        self, inner: httpx2.SyncByteStream, max_bytes: int, deadline: float | None, request: httpx2.Request
    ) -> None:
        self._inner, self._max_bytes, self._deadline, self._request = inner, max_bytes, deadline, request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        try:
            for part in self._inner:
                size += len(part)
                if size > self._max_bytes:
                    raise UnboundedError(f"the answer is larger than {self._max_bytes} bytes")
                if self._deadline is not None and time.monotonic() > self._deadline:
                    raise httpx2.ReadTimeout("the answer took too long", request=self._request)
                yield part
        except BaseException:
            self.close()  # whoever reads does not, when reading fails
            raise

    def close(self) -> None:
        self._inner.close()
