"""The relay between the lab's model API and a real model: what it forwards, what it refuses, and over which TLS."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import relay
from certificates import self_signed


class ModelServer(ThreadingHTTPServer):
    """Holds what the handlers saw and the event that lets a stream go on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Model)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.go = threading.Event()


class Model(BaseHTTPRequestHandler):
    """A model server that remembers what reached it."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *arguments: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        """Answer as the path asks."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        if self.path.endswith("/stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"data: 1\n\n", b"data: 2\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
                self.server.go.wait(5)
            self.wfile.write(b"0\r\n\r\n")
            return
        length = 100 if self.path.endswith("/short") else len(body)
        self.send_response(429 if self.path.endswith("/busy") else 200)
        self.send_header("Content-Length", str(length))
        self.send_header("X-Model", "yes")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path.endswith("/short")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    self_signed(folder, "IP:127.0.0.1")
    return folder


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A plain HTTP model server."""
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()


class Front:
    """A relay that runs, and requests to it."""

    def __init__(self, base_url: str, certificate: Path, ca: str | None = None) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate / "crt", certificate / "key")
        self.relay = relay.Relay(relay.listen_inside(None, "127.0.0.1", 0), tls, relay.Upstream.parse(base_url, ca))
        self.context = ssl.create_default_context(cafile=str(certificate / "crt"))
        threading.Thread(target=self.relay.serve_forever, args=(0.02,), daemon=True).start()

    def connection(self) -> http.client.HTTPSConnection:
        """A connection that verifies the relay's certificate."""
        port = self.relay.socket.getsockname()[1]
        return http.client.HTTPSConnection("127.0.0.1", port, context=self.context, timeout=10)

    def post(self, path: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """POST and return status and body."""
        connection = self.connection()
        connection.putrequest("POST", path, skip_host=True)
        for name, value in {"Host": "model.glasslab.test", "Content-Length": str(len(body)), **(headers or {})}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def front(model: ModelServer, certificate: Path) -> Iterator[Front]:
    """A relay before the plain model server, whose base URL has a path of its own."""
    one = Front(f"http://127.0.0.1:{model.server_port}/api/v1", certificate)
    yield one
    one.relay.shutdown()
    one.relay.server_close()


def test_path_body_and_key_pass_and_hop_headers_do_not(front: Front, model: ModelServer) -> None:
    headers = {"Authorization": "Bearer k", "Connection": "keep-alive, X-Hop", "X-Hop": "1", "TE": "trailers"}
    status, body = front.post("/v1/chat/completions?x=1", b'{"a": 1}', headers)
    assert (status, body) == (200, b'{"a": 1}')
    [(path, arrived, sent)] = model.seen
    assert path == "/api/v1/chat/completions?x=1"
    assert sent == b'{"a": 1}'
    assert arrived["Authorization"] == "Bearer k"
    assert arrived["Host"] == f"127.0.0.1:{model.server_port}"
    assert not {"X-Hop", "TE", "Connection"} & set(arrived)


def test_an_error_of_the_model_passes_as_it_is(front: Front) -> None:
    assert front.post("/v1/busy", b"slow down") == (429, b"slow down")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v2/models",
        "/v1x",
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1//evil.test/",
        "/v1/a/..",
        "http://evil.test/v1/x",
    ],
)
def test_nothing_but_the_base_url_is_reached(front: Front, model: ModelServer, path: str) -> None:
    status, body = front.post(path)
    assert status == 404
    assert json.loads(body)["error"]["message"] == "this relay serves paths below /v1 only"
    assert model.seen == []


def test_a_stream_arrives_piece_by_piece(front: Front, model: ModelServer) -> None:
    connection = front.connection()
    connection.request("POST", "/v1/stream", b"{}")
    answer = connection.getresponse()
    assert answer.read1() == b"data: 1\n\n"  # the model has not sent more yet: it waits for the event below
    model.go.set()
    assert answer.read() == b"data: 2\n\n"


def test_an_answer_that_was_cut_is_not_passed_as_a_whole_one(front: Front) -> None:
    with pytest.raises(http.client.IncompleteRead):
        front.post("/v1/short", b"abc")


def test_an_upstream_that_is_down_is_a_502_that_says_so(certificate: Path) -> None:
    front = Front("http://127.0.0.1:9/v1", certificate)
    status, body = front.post("/v1/chat/completions")
    assert status == 502
    message = json.loads(body)["error"]["message"]
    assert "http://127.0.0.1:9/v1 cannot be reached through the relay" in message
    front.relay.shutdown()
    front.relay.server_close()


def test_upstream_tls_is_verified(model: ModelServer, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "crt", certificate / "key")
    model.socket = tls.wrap_socket(model.socket, server_side=True)
    url = f"https://127.0.0.1:{model.server_port}/v1"
    unknown, known = Front(url, certificate), Front(url, certificate, str(certificate / "crt"))
    status, body = unknown.post("/v1/x", b"secret", {"Authorization": "Bearer k"})
    assert (status, model.seen) == (502, [])
    assert "CERTIFICATE_VERIFY_FAILED" in json.loads(body)["error"]["message"]
    assert known.post("/v1/x", b"hello") == (200, b"hello")
    for front in (unknown, known):
        front.relay.shutdown()
        front.relay.server_close()


def test_sizes_are_bounded(front: Front, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_REQUEST", 10)
    status, _ = front.post("/v1/x", b"12345678901")
    assert (status, model.seen) == (413, [])
    status, _ = front.post("/v1/x", b"", {"Transfer-Encoding": "chunked"})
    assert (status, model.seen) == (411, [])
    monkeypatch.setattr(relay, "MAX_RESPONSE", 4)
    with pytest.raises(http.client.IncompleteRead):
        front.post("/v1/x", b"12345")


def test_a_client_that_says_nothing_gives_its_place_back(
    front: Front, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CLIENT_TIMEOUT", 0.2)
    front.relay.places = threading.BoundedSemaphore(1)
    silent = relay.socket.create_connection(front.relay.socket.getsockname())
    time.sleep(0.05)
    with pytest.raises(OSError, match=r".*"):
        front.post("/v1/x")
    time.sleep(0.4)
    assert front.post("/v1/x", b"now") == (200, b"now")
    assert len(model.seen) == 1
    silent.close()


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "x", "http://", "http://user:pw@h/v1", "http://h/v1?x", "http://h:99999/v1"]
)
def test_a_bad_base_url_is_one_line_and_exit_2(url: str, certificate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--base-url", url, "--host", "127.0.0.1", "--port", "0"]
    assert relay.main([*arguments, "--cert", str(certificate / "crt"), "--key", str(certificate / "key")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("relay: ")
    assert len(said.splitlines()) == 1
    assert "pw" not in said
