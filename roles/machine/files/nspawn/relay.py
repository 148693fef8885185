"""The one way out: forwards the lab's model API to a real model's base URL, and to nothing else.

It listens inside the lab's stand-in for the internet and connects from the machine's root namespace. A request for
/v1/REST goes to BASE_URL/REST; bodies and streams pass through, so does the Authorization header. Who may come here at
all is the hypervisor's business; what can be reached from here is fixed on the command line.
Stands alone (standard library only).
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import re
import socket
import ssl
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

PREFIX = "/v1"
MAX_REQUEST = 32 << 20  # bytes of a request's body
MAX_RESPONSE = 256 << 20
MAX_CONNECTIONS = 64
CLIENT_TIMEOUT = 30.0  # seconds for the lab's side to send or take something
CONNECT_TIMEOUT = 10.0
UPSTREAM_TIMEOUT = 600.0  # seconds between two pieces of an answer: a model may think for long
CLONE_NEWNET = 0x40000000

# of one connection and not of the message (RFC 9110, 7.6.1), or set anew here
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
SET_ANEW = {"host", "content-length", "expect", "date", "server"}
# plain path segments only: nothing that an upstream could read as a way out of the base URL
SEGMENTS = re.compile(r"(/[A-Za-z0-9_~:@.-]+)*/?")


class Refused(Exception):
    """A request that is answered here: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Upstream:
    """The base URL, taken apart, and how its certificate is verified."""

    scheme: str
    host: str
    port: int
    path: str
    context: ssl.SSLContext | None

    @classmethod
    def parse(cls, url: str, ca: str | None = None) -> Upstream:
        """Take a base URL apart. Raises ValueError, saying what is wrong, for one that cannot be forwarded to."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base URL {url!r}: give http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("base URL: no user, password, query or fragment may be in it: use the API key's setting")
        context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        port = parts.port or (443 if context else 80)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), context)

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.context else 80) else f"{host}:{self.port}"

    def target(self, requested: str) -> str:
        """The upstream's request target for one of the lab's. Raises Refused for anything outside /v1."""
        path, mark, query = requested.partition("?")
        rest = path[len(PREFIX) :]
        inside = path == PREFIX or path.startswith(f"{PREFIX}/")
        if not inside or not SEGMENTS.fullmatch(rest) or any(part in (".", "..") for part in rest.split("/")):
            raise Refused(404, f"this relay serves paths below {PREFIX} only")
        if any(ord(letter) <= 0x20 or ord(letter) >= 0x7F for letter in query):
            raise Refused(400, "the query holds characters that no URL may hold")
        return f"{self.path}{rest}{mark}{query}" or "/"

    def connect(self) -> http.client.HTTPConnection:
        """A connection that has not been opened yet."""
        if self.context:
            return http.client.HTTPSConnection(self.host, self.port, timeout=CONNECT_TIMEOUT, context=self.context)
        return http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_TIMEOUT)


class Relay(ThreadingHTTPServer):
    """Accepts on a socket made elsewhere; TLS is spoken in each connection's own thread."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext, upstream: Upstream) -> None:
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.tls, self.upstream = tls, upstream
        self.places = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]  # narrowed: TCP only
        """Give the connection a thread if there is a place left, else close it."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]  # narrowed: TCP only
        """Shake hands, then serve."""
        try:
            request.settimeout(CLIENT_TIMEOUT)
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                self.shutdown_request(request)
                return
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no news; anything else is one line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"relay: {client_address}: {error!r}", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    """One connection from the lab."""

    protocol_version = "HTTP/1.1"
    server_version = "glasslab-relay"
    sys_version = ""
    server: Relay

    def do_GET(self) -> None:
        """Forward."""
        self._relay()

    def do_POST(self) -> None:
        """Forward."""
        self._relay()

    def _relay(self) -> None:
        try:
            body = self._body()
            target = self.server.upstream.target(self.path)
            connection = self.server.upstream.connect()
            try:
                answer = self._ask(connection, target, body)
                self._pass_on(answer)
            finally:
                connection.close()
        except Refused as refusal:
            self._refuse(refusal)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length")
        if "Transfer-Encoding" in self.headers:
            raise Refused(411, "send a Content-Length: this relay takes no chunked requests")
        if length is None:
            return b""
        if not length.isdigit() or int(length) > MAX_REQUEST:
            raise Refused(413, f"Content-Length {length!r}: this relay takes at most {MAX_REQUEST} bytes")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise Refused(400, "the body ended before its Content-Length")
        return body

    def _ask(self, connection: http.client.HTTPConnection, target: str, body: bytes) -> http.client.HTTPResponse:
        upstream = self.server.upstream
        dropped = HOP_BY_HOP | SET_ANEW | _named_by_connection(self.headers.get("Connection", ""))
        try:
            connection.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", upstream.authority)
            for name, value in self.headers.items():
                if name.lower() not in dropped:
                    connection.putheader(name, value)
            if body or self.command == "POST":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            assert connection.sock is not None
            connection.sock.settimeout(UPSTREAM_TIMEOUT)
            return connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            where = f"{upstream.scheme}://{upstream.authority}{upstream.path}"
            raise Refused(502, f"the model at {where} cannot be reached through the relay: {_plain(error)}") from None

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        """Answer with what came, piece by piece as it comes."""
        self.send_response(answer.status, answer.reason)
        dropped = HOP_BY_HOP | SET_ANEW | _named_by_connection(answer.headers.get("Connection", ""))
        for name, value in answer.headers.items():
            if name.lower() not in dropped:
                self.send_header(name, value)
        bodiless = answer.status in (204, 304) or answer.status < 200
        if not bodiless:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if bodiless:
            return
        passed = 0
        try:
            while piece := answer.read1(65536):
                passed += len(piece)
                if passed > MAX_RESPONSE:
                    raise OSError(f"the answer is longer than {MAX_RESPONSE} bytes")
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if answer.length:
                raise OSError(f"the model's server closed {answer.length} bytes before the end")
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException) as error:
            # the end of the chunks is missing: the client sees that the answer was cut, and not a short whole one
            print(f"relay: answer cut: {_plain(error)}", file=sys.stderr, flush=True)
            self.close_connection = True

    def _refuse(self, refusal: Refused) -> None:
        content = json.dumps({"error": {"type": "relay", "code": refusal.status, "message": str(refusal)}}).encode()
        self.close_connection = True  # the request's body may not have been read
        self.send_response(refusal.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """One line a request, without headers."""
        print(f"relay: {self.client_address[0]} {format % args}", file=sys.stderr, flush=True)


def _named_by_connection(value: str) -> set[str]:
    return {name.strip().lower() for name in value.split(",") if name.strip()}


def _plain(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)) or type(error).__name__


def listen_inside(namespace: str | None, host: str, port: int) -> socket.socket:
    """A listening socket that belongs to another network namespace, while this process stays where it is."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if namespace:
            with Path(namespace).open() as target:
                if libc.setns(target.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return socket.create_server((host, port), backlog=64)
    finally:
        if namespace and libc.setns(home, CLONE_NEWNET) != 0:
            os._exit(1)  # never connect from inside the lab
        os.close(home)


def main(arguments: list[str]) -> int:
    """Serve until killed; 2 for a bad argument."""
    parser = argparse.ArgumentParser(prog="relay.py", description="Forward the lab's model API to one base URL.")
    for name in ("base-url", "host", "cert", "key"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--namespace", help="path of the network namespace to listen in")
    parser.add_argument("--ca", help="CA file for the upstream (default: the system's)")
    options = parser.parse_args(arguments)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        tls.load_cert_chain(options.cert, options.key)
        upstream = Upstream.parse(options.base_url, options.ca)
        relay = Relay(listen_inside(options.namespace, options.host, options.port), tls, upstream)
    except (OSError, ValueError) as error:
        print(f"relay: {_plain(error)}", file=sys.stderr)
        return 2
    print(f"relay: {upstream.scheme}://{upstream.authority}{upstream.path}", file=sys.stderr, flush=True)
    relay.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
