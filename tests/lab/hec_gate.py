"""A gate in front of the log, for tests: passes so many commits to the collector, then fails in a chosen way.

Runs on the log machine (python of /opt/glasslab/venv): TLS on --port with the log's own certificate, forwarding to
the collector on 8088. Modes after --commits acknowledged POSTs: stopped (the port closes, connections are reset),
late (the answer comes after --delay seconds), busy (503), code9 (200 with code 9), wrong (200 with a page of HTML),
drop (the request is taken and the connection closed), drip (a byte a second).
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PEM = "/opt/splunk/etc/auth/glasslab/server.pem"
CA = "/opt/splunk/etc/auth/glasslab/ca.pem"


class Gate(ThreadingHTTPServer):
    """Counts what was acknowledged over all connections."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("0.0.0.0", options.port), Handler)
        self.options = options
        self.passed = 0
        self.turn = threading.Lock()
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(PEM)
        self.upstream = ssl.create_default_context(cafile=CA)

    def finish_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        """TLS in the connection's own thread."""
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wrapped = self.tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        super().finish_request(wrapped, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a writer."""

    protocol_version = "HTTP/1.1"
    server: Gate

    def log_message(self, *arguments: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        """Forward while commits are left, then fail as told."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.turn:
            if self.server.passed >= self.server.options.commits:
                self.fail()
                return
            forward = http.client.HTTPSConnection("localhost", 8088, context=self.server.upstream, timeout=10)
            forward.request("POST", self.path, body, {k: v for k, v in self.headers.items() if k.lower() != "host"})
            answer = forward.getresponse()
            content = answer.read()
            forward.close()
            self.server.passed += 1
        self.reply(answer.status, content, answer.headers.get("Content-Type", "application/json"))
        if self.server.options.mode == "stopped" and self.server.passed >= self.server.options.commits:
            os._exit(0)  # as a log that was stopped: the port is closed before anything else can be sent

    def reply(self, status: int, content: bytes, kind: str = "application/json") -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def fail(self) -> None:
        """Answer in the chosen wrong way."""
        mode = self.server.options.mode
        success = b'{"text":"Success","code":0}'
        if mode == "late":
            time.sleep(self.server.options.delay)
            self.reply(200, success)
        elif mode == "busy":
            self.reply(503, b'{"text":"Server is busy","code":9}')
        elif mode == "code9":
            self.reply(200, b'{"text":"Server is busy","code":9}')
        elif mode == "wrong":
            self.reply(200, b"<html>It works!</html>", "text/html")
        elif mode == "drip":
            self.send_response(200)
            self.send_header("Content-Length", str(len(success)))
            self.end_headers()
            for byte in success:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(1)
        else:  # drop
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True


def main() -> None:
    """Listen, say so, serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--commits", type=int, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--delay", type=float, default=7.0)
    options = parser.parse_args()
    if options.commits == 0 and options.mode == "stopped":
        print(f"ready {os.getpid()}", flush=True)
        return
    gate = Gate(options)
    print(f"ready {os.getpid()}", flush=True)
    gate.serve_forever()


if __name__ == "__main__":
    main()
