"""The MCP host: starting and ending a child, bounds and timeouts, and servers that misbehave."""

import asyncio
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from glasslab.toolbox import ServerCommand, Toolbox, files_server
from glasslab.toolset import Member, Toolset
from glasslab.tooltypes import ServerUrl, ToolServerError
from glasslab.transports import Wire
from hec_stub import HecStub
from tool_servers import children, eventually, make_documents, meta, open_descriptors, server_env

FAKE = str(Path(__file__).parent / "fake_tool_server.py")
FAKE_COMMAND = ServerCommand(sys.executable, (FAKE,))
RUN = f"import runpy; runpy.run_path({FAKE!r}, run_name='__main__')"


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


def connected_and_then_hasty() -> Toolbox:
    """A toolbox that gives a child all the time to start, and then no request more than a moment."""
    box = Toolbox(FAKE_COMMAND, timeout=20)
    box.connect(meta())
    assert box._session
    box._session._timeout = 0.3
    return box


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    hec = HecStub()
    yield server_env(hec, make_documents(tmp_path), tmp_path / "mcp.pem")
    hec.close()


@pytest.mark.parametrize("revision", ["auto", "2025-11-25", "2026-07-28"])
def test_the_files_server_as_a_child(env: dict[str, str], revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.toolbox._CLOSE_GRACE", 30)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("it leaves by itself when its connection ends"))
    descriptors = open_descriptors()
    threads = threading.active_count()
    box = Toolbox(files_server(env), revision=revision)
    assert box.pid is None, "nothing runs before start"
    box.start()
    pid, child = box.pid, box._child
    assert pid
    assert child
    assert box.connect(meta()).name == "lab-files"
    assert box.call("read_file", {"path": "a.md"}, meta()).text == "alpha — one"
    box.close()
    assert child.returncode == 0
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
        ("bytes", True, "not a JSON-RPC message"),  # modelcontextprotocol/python-sdk 2454: no UTF-8, and all of it ends
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


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_prompts_and_resources_are_listed_got_and_read(revision: str) -> None:
    command = ServerCommand(sys.executable, (FAKE, *(["modern"] if revision == "2026-07-28" else [])))
    with Toolbox(command, timeout=5, revision=revision) as box:
        info = box.connect(meta())
        assert set(info.capabilities) == {"tools", "prompts", "resources"}
        assert [item["name"] for item in box.list_prompts(meta())] == ["review"]
        assert [item["uri"] for item in box.list_resources(meta())] == ["file:///a.md", "file:///p.png"]
        got = box.get_prompt("review", {"city": "Bern"}, meta())
        read = box.read_resource("file:///a.md", meta(clock=4, step=2))
        image = box.read_resource("file:///p.png", meta())
    assert (
        got.text == "What of Bern?\n\n[assistant] Let me look.\n\n[image, image/png, 4 characters of base64, not shown]"
    )
    assert read.text.startswith("alpha\n")
    assert json.loads(read.text.partition("\n")[2])["_meta"].items() >= meta(4, 2).items()
    assert image.text == "[file:///p.png, image/png, 4 characters of base64, not shown]"
    assert (got.is_error, read.is_error) == (False, False)
    assert got.duration_ms > 0


@pytest.mark.parametrize("uri", ["file:///nowhere", "file:big"])
def test_a_resource_that_cannot_be_had_is_told_and_the_connection_goes_on(fake: Toolbox, uri: str) -> None:
    result = fake.read_resource(uri, meta())
    assert (result.is_error, f"resource {uri}: " in result.text, len(result.text) < 500) == (True, True, True)
    assert fake.get_prompt("nobody", {}, meta()).is_error
    assert not fake.call("echo", {}, meta()).is_error


def test_every_read_is_bounded_in_time_and_says_that_it_may_be_asked_again() -> None:
    with connected_and_then_hasty() as box:
        for ask in (
            lambda: box.read_resource("x:silent", meta()),
            lambda: box.get_prompt("silent", {}, meta()),
            lambda: box.call("silent", {}, meta()),
        ):
            with pytest.raises(ToolServerError, match="did not answer") as caught:
                ask()
            assert caught.value.again
        with pytest.raises(ToolServerError, match="did not answer"):
            box.read_resource("x:flaky", meta())
        assert box.read_resource("x:flaky", meta()).text == "at last"


def test_calls_at_the_same_time_each_get_their_own_answer(fake: Toolbox) -> None:
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(fake.call, "slow", {"n": number}, meta(call=f"c{number}")) for number in range(3)]
        said = [json.loads(result.result(5).text) for result in asked]
    assert [item["arguments"] for item in said] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [item["_meta"]["glasslab/tool_call_id"] for item in said] == ["c0", "c1", "c2"]


