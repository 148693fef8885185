"""`lab-files` over HTTP for any MCP host: its token, the names it answers to, both revisions, TLS, its record."""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from conftest import Certificates
from glasslab.httpserver import ServeError
from glasslab.recorder import Recorder
from glasslab.servers.files import FilesServer
from glasslab.servers.http import MAX_BODY, Listen, listen_from, serve
from glasslab.servers.http import _security as security
from glasslab.settings import HecSettings
from glasslab.toolbox import Toolbox
from glasslab.tooltypes import LogFailedAtServer, ServerUrl, ToolServerError
from hec_stub import HecStub
from tool_servers import make_documents, server_env

TOKEN = "0123456789abcdef-of-the-host"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


class Running:
    """A server that runs, its HEC and its address."""

    def __init__(self, hec: HecStub, url: str, process: "subprocess.Popen[str]") -> None:
        self.hec, self.url, self.process = hec, url, process

    def post(self, headers: dict[str, str], body: bytes | None = None, url: str = "") -> tuple[int, str]:
        """Send an initialize request, or this body; return HTTP status and text."""
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(url or self.url, body or json.dumps(asked).encode(), accepted | headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Running]:
    hec = HecStub()
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    command = [sys.executable, "-m", "glasslab.servers", "files", "--http", "0", "--token-file", str(token), *options]
    environment = os.environ | server_env(hec, make_documents(folder), folder / "mcp.pem")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stderr
    try:
        found = re.search(r"https?://\S+$", process.stdout.readline().strip())
        assert found, process.stderr.read()
        yield Running(hec, found[0], process)
    finally:
        process.terminate()
        process.communicate(timeout=10)
        hec.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture
def server(running: Running) -> Running:
    running.hec.reset()
    return running


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Cookie": f"token={TOKEN}"},
    ],
)
def test_without_the_token_nothing_is_served_and_nothing_opened(server: Running, headers: dict[str, str]) -> None:
    for url in (server.url, f"{server.url}?token={TOKEN}", server.url.replace("/mcp", "/"), f"{server.url}/../x"):
        status, text = server.post(headers, url=url)
        assert (status, "lab-files" in text) == (401, False), url
    assert server.hec.posts == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "attacker.example"}, 421),
        ({"Host": "attacker.example:80"}, 421),
        ({"Host": "localhost.attacker.example:8765"}, 421),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.attacker.example"}, 403),
        ({"Host": "localhost:9000"}, 200),  # through a forward
        ({"Host": "[::1]:9000", "Origin": "http://[::1]:9000"}, 200),
    ],
)
def test_a_page_that_was_given_a_name_of_its_own_is_refused(
    server: Running, headers: dict[str, str], status: int
) -> None:
    assert server.post(AUTHORIZED | headers)[0] == status
    assert bool(server.hec.posts) is False or status == 200


def test_a_request_beyond_the_bound_is_not_read(server: Running) -> None:
    assert server.post(AUTHORIZED, b"x" * (MAX_BODY + 1))[0] == 413


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_host_in_either_revision_reads_documents_and_all_of_it_is_on_record(server: Running, revision: str) -> None:
    with Toolbox(ServerUrl(server.url, AUTHORIZED), revision=revision, timeout=20) as host:
        info = host.connect({})
        assert (info.name, info.protocol_version) == ("lab-files", revision)
        assert [item["name"] for item in info.definitions] == ["list_files", "read_file"]
        assert host.call("list_files", {}, {}).text == "a.md\nb.md"
        assert host.call("read_file", {"path": "a.md"}, {}).text == "alpha — one"
        refused = host.call("read_file", {"path": "../.env"}, {})
        assert (refused.is_error, "SECRET" in refused.text) == (True, False)
    events = [event for post in server.hec.posts for event in post if event["kind"] != "server.start"]
    assert [event["kind"] for event in events] == [
        "server.list_files", "server.path_check", "server.read_file", "server.path_check", "toolcall.refused",
    ]  # fmt: skip
    assert {event["session_id"][:5] for event in events} == {"host-"}


def test_without_its_log_it_serves_nothing_and_with_it_again_it_does(server: Running) -> None:
    with Toolbox(ServerUrl(server.url, AUTHORIZED), revision="2026-07-28", timeout=20) as host:
        host.connect({})
        server.hec.reset(fail_at=1)
        with pytest.raises(LogFailedAtServer):
            host.call("read_file", {"path": "a.md"}, {})
        assert server.hec.posts == []
        server.hec.reset()
        assert host.call("read_file", {"path": "a.md"}, {}).text == "alpha — one"
        assert [post[0]["kind"] for post in server.hec.posts] == [
            "server.start", "server.path_check", "server.read_file",
        ]  # fmt: skip


def test_with_a_certificate_it_speaks_tls_and_is_verified(certificates: Certificates, tmp_path: Path) -> None:
    with serving(tmp_path, "--tls-cert", str(certificates.server), "--allow-host", "files.example") as server:
        assert server.url.startswith("https://")
        with Toolbox(ServerUrl(server.url, AUTHORIZED, ca=certificates.ca), timeout=20) as host:
            assert host.connect({}).name == "lab-files"
        with Toolbox(ServerUrl(server.url, AUTHORIZED), timeout=20) as host, pytest.raises(ToolServerError):
            host.connect({})
        context = ssl.create_default_context(cafile=str(certificates.ca))
        for name, status in (("files.example", 200), ("other.example", 421)):
            opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
            urllib.request.install_opener(opener)
            assert server.post(AUTHORIZED | {"Host": name})[0] == status
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0


