"""Tool servers over HTTP: both revisions, tokens, OAuth's client credentials, and what is refused or bounded."""

import base64
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from glasslab.toolbox import Toolbox
from glasslab.tooltypes import OAuthClient, ServerUrl, ToolServerError
from tool_servers import eventually, open_descriptors

TOKEN = "tok-0123456789"
SECRET = "client-secret-of-the-lab"


@contextmanager
def sdk_server(*arguments: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(__file__).parent / "http_tool_server.py")
    process = subprocess.Popen(
        [sys.executable, program, str(port), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert eventually(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, seconds=30)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with sdk_server() as address:
        yield address


@pytest.fixture(scope="module")
def protected() -> Iterator[str]:
    with sdk_server(TOKEN) as address:
        yield address


@pytest.mark.parametrize(
    ("revision", "agreed"), [("2025-11-25", "initialize"), ("2026-07-28", "discover"), ("auto", "discover")]
)
def test_a_server_over_http_in_both_revisions(url: str, revision: str, agreed: str) -> None:
    descriptors = open_descriptors()
    with Toolbox(ServerUrl(url), revision=revision, timeout=20) as box:
        server = box.connect({})
        assert (server.name, server.agreed_by) == ("http-tools", agreed)
        assert [item["name"] for item in server.definitions] == ["list_files", "big"]
        assert server.definitions[0]["inputSchema"]["properties"]["folder"]["default"] == "/", "as it was sent"
        assert box.call("list_files", {"folder": "here"}, {}).text == "far away in here"
        assert box.call("no_such_tool", {}, {}).is_error
        assert box.list_tools({}) == server.definitions
    assert eventually(lambda: open_descriptors() <= descriptors)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_an_answer_beyond_the_bound_is_not_read_to_its_end(url: str, revision: str) -> None:
    with Toolbox(ServerUrl(url), revision=revision, timeout=20, max_result_bytes=1000) as box:
        box.connect({})
        with pytest.raises(ToolServerError, match="the answer is longer than 1000000 bytes"):
            box.call("big", {}, {})


@pytest.mark.parametrize("revision", ["auto", "2025-11-25", "2026-07-28"])
def test_a_token_opens_and_its_lack_is_named(protected: str, revision: str) -> None:
    with Toolbox(ServerUrl(protected, {"Authorization": f"Bearer {TOKEN}"}), revision=revision, timeout=20) as box:
        assert box.connect({}).name == "http-tools"
        assert box.call("list_files", {}, {}).text == "far away in /"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        box = Toolbox(ServerUrl(protected, headers), revision=revision, timeout=20)
        with box, pytest.raises(ToolServerError, match="HTTP 401 Unauthorized; check its token") as caught:
            box.connect({})
        assert "wrong" not in str(caught.value)


def test_a_server_that_is_not_there_is_one_line() -> None:
    with Toolbox(ServerUrl("http://127.0.0.1:9/mcp"), timeout=5) as box, pytest.raises(ToolServerError) as caught:
        box.connect({})
    assert "127.0.0.1" in str(caught.value)
    assert "\n" not in str(caught.value)


class Double(BaseHTTPRequestHandler):
    """A tool server that wants OAuth, and its issuer; what was asked for is kept."""

    server: "DoubleServer"
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, value: Any, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        here = self.server.url
        self.server.asked.append(f"GET {self.path}")
        if "oauth-protected-resource" in self.path:
            self.answer(200, {"resource": f"{here}/mcp", "authorization_servers": [self.server.names or here]})
        elif "oauth-authorization-server" in self.path or "openid-configuration" in self.path:
            ways = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
            grants = {"grant_types_supported": ["client_credentials"], "response_types_supported": ["code"]}
            ends = {"token_endpoint": f"{here}/token", "authorization_endpoint": f"{here}/authorize"}
            self.answer(200, {"issuer": here, **ends, **ways, **grants})
        else:
            self.answer(405, {})

    def do_DELETE(self) -> None:
        if self.server.silent is not None and self.server.silent.wait(20):
            return
        self.server.asked.append("DELETE")
        self.answer(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(f"POST {self.path}")
        if self.path == "/token":
            self.server.credentials.append(self.headers.get("Authorization", ""))
            self.server.grants.append(parse_qs(body.decode()))
            return self.answer(200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 60})
        if self.server.redirects:
            return self.answer(307, {}, Location=self.server.redirects)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            where = f'Bearer resource_metadata="{self.server.url}/.well-known/oauth-protected-resource"'
            return self.answer(401, {}, WWW_Authenticate=where)
        request = json.loads(body)
        if "id" not in request:
            return self.answer(202, {})
        if self.server.says:
            error = {"code": -32603, "message": self.server.says}
            return self.answer(200, {"jsonrpc": "2.0", "id": request["id"], "error": error})
        if request["method"] == "initialize":
            server = {"name": "double", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
            return self.answer(200, {"jsonrpc": "2.0", "id": request["id"], "result": result}, Mcp_Session_Id="s")
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "x-unknown": 1}]}
        return self.answer(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})