def test_an_answer_that_could_be_anybodys_is_an_error_for_all_who_wait(fake: Toolbox) -> None:
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(fake.call, "mixed", {}, meta()) for _ in range(2)]
        results = [result.result(2.5) for result in asked]
    assert [(result.is_error, "not a JSON-RPC message" in result.text) for result in results] == [(True, True)] * 2
    assert not fake.call("echo", {}, meta()).is_error


def test_an_unusable_line_after_a_call_was_given_up_hits_no_other() -> None:
    """What is not waited for any longer does not take the answer of what is."""
    with connected_and_then_hasty() as box:
        with pytest.raises(ToolServerError):
            box.call("silent", {}, meta())
        assert "not a JSON-RPC message" in box.call("noise", {}, meta()).text


def test_many_connections_leave_neither_descriptor_nor_thread_nor_zombie() -> None:
    number = 200 if os.environ.get("GLASSLAB_SOAK") else 8
    command = ServerCommand("/bin/sh", ("-c", f"exec {sys.executable} -S -E {FAKE}"))
    pids = []
    descriptors, threads = open_descriptors(), threading.active_count()
    for turn in range(number):
        with Toolbox(command, timeout=5) as box:
            box.connect(meta())
            pids.append(box.pid)
            if turn % 2:
                with pytest.raises(ToolServerError):
                    box.call("dies", {}, meta())
        failing = Toolbox(ServerCommand("/bin/false"), timeout=2)
        with failing, pytest.raises(ToolServerError):
            failing.connect(meta())
        with Toolbox("unix:/no/such/socket") as nowhere, pytest.raises(ToolServerError):
            nowhere.connect(meta())
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert "Z" not in children(os.getpid()).values()
    assert eventually(lambda: open_descriptors() <= descriptors), "no descriptor is left"
    assert eventually(lambda: threading.active_count() <= threads)


@pytest.mark.parametrize("value", ["\ud800", float("inf"), {"a": {1, 2}}, b"bytes"])
def test_arguments_that_json_cannot_carry_never_reach_the_wire(fake: Toolbox, value: object) -> None:
    result = fake.call("echo", {"a": value}, meta())
    assert result.is_error
    assert "cannot be sent" in result.text
    assert not fake.call("echo", {}, meta()).is_error


def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    with connected_and_then_hasty() as box:
        began = time.monotonic()
        with pytest.raises(ToolServerError, match="did not answer in time"):
            box.call("silent", {}, meta())
        assert 0.2 < time.monotonic() - began < 20


def test_a_server_that_does_not_read_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.mcp_session._SEND_GRACE", 0.1)
    monkeypatch.setattr("mcp.shared.jsonrpc_dispatcher._ABANDON_WRITE_TIMEOUT", 0.1)
    with Toolbox(FAKE_COMMAND, timeout=20) as box:
        box.connect(meta())
        box.call("tool1", {}, meta())
        assert box._session
        box._session._timeout = 0.3
        with pytest.raises(ToolServerError, match="did not answer in time") as caught:
            box.call("echo", {"much": "x" * 1_000_000}, meta())
    assert caught.value.again


@pytest.mark.parametrize("tool", ["tells", "dies"])
def test_what_a_server_was_given_is_in_no_error_of_it(tool: str) -> None:
    secret = "given-to-this-server"
    command = ServerCommand(sys.executable, ("-c", f"import os, sys; sys.argv = ['', os.environ['KEY']]; {RUN}"))
    with Toolbox(replace(command, env={"KEY": secret}), timeout=5) as box:
        box.connect(meta())
        with pytest.raises(ToolServerError) as caught:
            box.call(tool, {}, meta())
    assert secret not in str(caught.value)
    assert ("[redacted: configured_secret]" in str(caught.value)) == (tool == "tells")
    assert secret not in repr(replace(command, env={"KEY": secret}))


def test_a_server_that_ends_with_the_thread_that_started_it_lives_as_long_as_its_session() -> None:
    dies = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)"  # as bwrap --die-with-parent does
    with Toolset([Member(Toolbox(replace(FAKE_COMMAND, args=("-c", f"{dies}; {RUN}")), timeout=20), "fake")]) as tools:
        servers = tools.connect({})
        assert tools.list_again(servers, {}) == servers


