"""A Splunk that stands elsewhere: what the role asks it, and what the lab's HEC client keeps behind a load balancer.

The double is two indexers behind one address. An acknowledgement is known to the one alone that took the event; a
request without the balancer's cookie goes to the first, and a question for acknowledgements to the second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from glasslab.hec import HecConnection, LoggingError
from glasslab.settings import HecSettings
from packertools import ROOT

FILES = ROOT / "roles/splunk/files"
AGENT, MCP, WITNESS = (f"{n}{n}{n}{n}{n}{n}{n}{n}-0000-0000-0000-000000000000" for n in "123")


class Balancer(ThreadingHTTPServer):
    """What stands there, and how it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sticky, self.health, self.code, self.gives_ids = True, 17, 0, True
        self.apps: dict[str, str] = {}
        self.taken: dict[str, set[tuple[str, int]]] = {"a": set(), "b": set()}
        self.events: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Balancer

    def log_message(self, *arguments: object) -> None:
        """Quiet."""

    def answer(self, status: int, said: Any, indexer: str = "") -> None:
        """JSON, and the cookie of who answered."""
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if indexer and self.server.sticky and "BALANCER=" not in self.headers.get("Cookie", ""):
            self.send_header("Set-Cookie", f"BALANCER={indexer}; path=/; HttpOnly")
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        """Health, and the app."""
        if self.path.startswith("/services/apps/local/"):
            found = self.server.apps.get("glasslab")
            self.answer(200 if found else 404, {"entry": [{"content": {"version": found}}]} if found else {})
        else:
            self.answer(200 if self.server.health == 17 else 503, {"text": "HEC", "code": self.server.health})

    def do_POST(self) -> None:
        """An event, or a question for acknowledgements, by whoever the cookie or the path leads to."""
        body, lot = self.rfile.read(int(self.headers.get("Content-Length", 0))), self.server
        parts = urlsplit(self.path)
        if parts.path == "/services/apps/local":
            lot.apps["glasslab"] = parse_qs(body.decode())["name"][0]
            self.answer(201, {"entry": []})
            return
        is_question = parts.path.endswith("/ack")
        cookie = self.headers.get("Cookie", "").partition("BALANCER=")[2][:1]
        indexer = cookie if cookie and lot.sticky else "b" if is_question else "a"
        channel = self.headers.get("X-Splunk-Request-Channel", "")
        lot.asked.append((parts.path, channel))
        if is_question:
            assert parse_qs(parts.query)["channel"] == [channel]
            ids = json.loads(body)["acks"]
            self.answer(200, {"acks": {str(one): (channel, one) in lot.taken[indexer] for one in ids}}, indexer)
        elif lot.code:
            self.answer(400, {"text": "as told, " + self.headers["Authorization"], "code": lot.code})
        else:
            lot.events.append(json.loads(body))
            number = len(lot.taken[indexer])
            lot.taken[indexer].add((channel, number))
            more = {"ackId": number} if channel and lot.gives_ids else {}
            self.answer(200, {"text": "Success", "code": 0, **more}, indexer)


@pytest.fixture
def there() -> Iterator[Balancer]:
    """It serves."""
    with Balancer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(there: Balancer, **more: Any) -> dict[str, Any]:
    """What the program says, run as the role runs it."""
    order = {"url": there.url, "ca": None, "index": "agents", "ack": [], "seconds": 0.2, "app": None, "writes": True}
    order |= {"tokens": {"agent": AGENT, "mcp": MCP, "hypervisor": WITNESS}, **more}
    program = (FILES / "existing.py").read_text(encoding="utf-8")
    text = f"{program}\n\nmain(json.loads({json.dumps(json.dumps(order))}))\n"
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_that_takes_everything_has_no_fault_and_one_event_a_writer(there: Balancer) -> None:
    assert asked(there, ack=["agent", "mcp"]) == {"faults": [], "app": ""}
    assert [event["event"]["writer"] for event in there.events] == ["agent", "mcp", "hypervisor"]
    assert {(event["index"], event["sourcetype"]) for event in there.events} == {("agents", "glasslab:preflight")}


def test_check_mode_asks_for_its_health_and_writes_nothing(there: Balancer) -> None:
    assert asked(there, writes=False) == {"faults": [], "app": ""}
    assert there.events == []
    there.health = 18
    assert "code 18" in asked(there, writes=False)["faults"][0]


FAULTS = {
    "ill": ({"health": 18}, {}, "code 18 (HEC): look at its own log"),
    "token": ({"code": 4}, {}, "code 4 (as told, Splunk [token]): the token is unknown there: see splunk_existing_tok"),
    "index": ({"code": 7}, {}, "the index is not there, or the token may not write to it: make it, and add it"),
    "ack wanted": (
        {"code": 10},
        {},
        "the token wants indexer acknowledgement: set splunk_hec_ack=true, or turn it off",
    ),
    "no ack": ({"gives_ids": False}, {"ack": ["agent"]}, "the token has indexer acknowledgement off: turn it on"),
    "not sticky": ({"sticky": False}, {"ack": ["agent"]}, "turn on sticky sessions (by cookie) there, or set splunk_h"),
    "no Splunk": (
        {},
        {"url": "http://127.0.0.1:9"},
        "http://127.0.0.1:9: Connection refused: see its address, and the",
    ),
}


@pytest.mark.parametrize(("state", "order", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_one_line_with_its_remedy(
    state: dict[str, Any], order: dict[str, Any], said: str, there: Balancer
) -> None:
    vars(there).update(state)
    first = asked(there, **order)["faults"][0]
    assert said in first
    assert first.startswith(order.get("url", there.url))
    assert AGENT not in first


def test_the_app_is_installed_where_that_is_allowed_and_once(there: Balancer) -> None:
    app = {"url": there.url, "token": "t", "source": "/tmp/glasslab.spl", "version": "0.1.0"}
    assert asked(there, app=app)["app"] == "installed"
    assert there.apps == {"glasslab": "/tmp/glasslab.spl"}
    there.apps["glasslab"] = "0.1.0"
    assert asked(there, app=app)["app"] == "same"


def test_the_labs_own_client_keeps_channel_and_cookie(there: Balancer) -> None:
    connection = HecConnection(HecSettings(there.url, AGENT, ack="indexed", deadline=5.0))
    try:
        for _ in range(2):
            connection.post(b'{"event": {"kind": "x"}}')
    finally:
        connection.close()
    assert len({channel for _, channel in there.asked}) == 1
    assert [len(taken) for taken in there.taken.values()] == [2, 0]


def test_without_sticky_sessions_its_acknowledgement_never_comes(there: Balancer) -> None:
    there.sticky = False
    connection = HecConnection(HecSettings(there.url, AGENT, ack="indexed", deadline=0.5))
    with pytest.raises(LoggingError, match=r"no acknowledgement within 0\.5 s"):
        connection.post(b'{"event": {"kind": "x"}}')


def test_the_package_is_the_app_and_the_same_each_time(tmp_path: Path) -> None:
    def pack(index: str) -> str:
        words = [sys.executable, str(FILES / "app_package.py"), str(FILES / "app"), str(tmp_path / "app.spl"), index]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert (pack("lab"), pack("lab")) == ("written\n", "")
    with tarfile.open(tmp_path / "app.spl") as tar:
        names = tar.getnames()
        macros = tar.extractfile("glasslab/default/macros.conf")
        assert macros is not None
        assert b"\ndefinition = index=lab\n" in macros.read()
    assert {"glasslab/default/app.conf", "glasslab/metadata/default.meta"} <= set(names)
    assert not [name for name in names if not name.startswith("glasslab/")]
