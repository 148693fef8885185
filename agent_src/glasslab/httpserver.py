"""A small threaded HTTP/1.1 server: keep-alive, TLS, bounded threads, wall-clock limits on what a client may take.

The collector and the scripted model stand on it. It knows nothing of either.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import socketserver
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

IDLE_SECONDS: Final = 300.0
HANDSHAKE_SECONDS: Final = 10.0
FIRST_SECONDS: Final = 10.0  # until a connection's first request: who has asked nothing holds a place for no longer
REQUEST_SECONDS: Final = 30.0


class ServeError(Exception):
    """The server cannot start; the text is one line that names what, its value and the remedy."""


class BadRequestError(Exception):
    """The request's body cannot be read; holds the HTTP status to answer with."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the status (400, 411, 413) and one line for the client."""
        super().__init__(text)
        self.status = status


def tls_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return a server context for a PEM certificate; without `key` the same file holds the private key too.

    Raises ServeError when a file is missing, unreadable or no matching pair.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password callback, so that an encrypted key fails here instead of asking on a terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        names = f"{certificate}" if key is None else f"{certificate} and {key}"
        raise ServeError(f"cannot use TLS certificate {names}: {error}; give a PEM certificate and its key") from None
    return context


class Server(socketserver.TCPServer):
    """One listening port; a thread a connection, at most `max_connections` of them."""

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        host: str,
        port: int,
        handler: type[Handler],
        *,
        context: ssl.SSLContext | None = None,
        max_connections: int = 256,
    ) -> None:
        """Bind and listen. Raises ServeError when the address cannot be had."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ServeError(
                f"cannot listen on {host or '*'}:{port}: {reason}; free the port or give another"
            ) from None
        self.closing = False
        self.max_connections = max_connections
        self._context = context
        self._lock = threading.Lock()
        # Each open connection, and when it must have finished what it is doing (None: no limit at the moment).
        self._deadlines: dict[socket.socket, float | None] = {}
        self._answering = 0

    @property
    def port(self) -> int:
        """The port it listens on (also when 0 was asked for)."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread of its own, or close it at once when all are taken."""
        with self._lock:
            full = len(self._deadlines) >= self.max_connections
            if not full:
                self._deadlines[request] = time.monotonic() + HANDSHAKE_SECONDS
        if full:
            print(f"connection from {client_address[0]} closed: {self.max_connections} are open", file=sys.stderr)
            self.close_request(request)
            return
        threading.Thread(target=self._serve, args=(request, client_address), daemon=True).start()

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        plain = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(HANDSHAKE_SECONDS)
            if self._context is not None:
                # Here and not in the accepting thread: a client that stalls its handshake holds up nobody else.
                connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    self._deadlines[connection] = self._deadlines.pop(plain)
                connection.do_handshake()
            self.finish_request(connection, client_address)
        except OSError:
            pass  # the client went away, spoke no TLS or took too long: nothing to answer, nobody to tell
        except Exception:  # our own fault: this connection ends, the server goes on
            self.handle_error(connection, client_address)
        finally:
            with self._lock:
                self._deadlines.pop(connection, None)
                self._deadlines.pop(plain, None)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            connection.close()

    def set_deadline(self, connection: socket.socket, seconds: float | None) -> None:
        """Give a connection so many seconds from now for what it does next; None: as long as it likes."""
        with self._lock:
            if connection in self._deadlines:
                self._deadlines[connection] = None if seconds is None else time.monotonic() + seconds

    @contextlib.contextmanager
    def answering(self) -> Any:
        """Count a request that was read and is not answered yet: stop() waits for these."""
        with self._lock:
            self._answering += 1
        try:
            yield
        finally:
            with self._lock:
                self._answering -= 1

    def service_actions(self) -> None:
        """Break off connections that are over their time (called ten times a second by serve_forever)."""
        now = time.monotonic()
        with self._lock:
            over = [item for item, deadline in self._deadlines.items() if deadline is not None and deadline < now]
        for connection in over:
            self._break(connection)

    @staticmethod
    def _break(connection: socket.socket) -> None:
        # socket.socket.shutdown, not SSLSocket's: that one would take the TLS state away under the reading thread.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def start(self) -> None:
        """Serve in a background thread until stop()."""
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self, seconds: float = 1.0) -> None:
        """Accept nothing more, let requests that were read be answered for so long, then close every connection."""
        self.closing = True
        self.shutdown()
        self.server_close()
        until = time.monotonic() + seconds
        while self._answering and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            left = list(self._deadlines)
        for connection in left:
            self._break(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line that a request failed by our own fault; the traceback belongs to no log of a client."""
        print(f"request from {client_address[0]} failed: {sys.exc_info()[1]!r}", file=sys.stderr)


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request within its limits and writes an answer in one piece. Subclasses write do_GET and do_POST."""

    protocol_version = "HTTP/1.1"
    server_version = "glasslab"
    sys_version = ""
    timeout = IDLE_SECONDS
    _headers_buffer: list[bytes]  # the base class's own, which its type stub leaves out
    rbufsize = 65536
    server: Server
    _asked = False  # anything on this connection

    def handle_one_request(self) -> None:
        """Wait for the next request on this connection, as long as an idle one may stay open."""
        self.server.set_deadline(self.connection, IDLE_SECONDS if self._asked else FIRST_SECONDS)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """From its first line on, a request has REQUEST_SECONDS to arrive; then the time is ours."""
        self._asked = True
        self.server.set_deadline(self.connection, REQUEST_SECONDS)
        arrived = super().parse_request()
        if arrived and not {"content-length", "transfer-encoding"} & {name.lower() for name in self.headers}:
            self.server.set_deadline(self.connection, None)
        return arrived

    def read_body(self, limit: int) -> bytes:
        """Return the request's body, at most `limit` bytes. Raises BadRequestError, after which the connection ends."""
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise BadRequestError(411, "Content-Length is required; chunked bodies are not taken")
        text = self.headers.get("Content-Length", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            self.close_connection = True
            raise BadRequestError(400, "Content-Length is not a number")
        length = int(text)
        if length > limit:
            self.close_connection = True
            raise BadRequestError(413, f"Content-Length of {length} too large (maximum is {limit})")
        body = self.rfile.read(length) if length else b""
        self.server.set_deadline(self.connection, None)
        if len(body) < length:
            raise ConnectionResetError("the client went away in the middle of its body")
        return body

    def answer(
        self,
        status: int,
        body: bytes,
        content_type: str,
        headers: dict[str, str] | None = None,
        *,
        length: int | None = None,
    ) -> None:
        """Write the whole answer with one send, so that it leaves in one segment.

        `headers` win over those made here. `length` announces a body that the caller writes afterwards.
        """
        made = {"Content-Type": content_type, "Content-Length": str(len(body) if length is None else length)}
        if self.close_connection:
            made["Connection"] = "close"
        given = headers or {}
        names = {name.lower() for name in given}
        self.send_response_only(status)
        for name, value in [*((k, v) for k, v in made.items() if k.lower() not in names), *given.items()]:
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + (body if self.command != "HEAD" else b""))
        self.flush_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: request lines are the client's text."""