@pytest.mark.parametrize("tool", ["owns up", "repeats"])
def test_nor_in_a_result_that_is_an_error(tool: str) -> None:
    secret = "given-to-this-server"
    command = ServerCommand(sys.executable, ("-c", f"import os, sys; sys.argv = ['', os.environ['KEY']]; {RUN}"))
    with Toolbox(replace(command, env={"KEY": secret}), timeout=5) as box:
        box.connect(meta())
        result = box.call(tool, {}, meta())
    assert result.is_error
    assert result.text.endswith("with [redacted: configured_secret]")


def test_what_only_sets_a_server_up_is_no_secret() -> None:
    plain = {"CITY": "Copenhagen", "AUTHOR": "Jane Austen", "ROOT": "/srv/documents", "MODEL": "gpt-5.6-luna-preview"}
    args = ("--units", "metric-system", "server.py", "--api-key", "an-option's", "--token=an-equals", "documents")
    command = ServerCommand("x", args, {**plain, "API_KEY": "a-variable's", "X": "0123456789abcdef"})
    assert command.secrets == ["a-variable's", "0123456789abcdef", "an-option's", "an-equals"]
    headers = {"Accept-Language": "English and Danish", "Authorization": "Bearer a-header's", "X-Api-Key": "another's"}
    server = ServerUrl("https://h.example/mcp?lang=English&key=the-query's", headers)
    assert set(server.secrets) == {"Bearer a-header's", "a-header's", "another's", "the-query's"}


def test_the_labs_own_server_may_be_quoted_but_for_its_token() -> None:
    server = files_server({"HEC_TOKEN_MCP": "token-of-the-server", "LAB_DOCUMENTS": "/srv/documents"})
    assert Toolbox(server).secrets == ["token-of-the-server"]


def test_a_server_that_dies_is_named_with_its_last_words(fake: Toolbox) -> None:
    with pytest.raises(ToolServerError, match="exit status 1: fake: gone at once"):
        fake.call("dies", {}, meta())


def test_a_child_that_does_not_leave_is_killed(fake: Toolbox) -> None:
    fake.call("stubborn", {}, meta())
    pid, child = fake.pid, fake._child
    assert child
    fake.close()
    assert child.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{pid}").exists()


def test_closing_ends_a_call_that_waits() -> None:
    box = Toolbox(FAKE_COMMAND, timeout=20)
    box.connect(meta())
    threading.Timer(0.2, box.close).start()
    with pytest.raises((ToolServerError, CancelledError)) as caught:
        box.call("silent", {}, meta())
    assert "in time" not in str(caught.value), "it was closed, and not waited for to the end"
    box.close()


@pytest.mark.parametrize("late", ["anyio.from_thread.start_blocking_portal", "glasslab.mcp_session.open_session"])
def test_what_is_opened_after_the_close_is_closed_at_once(monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    descriptors, threads = open_descriptors(), threading.active_count()
    box = Toolbox(FAKE_COMMAND, timeout=20)
    module, _, name = late.rpartition(".")
    real = getattr(importlib.import_module(module), name)

    def closed_meanwhile(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        box.close()
        return real(*args, **more)

    monkeypatch.setattr(late, closed_meanwhile)
    with pytest.raises((ToolServerError, RuntimeError)):
        box.connect(meta())
    with pytest.raises(ToolServerError, match="was closed meanwhile"):
        box.start()
    assert eventually(lambda: open_descriptors() <= descriptors)
    assert eventually(lambda: threading.active_count() <= threads)
    assert not children(os.getpid())


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


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("socket.socketpair", "cannot be started: .*Too many open files"),
        ("os.memfd_create", "cannot be started: .*Too many open files"),
        ("anyio.from_thread.start_blocking_portal", "can be opened: .*Too many open files"),
    ],
)
def test_a_server_for_which_no_descriptor_is_left_is_one_line_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    descriptors = open_descriptors()
    with Toolbox(FAKE_COMMAND, timeout=5) as box:
        monkeypatch.setattr(what, none_left)
        with pytest.raises(ToolServerError, match=words):
            box.connect(meta())
        monkeypatch.undo()
    assert eventually(lambda: open_descriptors() <= descriptors)


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
    wire = Wire(Endless(), 100_000)
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

    wire = Wire(Stream(), 100_000)
    first = asyncio.run(wire.reader.receive())
    assert isinstance(first, SessionMessage)
    assert isinstance(first.message, JSONRPCResponse)


def test_an_odd_call_id_is_an_error_and_no_more(env: dict[str, str]) -> None:
    with Toolbox(files_server(env)) as box:
        box.connect(meta())
        assert box.call("list_files", {}, meta(call="\ud800")).is_error
        assert box.call("list_files", {}, meta(call="x" * 300)).is_error
        assert box.call("list_files", {}, meta(call="c1")).text == "a.md\nb.md"