def options(folder: Path, **more: Any) -> argparse.Namespace:
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    given = {"http": "8765", "token_file": token, "tls_cert": None, "tls_key": None, "allow_host": []}
    return argparse.Namespace(**(given | more))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"http": "nowhere"}, "--http 'nowhere' is no [HOST:]PORT"),
        ({"http": "127.0.0.1:99999"}, "is no [HOST:]PORT"),
        ({"http": "user@127.0.0.1:80"}, "is no [HOST:]PORT"),
        ({"http": "192.0.2.1:8765"}, "beyond this machine the token needs TLS; give --tls-cert"),
        ({"http": "0.0.0.0:8765"}, "beyond this machine the token needs TLS"),
        ({"token_file": None}, "--http needs a bearer token"),
        ({"token_file": Path("/nowhere")}, "token file /nowhere cannot be read"),
        ({"tls_key": Path("k")}, "--tls-key without --tls-cert"),
        ({"allow_host": ["http://x"]}, "--allow-host 'http://x' is no NAME or NAME:PORT"),
        ({"allow_host": ["*"]}, "--allow-host '*' is no NAME"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ServeError) as caught:
        listen_from(options(tmp_path, **more))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("short", 0o600, "holds no token of at least 16 characters; make one: openssl rand -hex 32"),
        ("two words of a token", 0o600, "holds no token"),
        ("", 0o600, "holds no token"),
        (TOKEN, 0o644, "may be read by anybody; chmod o-r it"),
        (TOKEN, 0o602, "may be written by anybody"),
    ],
)
def test_a_token_file_that_is_none_is_refused(tmp_path: Path, content: str, mode: int, words: str) -> None:
    given = options(tmp_path)
    given.token_file.write_text(content)
    given.token_file.chmod(mode)
    with pytest.raises(ServeError) as caught:
        listen_from(given)
    assert words in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_where_it_listens_and_by_what_names_it_is_reached(tmp_path: Path) -> None:
    assert listen_from(options(tmp_path)) == Listen("127.0.0.1", 8765, TOKEN)
    assert listen_from(options(tmp_path, http="[::1]:1")).host == "::1"
    beyond = Listen("192.0.2.1", 443, TOKEN, Path("c"), None, ("files.example:8443",))
    assert security(beyond).allowed_hosts == ["192.0.2.1", "192.0.2.1:*", "files.example:8443"]
    assert security(beyond).allowed_origins[0] == "https://192.0.2.1"
    assert TOKEN not in repr(beyond)


def test_a_port_that_is_taken_is_one_line(server: Running, tmp_path: Path) -> None:
    port = int(server.url.removesuffix("/mcp").rpartition(":")[2])
    files = FilesServer(make_documents(tmp_path), Recorder(HecSettings("http://127.0.0.1:1", "t"), "mcp").open)
    with pytest.raises(ServeError) as caught:
        serve(files, Listen("127.0.0.1", port, TOKEN))
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use; give another --http"


def test_who_sends_no_request_in_time_keeps_no_host_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, for the bound is ten seconds; the application is one that takes longer than the bound."""
    monkeypatch.setattr("glasslab.servers.http.HEAD_SECONDS", 0.3)
    release = asyncio.Event()
    request = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def clients(config: uvicorn.Config, listener: socket.socket) -> None:
        state = ServerState()

        made: Any = config.http_protocol_class

        def protocol() -> Any:
            return made(config=config, server_state=state, app_state={})

        writers: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writers.append(writer)
            return reader, writer

        async with await asyncio.get_running_loop().create_server(protocol, sock=listener):
            try:
                async with asyncio.timeout(10):
                    asking, asked = await connect()
                    asked.write(request)
                    silent, _ = await connect()
                    half, halved = await connect()
                    halved.write(request[:-1])
                    assert (await silent.read(), await half.read()) == (b"", b"")
                    release.set()
                    assert b" 401 " in await asking.readuntil(b"\r\n\r\n")
                    asked.write(b"x")  # of the body that nobody waits for any more
                    assert await asking.read() == b""
                    assert not state.connections
            finally:  # the server is left only when no connection is open: a failure would wait for ever
                release.set()
                for writer in writers:
                    writer.close()

    class Checked:
        def __init__(self, config: uvicorn.Config) -> None:
            config.timeout_keep_alive = 60
            self.config = config

        def run(self, sockets: list[socket.socket]) -> None:
            asyncio.run(clients(self.config, sockets[0]))

    monkeypatch.setattr("glasslab.servers.http.application", lambda *_: slow)
    monkeypatch.setattr("glasslab.servers.http.uvicorn.Server", Checked)
    files = FilesServer(make_documents(tmp_path), Recorder(HecSettings("http://127.0.0.1:1", "t"), "mcp").open)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert serve(files, Listen("127.0.0.1", 0, TOKEN)) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
