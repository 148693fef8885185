"""One keep-alive connection to a Splunk HTTP Event Collector, with a wall-clock deadline. Used by recorder.py.

Each POST is sent once. A connection that the server closed while idle is replaced before anything is sent on it; once
bytes may have reached the server nothing is ever sent again, since that could double what is already indexed.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from glasslab.guardrails import visible_line
from glasslab.hec_errors import REMEDIES, LoggingError, explained, late
from glasslab.settings import HecSettings

MAX_ANSWER_BYTES: Final = 65_536
IDLE_SECONDS: Final = 4.0  # well under the idle timeouts of HEC servers: a connection idle for longer is not trusted
ACK_POLL_SECONDS: Final = 0.1
NO_DATA: Final = 5


class _Adapter(HTTPAdapter):
    """requests' adapter, with a handle on the socket in use, so that a POST past its deadline can be cut off.

    `name` is the one that the certificate has to hold; None: the one that is connected to.
    """

    connection: HTTPConnection | None = None
    cut = False

    def __init__(self, name: str | None) -> None:
        self._name = name
        super().__init__(max_retries=0, pool_maxsize=1)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pool as requests does, for a peer of that name."""
        if self._name:
            kwargs["server_hostname"] = self._name
        super().init_poolmanager(*args, **kwargs)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        """Return the pool as requests does; the connections it makes report themselves here."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        if not getattr(pool, "reporting", False):
            pool.ConnectionCls, pool.reporting = _reporting(pool.ConnectionCls, self), True
        made: HTTPConnectionPool = pool
        return made


def _reporting(base: Any, adapter: _Adapter) -> type[HTTPConnection]:
    class Reporting(base):  # type: ignore[misc]  # mypy wants a class known to it; plain or TLS is the pool's choice at run time
        def connect(self) -> None:
            adapter.connection = self
            super().connect()
            if adapter.cut:  # a name that resolved after the deadline: nothing may be sent any more
                self.close()
                raise ConnectionAbortedError

    return Reporting


class HecConnection:
    """One connection and the thread that uses it: the caller waits until the deadline, never longer."""

    def __init__(self, hec: HecSettings) -> None:
        """Nothing is opened before the first `post` or `warm`, so that it may be made before a fork."""
        self._hec = hec
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._base = hec.forward or hec.url
        self._adapter = _Adapter(urlsplit(hec.url).hostname if hec.forward else None)
        self._channel = str(uuid.uuid4())
        self._unsettled: set[int] = set()  # ackIds of what is accepted and not yet known to be indexed
        self._last_used = 0.0
        self.broken = False

    def post(self, body: bytes, *, last: bool = False) -> None:
        """Send one POST of events and return once it is acknowledged. Raises LoggingError.

        With HEC_ACK=indexed_at_end the `last` one is acknowledged when all that were sent here are indexed.
        """
        deadline = time.monotonic() + self._hec.deadline
        self._within(deadline, lambda: self._post(body, deadline, last))

    def settle(self) -> None:
        """Return once all that was sent here is indexed. Raises LoggingError."""
        if self._unsettled:
            deadline = time.monotonic() + self._hec.deadline
            self._within(deadline, lambda: self._wait_indexed(deadline))

    def warm(self) -> bool:
        """Open the connection ahead by a health check; return whether the server answered. Never raises."""
        deadline = time.monotonic() + self._hec.deadline
        try:
            self._within(deadline, lambda: self._exchange("GET", "/health", b"", deadline))
        except LoggingError:
            return False
        return True

    def check(self) -> None:
        """Send a POST without events: a HEC that takes the token answers code 5, No data. Raises LoggingError."""
        deadline = time.monotonic() + self._hec.deadline
        self._within(deadline, lambda: self._check(deadline))

    def close(self) -> None:
        """Close the connection; its thread ends."""
        self.broken = True
        self._jobs.put(None)

    def _within(self, deadline: float, job: Callable[[], Any]) -> None:
        if self.broken:
            raise self._failed("log_unreachable", "this connection failed before", "start a new session")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="hec", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        try:
            succeeded, value = self._results.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self._cut()
            raise self._late() from None
        except BaseException:  # Ctrl-C while waiting: an answer nobody takes must not be taken for a later commit's
            self._cut()
            raise
        if not succeeded:
            self.close()
            raise value
        if time.monotonic() > deadline:  # it was there, but this process was held up and took it too late
            self.close()
            raise self._late()

    def _cut(self) -> None:
        self.close()
        self._adapter.cut = True
        connection = self._adapter.connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _work(self) -> None:
        with requests.Session() as session:
            self._session = session
            session.trust_env = False  # no proxy, netrc or CA bundle out of the environment
            session.mount(self._base, self._adapter)
            while (job := self._jobs.get()) is not None:
                try:
                    self._results.put((True, job()))
                except LoggingError as error:
                    self._results.put((False, error))
                except Exception as error:
                    self._results.put((False, explained(error, self._hec.url, self._hec.deadline)))

    def _check(self, deadline: float) -> None:
        status, answer = self._exchange("POST", "", b"", deadline)
        if not isinstance(answer, dict) or answer.get("code") != NO_DATA:
            self._acknowledged(status, answer)

    def _post(self, body: bytes, deadline: float, last: bool) -> None:
        status, answer = self._exchange("POST", "", body, deadline)
        self._acknowledged(status, answer)
        if self._hec.ack == "accepted":
            return
        if type(answer.get("ackId")) is not int:
            self._reject("the answer has no ackId", REMEDIES[14])
        self._unsettled.add(answer["ackId"])
        if last or self._hec.ack == "indexed":
            self._wait_indexed(deadline)

    def _acknowledged(self, status: int, answer: Any) -> None:
        if type(answer) is not dict or type(answer.get("code")) is not int:
            self._reject(f"HTTP {status} without a HEC code", "check that HEC_URL is a Splunk HEC (port 8088)")
        # The log says what it likes: neither a line break nor the token belongs into what is shown of it.
        text = visible_line(str(answer.get("text", "")).replace(self._hec.token, "[token]"))[:200]
        code = answer["code"]
        if status != 200 or code != 0:
            event = answer.get("invalid-event-number")
            where = f", event {event}" if isinstance(event, int) else ""
            self._reject(f"HTTP {status}, code {code} ({text}{where})", REMEDIES.get(code, "see the HEC's own log"))

    def _wait_indexed(self, deadline: float) -> None:
        """Ask until every POST is indexed, in whatever order. What was told is forgotten there: not asked again."""
        while True:
            body = json.dumps({"acks": sorted(self._unsettled)}).encode()
            status, answer = self._exchange("POST", f"/ack?channel={self._channel}", body, deadline)
            acks = answer.get("acks") if isinstance(answer, dict) else None
            if status != 200 or not isinstance(acks, dict):
                self._reject(f"HTTP {status} to an acknowledgment query", REMEDIES[14])
            self._unsettled = {number for number in self._unsettled if acks.get(str(number)) is not True}
            if not self._unsettled:
                return
            if time.monotonic() + ACK_POLL_SECONDS >= deadline:
                raise self._late()
            time.sleep(ACK_POLL_SECONDS)

    def _exchange(self, method: str, path: str, body: bytes, deadline: float) -> tuple[int, Any]:
        """Send one request; return HTTP status and parsed body (None when it is no JSON)."""
        now = time.monotonic()
        if now - self._last_used > IDLE_SECONDS:
            self._adapter.poolmanager.clear()
        # urllib3 looks whether an idle connection has become readable (closed by the server) before it reuses it.
        headers = {"Authorization": f"Splunk {self._hec.token}", "Content-Type": "application/json"}
        if self._hec.ack != "accepted":
            headers["X-Splunk-Request-Channel"] = self._channel
        response = self._session.request(
            method,
            f"{self._base}/services/collector{path}",
            data=body,
            headers=headers,
            timeout=max(0.001, deadline - now),
            verify=str(self._hec.ca) if self._hec.ca else True,
            allow_redirects=False,
            stream=True,
        )
        content = b""
        for chunk in response.iter_content(4096):
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                self._reject(f"HTTP {response.status_code} with an endless answer", "check HEC_URL")
        self._last_used = time.monotonic()
        try:
            return response.status_code, json.loads(content)
        except (ValueError, RecursionError):
            return response.status_code, None

    def _failed(self, status: str, cause: str, remedy: str) -> LoggingError:
        return LoggingError(status, self._hec.url, cause, remedy)

    def _reject(self, cause: str, remedy: str) -> NoReturn:
        raise self._failed("log_rejected", cause, remedy)

    def _late(self) -> LoggingError:
        return late(self._hec.url, self._hec.deadline)
