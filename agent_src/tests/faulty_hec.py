"""A HEC over TLS on loopback that fails on purpose: from a chosen POST on, in a chosen way. It keeps its own record."""

import contextlib
import json
import random
import socket
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# how -> HTTP status and body
ANSWERS: dict[str, tuple[int, bytes]] = {
    "busy": (503, b'{"text":"Server is busy","code":9}'),
    "internal": (500, b'{"text":"Internal server error","code":8}'),
    "no_token": (401, b'{"text":"Token is required","code":2}'),
    "bad_authorization": (401, b'{"text":"Invalid authorization","code":3}'),
    "disabled_token": (403, b'{"text":"Token disabled","code":1}'),
    "bad_token": (403, b'{"text":"Invalid token","code":4}'),
    "bad_index": (400, b'{"text":"Incorrect index","code":7,"invalid-event-number":1}'),
    "not_json": (200, b"<html>Welcome</html>"),
    "other_code": (200, b'{"text":"Queue near capacity","code":24}'),
    "no_code": (200, b'{"text":"Success"}'),
    "true_code": (200, b'{"text":"Success","code":false}'),
    "talkative": (403, b'{"text":"No \\u001b[2J\\n\\u202e secret-token-of-the-agent","code":4}'),
    "redirect": (302, b'{"text":"Success","code":0}'),
    "error_zero": (500, b'{"text":"Success","code":0}'),
    "busy_200": (200, b'{"text":"Server is busy","code":9}'),
}
# killed: the events are stored, and the log dies while it says so. AWAY: nothing reaches the log any more.
SILENT = ("hang", "drip", "drip_head", "drop", "close", "down", "reset", "killed", "other_ca", "name_gone")
AWAY = ("down", "other_ca", "name_gone")


def unclaimed_port() -> int:
    """A free port below those that connections get by themselves: one of them would take it while nobody listens."""
    while True:
        port = random.randrange(15_000, 30_000)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port


