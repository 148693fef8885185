"""One call to a model's API: bounded by the wall clock, stopped at once, and explained in one line when it fails."""

from __future__ import annotations

import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import urlsplit

from glasslab.models import ModelError, Reply, Stopped
from glasslab.models.replies import AGAIN, MAX_REPLY_BYTES, SHOWN, Unusable, error_of, parse
from glasslab.models.retries import retry_after
from glasslab.models.streams import EVENT_STREAM, Stream
from glasslab.tls import client_context

if TYPE_CHECKING:
    import httpx2

CALL_SECONDS: Final = 120.0  # by the wall clock: a model that drips its reply is not waited for longer
STOP_POLL_SECONDS: Final = 0.05
KEEPALIVE_SECONDS: Final = 30.0
LIST_SECONDS: Final = 5.0

HTTP_REMEDIES: Final = {
    400: "check MODEL and that this model takes tools",
    401: "check MODEL_API_KEY",
    402: "the account has no credit left",
    403: "check what MODEL_API_KEY may use",
    404: "check MODEL_BASE_URL and MODEL",
    413: "the conversation is too long for this model",
    429: "rate limit or quota reached: wait, or check the account",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is: base URL, name, key, CA file (None: the public CAs), and what a call may take.

    `seconds` are by the wall clock; `max_tokens` bounds a reply, None leaves that to the API.
    """

    base_url: str
    model: str
    key: str | None = None
    ca: Path | None = None
    seconds: float = CALL_SECONDS
    max_tokens: int | None = None

    @property
    def host(self) -> str:
        """Host and port, as they are named to the user."""
        return urlsplit(self.base_url).netloc


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, read whole; the headers' names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_ms: float


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: Mapping[str, str]

    @property
    def streams(self) -> bool:
        return self.status < 300 and self.headers.get("content-type", "").lower().startswith(EVENT_STREAM)


class Response(Protocol):
    """What is read of an answer that begins to arrive."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whatever the case of their names."""

    def iter_bytes(self) -> Iterator[bytes]:
        """The body, in the pieces in which it arrives."""


Send = Callable[[float], AbstractContextManager[Response]]


def http_client(place: Place) -> httpx2.Client:
    """Return an HTTP client for the place: its CA, no proxy from the environment, no redirects, bounded answers."""
    import httpx2

    from glasslab.models.bounds import BoundedTransport

    limits = httpx2.Limits(keepalive_expiry=KEEPALIVE_SECONDS)
    # trust_env: no proxy that a variable names; the way to the model is the one that is configured
    transport = BoundedTransport(MAX_REPLY_BYTES, verify=client_context(place.ca), trust_env=False, limits=limits)
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=place.seconds)


