"""A small HEC on loopback for the tools' tests: keeps what it acknowledged, and fails from a chosen commit on."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HecStub:
    """`fail_at` is the number (from 1) of the first POST that is not acknowledged; `how` is busy, close or hang."""

    def __init__(self) -> None:
        self.posts: list[list[dict[str, Any]]] = []
        self.fail_at: int | None = None
        self.how = "busy"
        self._received = 0
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._answer(200, {"text": "HEC is healthy", "code": 17})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with stub._lock:
                    stub._received += 1
                    failing = stub.fail_at is not None and stub._received >= stub.fail_at
                    if not failing:
                        stub.posts.append([json.loads(line)["event"] for line in body.splitlines()])
                if not failing:
                    self._answer(200, {"text": "Success", "code": 0})
                elif stub.how == "busy":
                    self._answer(503, {"text": "Server is busy", "code": 9})
                elif stub.how == "hang":
                    time.sleep(3)
                    self.close_connection = True
                else:
                    self.close_connection = True

            def _answer(self, status: int, answer: dict[str, Any]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def reset(self, fail_at: int | None = None, how: str = "busy") -> None:
        """Forget everything received and choose the next failure."""
        with self._lock:
            self.posts, self._received = [], 0
            self.fail_at, self.how = fail_at, how

    @property
    def kinds(self) -> list[list[str]]:
        """The kinds of frames in each acknowledged POST."""
        return [[event["kind"] for event in post] for post in self.posts]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
