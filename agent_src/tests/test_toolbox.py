"""The MCP host: starting and ending a child, bounds and timeouts, and servers that misbehave."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from glasslab.toolbox import ServerCommand, Toolbox, files_server
from glasslab.tooltypes import ToolServerError
from glasslab.transports import Wire
from hec_stub import HecStub
from tool_servers import eventually, make_documents, meta, open_descriptors, server_env

FAKE = str(Path(__file__).parent / "fake_tool_server.py")
FAKE_COMMAND = ServerCommand(sys.executable, (FAKE,))


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not leave are not waited for as long as in earnest."""
    monkeypatch.setattr("glasslab.toolbox._CLOSE_GRACE", 0.3)


@pytest.fixture
def fake() -> Iterator[Toolbox]:
    box = Toolbox(FAKE_COMMAND, timeout=3, max_result_bytes=500)
    box.connect(meta())
    yield box
    box.close()


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    hec = HecStub()
    yield server_env(hec, make_documents(tmp_path), tmp_path / "mcp.pem")
    hec.close()


@pytest.mark.parametrize("revision", ["auto", "2025-11-25", "2026-07-28"])
def test_the_files_server_as_a_child(env: dict[str, str], revision: str) -> None:
    descriptors = open_descriptors()
    threads = threading.active_count()
    box = Toolbox(files_server(env), revision=revision)
    assert box.pid is None, "nothing runs before start"
    box.start()
    pid = box.pid
    assert pid
    assert box.connect(meta()).name == "lab-files"
    assert box.call("read_file", {"path": "a.md"}, meta()).text == "alpha — one"
    began = time.monotonic()
    box.close()
    assert time.monotonic() - began < 1
    assert not Path(f"/proc/{pid}").exists(), "neither running nor a zombie"
    assert eventually(lambda: open_descriptors() <= descriptors)
    assert eventually(lambda: threading.active_count() <= threads)
    box.close()


def test_the_child_gets_only_what_the_server_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "sk-secret")
    monkeypatch.setenv("HEC_TOKEN", "agent-token")
    box = Toolbox(ServerCommand(sys.executable, ("-c", "import time; time.sleep(9)"), {"HEC_TOKEN_MCP": "t"}))
    box.start()
    try:
        where = Path(f"/proc/{box.pid}/environ")
        assert eventually(lambda: b"HEC_TOKEN_MCP" in where.read_bytes())
        names = {item.partition(b"=")[0].decode() for item in where.read_bytes().split(b"\0") if item}
    finally:
        box.close()
    assert names - {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "TZ", "USER"} == {"HEC_TOKEN_MCP"}


def test_starting_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from glasslab.toolbox import *; b = Toolbox(ServerCommand('/bin/cat')); b.start(); b.close();"
        "print([name for name in ('mcp', 'openai', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_meta_travels_and_returns(fake: Toolbox) -> None:
    result = fake.call("echo", {"a": None}, meta(clock=4, step=2, call="c7"))
    assert json.loads(result.text) == {"name": "echo", "arguments": {"a": None}, "_meta": meta(4, 2, "c7")}
    assert result.meta == {"glasslab/clock": 5}
    assert result.duration_ms > 0


def test_definitions_are_whole_as_sent_and_of_every_page() -> None:
    with Toolbox(FAKE_COMMAND, timeout=5) as box:
        info = box.connect(meta())
    assert [item["name"] for item in info.definitions] == ["tool0", "tool1", "tool2"]
    assert info.definitions[0] == {"name": "tool0", "inputSchema": {"type": "object"}, "x-unknown": {"kept": True}}
    assert (info.name, info.instructions, info.agreed_by) == ("fake", "be kind", "initialize")


@pytest.mark.parametrize(
    ("tool", "is_error", "words"),
    [
        ("big", True, "longer than"),
        ("long", False, "[cut: 500 of 800 bytes shown]"),
        ("surrogate", False, "a?b"),
        ("noise", True, "not a JSON-RPC message"),
        ("image", False, "[image, image/png, 4 characters of base64, not shown]\ncaption"),
        ("fails", True, "it failed"),
        ("refuses", True, "no"),
        ("shapeless", True, "cannot be used"),
        ("structured", False, '{"city": "Bern"}'),
        ("floods", False, "after the flood"),
        ("wants", True, "cannot be used"),
    ],
)
def test_odd_results_are_told_and_the_connection_goes_on(fake: Toolbox, tool: str, is_error: bool, words: str) -> None:
    result = fake.call(tool, {}, meta())
    assert (result.is_error, words in result.text) == (is_error, True), result.text[:300]
    assert len(result.text) < 1000
    assert not fake.call("echo", {}, meta()).is_error


def test_a_server_gets_nothing_by_asking(fake: Toolbox) -> None:
    """Neither the model nor folders nor a person is there for a server to ask, and it is told so before it asks."""
    methods = ["sampling/createMessage", "roots/list", "elicitation/create", "resources/list"]
    known, answers = json.loads(fake.call("asks", {"methods": methods}, meta()).text)
    assert not {"sampling", "roots", "elicitation"} & set(known)
    assert ["result" in answer for answer in answers] == [False] * 4
    assert [answer["error"]["message"] for answer in answers] == [
        "Sampling not supported", "List roots not supported", "Elicitation not supported", "Method not found",
    ]  # fmt: skip