class Endpoint:
    """Makes calls to one place. Safe for several threads."""

    def __init__(self, place: Place, speaks: str) -> None:
        """`speaks` names the API that is expected there, for the remedy."""
        self.place = place
        self.speaks = f"check that MODEL_BASE_URL speaks {speaks}"

    def call(self, send: Send, stop: threading.Event, seconds: float | None, stream: Stream | None) -> Answer:
        """Make one call; return its answer of HTTP 2xx, put together when it was streamed.

        `send` gets the seconds it has and opens the answer. Raises ModelError, or Stopped once `stop` is set.
        """
        limit = self.place.seconds if seconds is None else min(self.place.seconds, seconds)
        began = time.monotonic()
        parts: queue.SimpleQueue[object] = queue.SimpleQueue()
        gone = threading.Event()
        threading.Thread(target=_receive, args=(send, limit, parts, gone), name="model", daemon=True).start()
        head, body = _Head(0, {}), b""
        live: Stream | None = None  # the one that is read as it arrives: not every server streams when it is asked to
        try:
            for part in self._wait(parts, began + limit, limit, stop):
                if isinstance(part, bytes):
                    if live is None:
                        body += part
                    else:
                        live.feed(part)
                elif isinstance(part, _Head):
                    head = part
                    live = stream if head.streams else None
            body = body if live is None else live.body()
        except Unusable as unusable:
            self.unusable(unusable)
        finally:
            gone.set()
        answer = Answer(head.status, head.headers, body, round((time.monotonic() - began) * 1000, 3))
        if answer.status >= 300:
            self.refused(answer)
        return answer

    def _wait(
        self, parts: queue.SimpleQueue[object], deadline: float, limit: float, stop: threading.Event
    ) -> Iterator[object]:
        """Yield what arrives until the answer is whole; the wait ends by the wall clock, or when `stop` is set."""
        while True:
            if stop.is_set():
                raise Stopped
            left = deadline - time.monotonic()
            if left <= 0:
                self.fail("model_unreachable", "timeout", f"no reply within {limit:g} s; check the model server")
            try:
                part = parts.get(timeout=min(STOP_POLL_SECONDS, left))
            except queue.Empty:
                continue
            if part is None:
                return
            if isinstance(part, Exception):
                self.explain(part)
            yield part

    def json(self, answer: Answer) -> Any:
        """Return the answer's JSON. Raises ModelError, also for an error that came with HTTP 200."""
        try:
            data = parse(answer.body, answer.status, self.speaks)
        except Unusable as unusable:
            self.unusable(unusable)
        code, _ = error_of(data)
        if code is not None:  # gateways pass a provider's failure on so, behind an HTTP 200
            self.refused(Answer(code, answer.headers, answer.body, answer.latency_ms))
        return data

    def unusable(self, unusable: Unusable, reply: Reply | None = None) -> NoReturn:
        """Raise the ModelError of a reply that cannot be used; `reply` is one that knows more than the error's."""
        self.fail(unusable.status, unusable.reason, str(unusable), reply or unusable.reply, again=unusable.again)

    def refused(self, answer: Answer) -> NoReturn:
        """Raise the ModelError of an answer that is no success."""
        code = answer.status
        otherwise = "see the provider's status page" if code >= 500 else "check MODEL_BASE_URL"
        text = f"HTTP {code}{self.said(answer.body)}; {HTTP_REMEDIES.get(code, otherwise)}"
        status = "model_unreachable" if code >= 500 or code < 400 else "model_refused"
        again = (code in AGAIN or code >= 500) and answer.headers.get("x-should-retry") != "false"
        self.fail(status, f"http_{code}", text, again=again, retry_after=retry_after(answer.headers))

    def fail(self, status: str, reason: str, text: str, reply: Reply | None = None, **more: Any) -> NoReturn:
        """Raise ModelError with one line that names model and host; neither the key nor a line break is in it."""
        if self.place.key:
            text = text.replace(self.place.key, "[key]")
        text = "".join(character if character.isprintable() else " " for character in text)
        raise ModelError(status, reason, f"model {self.place.model} at {self.place.host}: {text}", reply, **more)

    def said(self, body: bytes) -> str:
        """Return what an error body says, in brackets; the key goes first, so that no cut can leave a part of it."""
        try:
            data = parse(body, 0, "")
        except Unusable:
            data = body.decode("utf-8", "replace")
        inner = data.get("error", data) if isinstance(data, dict) else data
        text = inner.get("message") if isinstance(inner, dict) else inner
        if not isinstance(text, str) or not text.strip():
            return ""
        key = self.place.key
        return f" ({(text.replace(key, '[key]') if key else text)[:SHOWN].strip()})"

    def explain(self, error: Exception) -> NoReturn:
        """Turn what a call raised into one line."""
        import httpx2

        from glasslab.models.bounds import UnboundedError

        if isinstance(error, ModelError):
            raise error
        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
            causes.append(cause)
        root = causes[-1]
        if any(isinstance(cause, httpx2.TimeoutException) for cause in causes):
            text = f"no reply within {self.place.seconds:g} s; check the model server"
            self.fail("model_unreachable", "timeout", text)
        if isinstance(root, ssl.SSLError):
            said = getattr(root, "verify_message", "") or root.reason or "handshake failed"
            self.fail("model_unreachable", "tls", f"TLS: {said}; set MODEL_CA, and use a name in the certificate")
        if isinstance(root, ConnectionRefusedError):
            text = "connection refused; start it or check MODEL_BASE_URL"
            self.fail("model_unreachable", "connection_refused", text, again=True)
        for cause in causes:
            if isinstance(cause, UnboundedError):
                self.fail("model_invalid", "not_readable", f"{cause}; {self.speaks}")
        if any(isinstance(cause, httpx2.HTTPError | OSError) for cause in causes):
            text = f"{root or 'no connection'}; check MODEL_BASE_URL"
            self.fail("model_unreachable", "connection_failed", text, again=True)
        self.fail("model_invalid", "not_readable", f"{root}; {self.speaks}")


def _receive(send: Send, limit: float, parts: queue.SimpleQueue[object], gone: threading.Event) -> None:
    """Read an answer, in a thread of its own: its head, the body's pieces, None; or an exception."""
    try:
        with send(limit) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            parts.put(_Head(response.status_code, headers))
            for piece in response.iter_bytes():
                parts.put(piece)
                if gone.is_set():
                    return  # nobody waits any more; leaving the block closes the connection
        parts.put(None)
    except Exception as error:
        parts.put(error)
