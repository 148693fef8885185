"""Web servers of the lab's internet. Usage: webhosts.py doh|packages ADDRESS [CERTIFICATE KEY]

`doh` answers DNS over HTTPS, whatever is asked, with 203.0.113.80; `packages` is a package mirror. Each request that
arrived is printed, one JSON object a line, up to a bound. Port 443 with a certificate; `packages` also on port 80.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mirror

PRINTED_AT_MOST = 20_000
BODY_AT_MOST = 65_535
ANSWER = bytes([203, 0, 113, 80])


def dns_answer(question: bytes) -> bytes:
    """The reply to a DNS query of one question: an address, whatever it asks. Raises ValueError for anything else."""
    if len(question) < 17 or question[4:6] != b"\0\1":
        raise ValueError("no DNS query of one question")
    end = question.find(b"\0", 12) + 5
    head = question[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
    return head + question[12:end] + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + ANSWER


class Server(ThreadingHTTPServer):
    """One host on one port; with a certificate it speaks TLS and notes the name that each client asked for."""

    def __init__(self, address: tuple[str, int], name: str, certificate: tuple[str, str] | None) -> None:
        super().__init__(address, Handler)
        self.name = name
        self.files = mirror.files() if name == "packages" else {}
        self.printed = 0
        self.tls: ssl.SSLContext | None = None
        if certificate:
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(*certificate)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that broke off, or did not speak TLS, is one line."""
        self.report(peer=str(client_address), error=repr(sys.exc_info()[1]))

    def report(self, **seen: object) -> None:
        """Print what arrived."""
        self.printed += 1
        if self.printed <= PRINTED_AT_MOST:
            print(json.dumps({"time": time.time(), "port": self.server_port, **seen}), flush=True)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and POST."""

    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds a connection may be silent
    server: Server

    def setup(self) -> None:
        """Shake hands in the connection's own thread."""
        if self.server.tls:
            self.request.settimeout(self.timeout)
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def do_GET(self) -> None:
        """A file of the mirror, or a query in the address."""
        path, _, query = self.path.partition("?")
        asked = urllib.parse.parse_qs(query).get("dns", [""])[0]
        try:
            self._reply(path, base64.urlsafe_b64decode(asked + "=" * (-len(asked) % 4)))
        except binascii.Error:
            self._reply(path, b"")

    def do_POST(self) -> None:
        """A query in the body."""
        size = min(int(self.headers.get("Content-Length") or 0), BODY_AT_MOST)
        self._reply(self.path, self.rfile.read(size))

    def _reply(self, path: str, question: bytes) -> None:
        self.server.report(peer=self.client_address[0], host=self.headers.get("Host"), path=self.path)
        path = posixpath.normpath(path)  # apt asks for /./Packages
        status, kind, content = 404, "text/plain", b"not here\n"
        if path in self.server.files:
            status, kind, content = 200, "application/octet-stream", self.server.files[path]
        elif path == "/dns-query" and self.server.name == "doh":
            try:
                status, kind, content = 200, "application/dns-message", dns_answer(question)
            except ValueError as error:
                status, content = 400, f"{error}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Requests are reported as JSON instead."""


def main(arguments: list[str]) -> int:
    """Serve until killed; 1 when an address cannot be had."""
    name, address, *pair = arguments
    certificate = (pair[0], pair[1]) if pair else None
    wanted = [(443, certificate)] if certificate else []
    wanted += [(80, None)] if name == "packages" else []
    try:
        servers = [Server((address, port), name, found) for port, found in wanted]
    except OSError as error:
        print(f"webhosts: {name}: cannot listen on {address} or read its certificate: {error}", file=sys.stderr)
        return 1
    threads = [threading.Thread(target=one.serve_forever) for one in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
