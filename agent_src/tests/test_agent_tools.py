"""What travels to the tool server, what comes back, and a server that goes away."""

from collections.abc import Callable

from agent_bench import ANSWER, Bench, assert_recorded
from agent_lab import (
    turn,
)
from glasslab.statuses import EXIT_CODES
from glasslab.tooltypes import LogFailedAtServer, ToolResult, ToolServerError
from glasslab.wire import META_CLOCK, META_REFUSED, META_SESSION_ID, META_STEP, META_TOOL_CALL_ID


def test_what_travels_to_the_tool_server(bench: Bench) -> None:
    said = iter([40, 50])
    bench.tools.answer = lambda name, arguments: ToolResult("x", False, 1.5, {META_CLOCK: next(said)})
    outcome = bench.run(turn(("list_files", "{}")), turn(("list_files", "{}")), ANSWER)
    assert bench.tools.connected == [{META_SESSION_ID: outcome.session_id, META_STEP: 0, META_CLOCK: 2}]
    metas = [call[2] for call in bench.tools.calls]
    assert [meta[META_STEP] for meta in metas] == [1, 2]
    assert [meta[META_TOOL_CALL_ID] for meta in metas] == ["c0", "call_2"]
    requests = bench.hec.events("mcp.call_tool.request")
    assert [meta[META_CLOCK] for meta in metas] == [event["clock"] for event in requests]
    assert [event["clock"] for event in bench.hec.events("mcp.call_tool.result")] == [41, 51]


def test_an_error_result_goes_back_to_the_model(bench: Bench) -> None:
    bench.tools.answer = lambda name, arguments: ToolResult("refused\ud800", True, 2.0, {META_REFUSED: "outside"})
    assert bench.run(turn(("read_file", '{"path": "../.env"}')), ANSWER).status == "answered"
    assert "\nrefused\\ud800\n" in bench.last_request()[-1]["content"]
    call = bench.hec.events("toolcall")[0]
    assert (call["is_error"], call["refused"]) == (True, True)
    assert bench.hec.events("mcp.call_tool.result")[0]["is_error"] is True


def raising(error: Exception) -> Callable[..., ToolResult]:
    def call(*_: object) -> ToolResult:
        raise error

    return call


def test_a_tool_server_that_goes_away(bench: Bench) -> None:
    bench.tools.answer = raising(ToolServerError("the tool server closed the connection"))
    outcome = bench.run(turn(("list_files", "{}")), ANSWER)
    assert_recorded(bench, outcome, "tool_server_unreachable", "tool_server_unreachable")
    assert EXIT_CODES[outcome.status] == 5
    assert bench.requests == 1


def test_a_tool_server_whose_own_log_fails(bench: Bench) -> None:
    bench.tools.answer = raising(LogFailedAtServer("log_rejected", "https://log:8088", "code 4", "check HEC_TOKEN_MCP"))
    outcome = bench.run(turn(("list_files", "{}")), ANSWER)
    assert_recorded(bench, outcome, "log_rejected", "server_log")
    assert str(outcome.problem).startswith(
        "Agent stopped: Splunk HEC rejected: https://log:8088: the tool server's log"
    )
    assert bench.requests == 1


def test_a_bug_ends_the_session_on_record(bench: Bench) -> None:
    bench.tools.answer = raising(KeyError("boom"))
    outcome = bench.run(turn(("list_files", "{}")), ANSWER)
    assert_recorded(bench, outcome, "internal_error", "internal_error")
    assert EXIT_CODES[outcome.status] == 1