def test_a_result_that_wants_input_is_an_error_of_the_tool() -> None:
    command = ServerCommand(sys.executable, (FAKE, "modern"))
    with Toolbox(command, timeout=3, revision="2026-07-28") as box:
        assert box.connect(meta()).agreed_by == "discover"
        result = box.call("wants", {}, meta())
        assert (result.is_error, "password" in result.text) == (True, False), result.text
        assert box.call("long", {}, meta()).text


@pytest.mark.parametrize("value", ["\ud800", float("inf"), {"a": {1, 2}}, b"bytes"])
def test_arguments_that_json_cannot_carry_never_reach_the_wire(fake: Toolbox, value: object) -> None:
    result = fake.call("echo", {"a": value}, meta())
    assert result.is_error
    assert "cannot be sent" in result.text
    assert not fake.call("echo", {}, meta()).is_error


def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    with Toolbox(FAKE_COMMAND, timeout=0.4) as box:
        box.connect(meta())
        began = time.monotonic()
        with pytest.raises(ToolServerError, match="did not answer in time"):
            box.call("silent", {}, meta())
        assert 0.3 < time.monotonic() - began < 2


def test_a_server_that_dies_is_named_with_its_last_words(fake: Toolbox) -> None:
    with pytest.raises(ToolServerError, match="exit status 1: fake: gone at once"):
        fake.call("dies", {}, meta())


def test_a_child_that_does_not_leave_is_killed(fake: Toolbox) -> None:
    fake.call("stubborn", {}, meta())
    pid = fake.pid
    began = time.monotonic()
    fake.close()
    assert time.monotonic() - began < 2
    assert not Path(f"/proc/{pid}").exists()


def test_closing_ends_a_call_that_waits(fake: Toolbox) -> None:
    threading.Timer(0.2, fake.close).start()
    began = time.monotonic()
    with pytest.raises((ToolServerError, CancelledError)):
        fake.call("silent", {}, meta())
    assert time.monotonic() - began < 2


def test_a_killed_server_is_noticed(fake: Toolbox) -> None:
    assert fake.pid
    os.kill(fake.pid, signal.SIGKILL)
    with pytest.raises(ToolServerError, match="exit status -9"):
        fake.call("echo", {}, meta())


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (ServerCommand("/no/such/program"), "cannot be started"),
        (ServerCommand(sys.executable, ("-c", "raise SystemExit('config: broken')")), "exit status 1: config: broken"),
        (ServerCommand(sys.executable, ("-c", "import time; time.sleep(60)")), "did not answer"),
        ("unix:/no/such/socket", "/no/such/socket cannot be reached"),
    ],
)
def test_a_server_that_cannot_be_had_is_one_line(server: ServerCommand | str, words: str) -> None:
    with Toolbox(server, timeout=0.5) as box, pytest.raises(ToolServerError, match=words) as caught:
        box.connect(meta())
    assert "\n" not in str(caught.value)
    assert caught.value.status == "tool_server_unreachable"


def test_unusable_settings_are_named() -> None:
    with pytest.raises(ToolServerError, match="MCP_SERVER 'tcp:1' is not understood"):
        Toolbox("tcp:1")
    with Toolbox(FAKE_COMMAND, revision="1999") as box, pytest.raises(ToolServerError, match="MCP_REVISION '1999'"):
        box.connect(meta())
    with pytest.raises(ToolServerError, match="not connected"):
        Toolbox(FAKE_COMMAND).call("echo", {}, meta())


def test_missing_documents_are_told_by_the_child(env: dict[str, str]) -> None:
    words = "exit status 2: glasslab-mcp: LAB_DOCUMENTS"
    with Toolbox(files_server(env | {"LAB_DOCUMENTS": "/nowhere"})) as box, pytest.raises(ToolServerError, match=words):
        box.connect(meta())


def test_an_endless_line_is_not_kept_in_memory() -> None:
    class Endless:
        chunks = 200

        async def receive(self, size: int) -> bytes:
            largest.append(len(wire.reader._buffer))
            self.chunks -= 1
            return b"x" * size if self.chunks else b"\n"

    largest: list[int] = []
    wire = Wire(Endless(), 100_000, dict)
    wire.pending[7] = "tools/call"
    answer = asyncio.run(wire.reader.receive())
    assert isinstance(answer, SessionMessage)
    assert isinstance(answer.message, JSONRPCError)
    assert answer.message.id == 7
    assert "longer than 100000 bytes" in answer.message.error.message
    assert max(largest) < 300_000


def test_what_a_server_tells_unasked_is_not_heard() -> None:
    class Stream:
        async def receive(self, size: int) -> bytes:
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            answer = {"jsonrpc": "2.0", "id": 7, "result": {}}
            return b"".join(json.dumps(message).encode() + b"\n" for message in (changed, changed, answer))

    wire = Wire(Stream(), 100_000, dict)
    first = asyncio.run(wire.reader.receive())
    assert isinstance(first, SessionMessage)
    assert isinstance(first.message, JSONRPCResponse)


def test_an_odd_call_id_is_an_error_and_no_more(env: dict[str, str]) -> None:
    with Toolbox(files_server(env)) as box:
        box.connect(meta())
        assert box.call("list_files", {}, meta(call="\ud800")).is_error
        assert box.call("list_files", {}, meta(call="x" * 300)).is_error
        assert box.call("list_files", {}, meta(call="c1")).text == "a.md\nb.md"
