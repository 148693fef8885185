"""One POST to the log's HTTP Event Collector, verified, with a deadline by the wall clock."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

MAX_ANSWER = 65_536
IDLE_SECONDS = 4.0  # a connection idle for longer is not trusted: what is sent on a dead one might arrive twice


class LogError(Exception):
    """The log has not acknowledged; the text says why, without what was sent."""


class Hec:
    """The way to the log: one connection, kept while it works."""

    def __init__(self, url: str, token: str, ca: Path, deadline: float) -> None:
        """`url` is https://HOST:PORT; `ca` the one CA that is trusted; `deadline` is in seconds for each POST."""
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{url} is no https URL; give https://HOST:8088")
        self.url, self._host, self._port = url, parts.hostname, parts.port or 443
        self._token, self._deadline = token, deadline
        self._context = ssl.create_default_context(cafile=str(ca))
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def post(self, body: bytes) -> None:
        """Send events and return once they are acknowledged. Raises LogError.

        A connection that was kept and is found dead is replaced once: what was sent on it is sent again, which readers
        know by the same bytes.
        """
        if time.monotonic() - self._used > IDLE_SECONDS:
            self.close()
        kept = self._connection is not None
        try:
            try:
                status, answer = self._exchange(body)
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if not kept:
                    raise
                status, answer = self._exchange(body)
        except ssl.SSLError as error:
            self.close()
            raise LogError(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from None
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise LogError(str(error) or type(error).__name__) from None
        code = answer.get("code")
        if status != 200 or code != 0 or isinstance(code, bool):
            self.close()
            text = str(answer.get("text", "")).replace(self._token, "[token]")[:200]
            raise LogError(f"HTTP {status}, code {code} ({text!r})")

    def close(self) -> None:
        """Close the connection; the next POST opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def _exchange(self, body: bytes) -> tuple[int, dict[str, object]]:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._deadline, context=self._context
            )
        connection = self._connection
        late = threading.Event()
        watch = threading.Timer(self._deadline, _cut, (connection, late))
        watch.start()  # a socket's timeout is for each read: a log that drips would never reach it
        try:
            headers = {"Authorization": f"Splunk {self._token}", "Content-Type": "application/json"}
            connection.request("POST", "/services/collector", body, headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER)
        except (http.client.HTTPException, OSError):
            if late.is_set():
                raise TimeoutError(f"no acknowledgement within {self._deadline:g} s") from None
            raise
        finally:
            watch.cancel()
        self._used = time.monotonic()
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        return answer.status, value if isinstance(value, dict) else {}


def _cut(connection: http.client.HTTPSConnection, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