class FaultyHec:
    """`reset(k, how)`: POST number k (from 1) and all later ones fail that way. `received` counts every POST.

    `other` is a certificate of another CA for other_ca. `name_gone` is a file: while it is there, the log's name is not
    to be found, for resolvers that look at it (see log_faults.py).
    """

    def __init__(self, pem: Path, other: Path, name_gone: Path) -> None:
        self._contexts = []
        for file in (pem, other):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            self._contexts.append(context)
        self.name_gone = name_gone
        self._lock = threading.Lock()
        self._release = threading.Event()
        self._port = unclaimed_port()
        self._server: Any = None
        self._connections: set[socket.socket] = set()
        self.reset()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def reset(self, fail_at: int | None = None, how: str = "busy", close_after: bool = False) -> None:
        """Forget everything and choose the next failure. `close_after`: announce and make an end of each connection."""
        assert how in ANSWERS or how in SILENT
        self.stop()
        self.posts: list[list[dict[str, Any]]] = []
        self.attempts: list[list[str]] = []
        self.bodies: list[bytes] = []
        self.handshakes = 0
        self.polls: dict[int, int] = {}
        self.indexed_after: dict[int, int] = {}  # ackId -> the question about it that is answered yes; none: never
        self.said_all = False  # an answer that drips, or hangs, was waited for to its end
        self.fail_at, self.how, self.close_after = fail_at, how, close_after
        self._release = threading.Event()
        self.name_gone.unlink(missing_ok=True)
        self._context = self._contexts[0]
        if fail_at == 1:
            self._go_away()
        if not (how == "down" and fail_at == 1):
            self._start()

    @property
    def received(self) -> int:
        return len(self.attempts)

    @property
    def kinds(self) -> list[list[str]]:
        """The kinds of frames in each acknowledged POST."""
        return [[event["kind"] for event in post] for post in self.posts]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The acknowledged events of a kind."""
        return [event for post in self.posts for event in post if event["kind"] == kind]

    def _start(self) -> None:
        hec, release = self, self._release

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def setup(self) -> None:
                self.request.do_handshake()
                with hec._lock:
                    hec.handshakes += 1
                    hec._connections.add(self.request)
                super().setup()

            def do_GET(self) -> None:
                self._answer(200, b'{"text":"HEC is healthy","code":17}')

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if "/ack" in self.path:
                    self._answer(200, json.dumps({"acks": hec._indexed(json.loads(body)["acks"])}).encode())
                    return
                envelopes = [json.loads(line) for line in body.splitlines()]
                events = [envelope["event"] for envelope in envelopes]
                with hec._lock:
                    hec.attempts.append([event["kind"] for event in events])
                    hec.bodies.append(body)
                    number = len(hec.attempts)
                    failing = hec.fail_at is not None and number >= hec.fail_at
                    if not failing or (hec.how == "killed" and number == hec.fail_at):
                        hec.posts.append(events)
                if failing:
                    self._fail()
                    return
                leaving = hec.how in AWAY and hec.fail_at == number + 1
                if leaving:
                    hec._go_away(self.request)
                    self.close_connection = True
                self._answer(200, b'{"text":"Success","code":0,"ackId":%d}' % number)
                if leaving and hec.how == "down":
                    threading.Thread(target=hec.stop, daemon=True).start()

            def _fail(self) -> None:
                self.close_connection = hec.how in SILENT
                if hec.how in ANSWERS:
                    self._answer(*ANSWERS[hec.how])
                elif hec.how == "hang":
                    hec.said_all |= not release.wait(10)
                elif hec.how in ("reset", "killed"):
                    if hec.how == "killed":
                        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{"text":"Succ')
                        self.wfile.flush()
                        hec.close_listener()
                    self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.request.close()
                elif hec.how == "drop":
                    self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{"text":"Succ')
                    self.wfile.flush()
                elif hec.how in ("drip", "drip_head"):
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n"
                    body = b'{"text":"Success","code":0}'
                    at_once, slowly = (head, body) if hec.how == "drip" else (b"", head + body)
                    try:
                        self.wfile.write(at_once)
                        for byte in slowly:
                            self.wfile.write(bytes([byte]))
                            self.wfile.flush()
                            if release.wait(0.2):
                                return
                        hec.said_all = True
                    except OSError:
                        return

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                if hec.close_after:
                    self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def get_request(self) -> tuple[socket.socket, Any]:
                client, address = super().get_request()
                return hec._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False), address

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _go_away(self, answering: socket.socket | None = None) -> None:
        """Begin to be what the next connection will find; the connections end, but the one that gets an answer yet."""
        if self.how == "name_gone":
            self.name_gone.touch()
        elif self.how == "other_ca":
            self._context = self._contexts[1]
        with self._lock:
            others = self._connections - {answering}
            self._connections -= others
        for connection in others:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _indexed(self, ids: list[int]) -> dict[str, bool]:
        """What an indexer knows of these ids, each of which it tells once."""
        with self._lock:
            for number in ids:
                self.polls[number] = self.polls.get(number, 0) + 1
            return {str(number): self.polls[number] == self.indexed_after.get(number) for number in ids}

    def close_listener(self) -> None:
        """Take no more connections; what is there stays."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.socket.shutdown(socket.SHUT_RDWR)  # closed alone, it listens as long as somebody's poll still has it
            server.socket.close()
            threading.Thread(target=server.shutdown, daemon=True).start()

    def stop(self) -> None:
        """Listen no more and end every connection."""
        self._release.set()
        with self._lock:
            server, self._server = self._server, None
            connections, self._connections = self._connections, set()
        if server is not None:
            server.shutdown()
            server.server_close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close_idle(self) -> None:
        """End every open connection from the server's side, and wait until the other side can have seen it."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.shutdown(socket.SHUT_RDWR)
        time.sleep(0.05)
