"""Several servers in one session: names, routes, what each is told, and that each one is pinned."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_bench import ANSWER, Bench
from agent_lab import LIST, READ, StubTools, stub_lock, turn
from glasslab import pins
from glasslab.toolset import Member, Toolset
from glasslab.tooltypes import LogFailedAtServer, ServerInfo, ToolResult, ToolServerError
from glasslab.wire import META_CLOCK, META_REFUSED, META_SESSION_ID, META_STEP

META = {META_SESSION_ID: "s-1", META_STEP: 1, META_CLOCK: 4}
SEARCH: dict[str, Any] = {"name": "search", "description": "Search the web.", "inputSchema": {"type": "object"}}


class Foreign(StubTools):
    """A server of the file: it is told nothing, and what it says of the lab is a lie."""

    def connect(self, meta: Any) -> ServerInfo:
        self.connected.append(dict(meta))
        lies = {META_CLOCK: 2**52}
        return ServerInfo("2025-11-25", "stub", "1", {}, None, self.definitions, "initialize", lies)

    def call(self, name: str, arguments: Any, meta: Any) -> ToolResult:
        self.calls.append((name, dict(arguments), dict(meta)))
        return ToolResult(f"foreign {name}", False, meta={META_CLOCK: 2**52, META_REFUSED: "x"})


def both(*more: dict[str, Any], own: Any = (LIST, READ)) -> tuple[Toolset, StubTools, Foreign]:
    lab, foreign = StubTools(own), Foreign([SEARCH, *more])
    return Toolset([Member(lab), Member(foreign, "web")]), lab, foreign


def test_a_name_that_is_one_servers_stays_as_it_is() -> None:
    tools, lab, foreign = both()
    offered = tools.offer(tools.connect(META))
    assert list(offered) == ["list_files", "read_file", "search"]
    assert tools.call("search", {"q": "x"}, META) == ToolResult("foreign search", False)
    assert tools.call("list_files", {}, META).text == "a.md"
    assert (foreign.calls, lab.calls) == ([("search", {"q": "x"}, {})], [("list_files", {}, META)])


def test_names_that_collide_get_their_servers_in_front_at_each_of_them() -> None:
    tools, lab, foreign = both(READ)
    offered = tools.offer(tools.connect(META))
    assert list(offered) == ["list_files", "stub_read_file", "search", "web_read_file"]
    tools.call("web_read_file", {"path": "a"}, META)
    tools.call("stub_read_file", {"path": "b"}, META)
    assert [call[:2] for call in foreign.calls] == [("read_file", {"path": "a"})]
    assert [call[:2] for call in lab.calls] == [("read_file", {"path": "b"})]
    with pytest.raises(ToolServerError, match="was not offered"):
        tools.call("read_file", {}, META)


def test_a_prefixed_name_takes_no_other_tools_name_and_is_short_enough() -> None:
    long = {**READ, "name": "x" * 64}
    tools, lab, foreign = both(READ, long, own=(READ, {**LIST, "name": "web_read_file"}, long))
    offered = tools.offer(tools.connect(META))
    assert len(offered) == 6
    assert {"web_read_file", "stub_read_file", "web_read_file_2"} <= set(offered)
    assert max(map(len, offered)) == 64
    tools.call("web_read_file", {}, META)
    tools.call("web_read_file_2", {"path": "a"}, META)
    assert (lab.calls[0][0], foreign.calls[0][0]) == ("web_read_file", "read_file")


def test_a_server_of_the_file_is_told_nothing_and_not_heard() -> None:
    tools, lab, foreign = both()
    servers = tools.connect(META)
    tools.offer(servers)
    tools.list_again(servers, META)
    result = tools.call("search", {}, META)
    assert (foreign.connected, foreign.calls[0][2], lab.connected) == ([{}], {}, [META])
    assert (servers[1].meta, result.meta) == ({}, {})
    assert [server.pinned_as for server in servers] == ["stub", "web"], "not by the name that it gives itself"


@pytest.mark.parametrize("error", [ToolServerError("it ended"), LogFailedAtServer("log_rejected", "u", "c")])
def test_what_a_server_of_the_file_fails_with_names_it(error: Exception) -> None:
    tools, lab, foreign = both()
    tools.offer(tools.connect(META))

    def fail(*_: object) -> ToolResult:
        raise error

    def fail_for_now(*_: object) -> ToolResult:
        raise ToolServerError("HTTP 503", again=True, retry_after=3.0)

    foreign.call = fail
    with pytest.raises(ToolServerError, match="server 'web' of MCP_SERVERS: "):
        tools.call("search", {}, META)
    foreign.call = fail_for_now
    with pytest.raises(ToolServerError) as caught:
        tools.call("search", {}, META)
    assert (caught.value.again, caught.value.retry_after) == (True, 3.0), "whether to ask again is still known"
    lab.call = fail
    with pytest.raises(type(error)) as caught:
        tools.call("list_files", {}, META)
    assert caught.value is error
    tools.close()
    assert (lab.closed, foreign.closed) == (1, 1)


def test_a_session_with_two_servers(bench: Bench) -> None:
    tools, lab, foreign = both()
    lock = {"stub": pins.lock_entry(lab.definitions, None), "web": pins.lock_entry(foreign.definitions, None)}
    bench.tools = tools
    outcome = bench.run(turn(("search", "{}"), ("list_files", "{}")), ANSWER, lock=lock)
    assert outcome.status == "answered", outcome.problem
    assert (foreign.calls, lab.calls[0][0]) == ([("search", {}, {})], "list_files")
    assert [event["server_name"] for event in bench.hec.events("mcp.initialize")] == ["stub", "stub"]
    assert max(event["clock"] for event in bench.hec.events("agent.final")) < 1000, "a lie about the clock is not heard"


def test_each_server_is_pinned(bench: Bench) -> None:
    tools, lab, _ = both()
    bench.tools = tools
    outcome = bench.run(ANSWER, lock=stub_lock(lab))
    assert (outcome.status, bench.requests) == ("tool_drift", 0)
    assert bench.hec.events("tools.drift")[0]["server"] == "web"
    assert bench.hec.events("tools.drift")[0]["extra"] == ["search"]


def test_a_program_that_is_not_the_pinned_one_is_never_started(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text("print(1)")
    lab, foreign = StubTools(), Foreign([SEARCH])
    lock = {
        "stub": pins.lock_entry(lab.definitions, None),
        "web": pins.lock_entry(foreign.definitions, None, pins.file_hashes([program])),
    }
    started: list[str] = []
    lab.start = foreign.start = lambda: started.append("")  # type: ignore[method-assign]  # what it would run is code of others
    bench.tools = Toolset([Member(lab), Member(foreign, "web", [program])])  # any tools
    assert bench.run(ANSWER, lock=lock).status == "answered"
    assert started
    program.write_text("print(2)")
    foreign.connected.clear()
    started.clear()
    bench.hec.reset()
    outcome = bench.run(ANSWER, lock=lock)
    assert (outcome.status, foreign.connected, started) == ("tool_drift", [], [])
    assert bench.hec.events("tools.drift")[0]["files"] == [str(program)]
    assert f"files: {program}" in str(outcome.problem)


def test_a_program_of_the_file_from_end_to_end(bench: Bench, tmp_path: Path) -> None:
    from glasslab.mcp_servers import read_servers
    from glasslab.toolbox import Toolbox

    fake = str(Path(__file__).parent / "fake_tool_server.py")
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"fake": {"command": sys.executable, "args": [fake]}}}))
    (named,) = read_servers(file)
    assert named.files == [Path(sys.executable).resolve(), Path(fake)]
    lab = StubTools()

    def member() -> Member:  # a connection is one session's
        return Member(Toolbox(named.server, timeout=10), named.name, named.files)

    with Toolset([member()]) as tools:
        (server,) = tools.connect({})
    lock = {
        "stub": pins.lock_entry(lab.definitions, None),
        "fake": pins.lock_entry(server.definitions, server.instructions, pins.file_hashes(named.files)),
    }
    bench.tools = Toolset([Member(lab), member()])
    outcome = bench.run(turn(("tool0", "{}")), ANSWER, lock=lock)
    assert outcome.status == "answered", outcome.problem
    assert bench.hec.events("mcp.call_tool.result")[0]["result"] == "zero"
