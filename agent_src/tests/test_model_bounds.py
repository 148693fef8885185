"""A model server that never ends its answer: neither memory, nor a thread, nor a connection is left with it."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from glasslab.models.anthropic_messages import AnthropicMessages
from glasslab.models.endpoint import Place
from glasslab.models.openai_chat import OpenAIChat
from glasslab.models.replies import MAX_REPLY_BYTES

HEADS = {
    "an error": b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\n\r\n",
    "a list": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
    "packed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
}


class Endless:
    """Answers one request with a head, then with the same bytes for ever; `left` is set when the client went away."""

    def __init__(self) -> None:
        self.head, self.part, self.pause = b"", b"", 0.0
        self.request = b""
        self.left = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.request = connection.recv(65_536)
            try:
                connection.sendall(self.head)
                while True:
                    connection.sendall(self.part)
                    time.sleep(self.pause)
            except OSError:
                self.left.set()

    def stop(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[Endless]:
    endless = Endless()
    yield endless
    endless.stop()


@pytest.mark.parametrize("client", [OpenAIChat, AnthropicMessages])
@pytest.mark.parametrize(("head", "part", "pause", "said"), [
    ("an error", b"x" * 65_536, 0.0, f"the answer is larger than {MAX_REPLY_BYTES} bytes"),
    ("a list", b"x" * 65_536, 0.0, f"the answer is larger than {MAX_REPLY_BYTES} bytes"),
    ("an error", b" ", 0.05, "no reply within"),
    ("a list", b" ", 0.05, "no reply within"),
    ("packed", b"", 0.05, "the answer is compressed"),
])  # fmt: skip
def test_an_answer_without_an_end(
    server: Endless,
    monkeypatch: pytest.MonkeyPatch,
    client: type[OpenAIChat | AnthropicMessages],
    head: str,
    part: bytes,
    pause: float,
    said: str,
) -> None:
    monkeypatch.setattr("glasslab.models.client.LIST_SECONDS", 0.5)
    server.head, server.part, server.pause = HEADS[head], part, pause
    model = client(Place(server.url, "m", seconds=0.5))
    model.open()  # what it imports takes its time on a busy machine
    began = time.monotonic()
    problem = model.problem()
    assert time.monotonic() - began < 30
    assert problem is not None
    assert said in problem
    assert b"accept-encoding: identity" in server.request.lower()
    if part:
        assert server.left.wait(3), "the connection is still open"
    model.close()