class DoubleServer(ThreadingHTTPServer):
    """The double, listening. `names` is the issuer that it names in place of itself."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Double)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[str] = []
        self.credentials: list[str] = []
        self.grants: list[dict[str, list[str]]] = []
        self.names: str | None = None
        self.redirects: str | None = None
        self.says: str | None = None
        self.silent: threading.Event | None = None  # a goodbye is not answered before


@contextmanager
def double() -> Iterator[DoubleServer]:
    with DoubleServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def oauth(server: DoubleServer) -> ServerUrl:
    return ServerUrl(f"{server.url}/mcp", {}, OAuthClient("lab", SECRET, server.url))


def test_client_credentials_get_a_token_from_the_issuer() -> None:
    with double() as server, Toolbox(oauth(server), revision="2025-11-25", timeout=10) as box:
        info = box.connect({})
        assert (info.name, info.definitions[0]["x-unknown"]) == ("double", 1)
        basic = base64.b64encode(f"lab:{SECRET}".encode()).decode()
        assert server.credentials == [f"Basic {basic}"]
        assert server.grants[0]["grant_type"] == ["client_credentials"]
        box.list_tools({})
        assert len(server.credentials) == 1, "one token for the session"
        assert {SECRET, TOKEN} <= set(box.secrets)


def test_the_token_that_was_got_is_in_no_error() -> None:
    with double() as server, Toolbox(oauth(server), revision="2025-11-25", timeout=10) as box:
        box.connect({})
        for secret in (TOKEN, *server.credentials):
            server.says = f"not with {secret}"
            with pytest.raises(ToolServerError, match="not with") as told:
                box.list_tools({})
            assert secret.removeprefix("Basic ") not in str(told.value)


def test_each_session_has_the_tokens_that_it_got() -> None:
    with double() as server:
        place = oauth(server)
        for _ in range(3):
            with Toolbox(place, revision="2025-11-25", timeout=10) as box:
                box.connect({})
                assert box.secrets.count(TOKEN) == 1
        assert place.oauth
        assert place.oauth.tokens == [], "a service has one place for all its sessions"


def test_a_server_is_told_that_its_session_is_over_and_not_waited_for() -> None:
    with double() as server:
        for server.silent in (None, threading.Event()):
            with Toolbox(oauth(server), revision="2025-11-25", timeout=60) as box:
                box.connect({})
            assert server.asked.count("DELETE") == 1, "the second one is not answered before the test ends"
        assert server.silent
        server.silent.set()


def test_a_server_that_names_another_issuer_does_not_get_the_secret_sent_there() -> None:
    with double() as evil, double() as server:
        server.names = evil.url
        with Toolbox(oauth(server), revision="2025-11-25", timeout=10) as box, pytest.raises(ToolServerError):
            box.connect({})
        assert (evil.credentials, server.credentials) == ([], [])


def test_a_redirect_to_another_place_is_not_followed() -> None:
    with double() as evil, double() as server:
        server.redirects = f"{evil.url}/mcp"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        box = Toolbox(ServerUrl(f"{server.url}/mcp", headers), revision="2025-11-25", timeout=10)
        with box, pytest.raises(ToolServerError, match=r"Redirect to .* not followed"):
            box.connect({})
        assert evil.asked == []


def test_no_proxy_of_the_environment_sees_anything(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with double() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with Toolbox(ServerUrl(url), timeout=20) as box:
            assert box.connect({}).name == "http-tools"
        assert proxy.asked == []
