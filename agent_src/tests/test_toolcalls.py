"""Calls at the same time and calls made again: what is on record before each, and in what order."""

import threading
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded
from agent_lab import LIST, READ, StubTools, turn
from glasslab.approvals import Nobody, Verdict
from glasslab.tooltypes import LogFailedAtServer, ToolResult, ToolServerError

READS = [("read_file", '{"path": "a"}'), ("read_file", '{"path": "b"}'), ("list_files", "{}")]
MAY_REPEAT = {"annotations": {"readOnlyHint": True, "idempotentHint": True}}


class Together(StubTools):
    """Tools of which each call waits until `number` of them are under way; what was acknowledged by then is kept."""

    def __init__(self, bench: Bench, number: int) -> None:
        super().__init__()
        self.bench, self.all_here = bench, threading.Barrier(number)
        self.on_record: list[list[str]] = []

    def call(self, name: str, arguments: Any, meta: Any) -> ToolResult:
        self.on_record.append([event["tool_call_id"] for event in self.bench.hec.events("mcp.call_tool.request")])
        self.all_here.wait(10)
        return super().call(name, arguments, meta)


def test_calls_that_only_read_run_at_the_same_time_after_all_their_frames(bench: Bench) -> None:
    bench.tools = tools = Together(bench, 3)
    tools.answer = lambda name, arguments: ToolResult(f"{name} {arguments}", False)
    outcome = bench.run(turn(*READS), ANSWER, parallel_calls=4)
    assert outcome.status == "answered", outcome.problem
    assert tools.on_record == [["c0", "c1", "c2"]] * 3, "each request's frame was acknowledged before any call"
    kinds = [kind for post in bench.hec.kinds for kind in post]
    first, last = kinds.index("mcp.call_tool.request"), len(kinds) - kinds[::-1].index("mcp.call_tool.result")
    assert [kind for kind in kinds[first:last] if kind.startswith("mcp.call_tool")] == [
        *["mcp.call_tool.request"] * 3,
        *["mcp.call_tool.result"] * 3,
    ]
    assert [event["tool_call_id"] for event in bench.hec.events("mcp.call_tool.result")] == ["c0", "c1", "c2"]
    results = [message["content"] for message in bench.last_request() if message["role"] == "tool"]
    assert ["'a'" in results[0], "'b'" in results[1], "list_files" in results[2]] == [True] * 3, "as they were asked"
    again = next(number for number, post in enumerate(bench.hec.kinds) if "mcp.call_tool.result" in post)
    assert "llm.request" in bench.hec.kinds[again], "recorded before the next model call, in its commit"


@pytest.mark.parametrize(("at_once", "commits"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (16, [3])])
def test_no_more_at_the_same_time_than_is_set(bench: Bench, at_once: int, commits: list[int]) -> None:
    assert bench.run(turn(*READS), ANSWER, parallel_calls=at_once).status == "answered"
    requested = [post.count("mcp.call_tool.request") for post in bench.hec.kinds]
    assert [number for number in requested if number] == commits
    assert sorted(call[2]["glasslab/tool_call_id"] for call in bench.tools.calls) == ["c0", "c1", "c2"]


def test_what_does_more_than_read_runs_alone_and_in_its_place(bench: Bench) -> None:
    writes = {**READ, "name": "write_file", "annotations": {"readOnlyHint": False}}
    bench.tools = StubTools([LIST, READ, writes])
    calls = [READS[0], READS[1], ("write_file", '{"path": "x"}'), ("read_file", "{}"), READS[0], READS[2]]
    outcome = bench.run(turn(*calls), ANSWER, parallel_calls=8)
    assert outcome.status == "answered", outcome.problem
    kinds = [
        [kind for kind in post if kind in ("mcp.call_tool.request", "agent.call_refused")] for post in bench.hec.kinds
    ]
    made = [post for post in kinds if post]
    assert made == [
        ["mcp.call_tool.request"] * 2,
        # the write is denied, for nobody is there to approve it, and the arguments that fail are refused: each recorded
        ["agent.call_refused", "agent.call_refused", *["mcp.call_tool.request"] * 2],
    ]
    assert "write_file" not in [call[0] for call in bench.tools.calls]
    assert [m["tool_call_id"] for m in bench.last_request() if m["role"] == "tool"] == [f"c{n}" for n in range(6)]


@pytest.fixture
def approved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody approves whatever is asked."""
    monkeypatch.setattr(Nobody, "decide", lambda *_: Verdict(True, "terminal", 0))


@pytest.mark.usefixtures("approved")
def test_what_was_approved_runs_alone_too(bench: Bench) -> None:
    bench.tools = StubTools([LIST, READ, {**READ, "name": "write_file", "annotations": {"readOnlyHint": False}}])
    writes = [("write_file", '{"path": "x"}'), ("write_file", '{"path": "y"}')]
    outcome = bench.run(turn(READS[0], *writes, READS[1], READS[2]), ANSWER, parallel_calls=8)
    assert outcome.status == "answered", outcome.problem
    made = [post.count("mcp.call_tool.request") for post in bench.hec.kinds]
    assert [number for number in made if number] == [1, 1, 1, 2]


@pytest.mark.parametrize(("tool_classes", "made"), [("stub/list_files=read", 2), ("", 1)])
@pytest.mark.usefixtures("quick", "approved")
def test_what_is_approved_once_is_made_once_whatever_its_server_says(
    bench: Bench, tool_classes: str, made: int
) -> None:
    bench.tools = StubTools([{**LIST, **MAY_REPEAT}, READ])
    bench.tools.answer = fails(1, again=True)
    bench.run(turn(("list_files", "{}")), ANSWER, retry_calls="annotated", tool_classes=tool_classes)
    assert len(bench.tools.calls) == made


@pytest.mark.parametrize("error", [ToolServerError("it ended"), LogFailedAtServer("log_rejected", "u", "c")])
def test_of_calls_at_the_same_time_one_that_fails_loses_no_other(bench: Bench, error: Exception) -> None:
    def answer(name: str, arguments: dict[str, Any]) -> ToolResult:
        if arguments.get("path") == "a":
            raise error
        return ToolResult("fine", False)

    bench.tools.answer = answer
    outcome = bench.run(turn(*READS), ANSWER, parallel_calls=3)
    assert (outcome.status, bench.requests) == (error.status, 1)  # both have one
    assert [event["tool_call_id"] for event in bench.hec.events("mcp.call_tool.result")] == ["c1", "c2"]


def test_a_log_that_fails_stops_all_of_them(bench: Bench) -> None:
    bench.hec.reset(fail_at=3)  # the start, the first model call, and then these
    outcome = bench.run(turn(*READS), ANSWER, parallel_calls=3)
    assert (outcome.status, bench.requests, bench.tools.calls) == ("log_rejected", 1, [])


def fails(times: int, **how: Any) -> Any:
    """Answers after failing this often."""
    left = [times]

    def answer(name: str, arguments: dict[str, Any]) -> ToolResult:
        if left[0]:
            left[0] -= 1
            raise ToolServerError("did not answer in time", **how)
        return ToolResult("at last", False)

    return answer


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is lost before another attempt."""
    monkeypatch.setattr("glasslab.models.retries.FIRST_SECONDS", 0.001)


@pytest.mark.parametrize(
    ("hints", "settings", "how", "made"),
    [
        (MAY_REPEAT, {"retry_calls": "annotated"}, {"again": True}, 2),
        (MAY_REPEAT, {}, {"again": True}, 1),
        ({}, {"retry_calls": "annotated"}, {"again": True}, 1),
        ({"annotations": {"readOnlyHint": True}}, {"retry_calls": "annotated"}, {"again": True}, 1),
        ({"annotations": {"idempotentHint": True}}, {"retry_calls": "annotated"}, {"again": True}, 1),
        (MAY_REPEAT, {"retry_calls": "annotated"}, {"again": False}, 1),
        (MAY_REPEAT, {"retry_calls": "annotated", "mcp_retries": 0}, {"again": True}, 1),
        (MAY_REPEAT, {"retry_calls": "annotated"}, {"again": True, "retry_after": 61.0}, 1),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_call_is_made_again_only_where_that_is_set_and_the_tool_says_it_may(
    bench: Bench, hints: dict[str, Any], settings: dict[str, Any], how: dict[str, Any], made: int
) -> None:
    bench.tools = StubTools([{**LIST, **hints}, READ])
    bench.tools.answer = fails(1, **how)
    outcome = bench.run(turn(("list_files", "{}")), ANSWER, **settings)
    assert len(bench.tools.calls) == made
    assert outcome.status == ("answered" if made == 2 else "tool_server_unreachable")
    failed = bench.hec.events("mcp.failed")
    assert [(event["request"], event["attempt"], event["tool_call_id"]) for event in failed] == (
        [("tools/call", 1, "c0")] if made == 2 else []
    )


@pytest.mark.parametrize(("retries", "status"), [(2, "answered"), (1, "tool_server_unreachable")])
@pytest.mark.usefixtures("quick")
def test_a_list_is_asked_for_again_each_attempt_on_record_before_the_next(
    bench: Bench, retries: int, status: str
) -> None:
    listed, on_record = bench.tools.list_tools, list[int]()

    def list_tools(meta: Any) -> Any:
        on_record.append(len(bench.hec.events("mcp.failed")))
        if len(on_record) < 3:
            raise ToolServerError("HTTP 503", again=True)
        return listed(meta)

    bench.tools.list_tools = list_tools  # a stub of a stub
    outcome = bench.run(turn(("list_files", "{}")), ANSWER, mcp_retries=retries)
    assert (outcome.status, on_record) == (status, list(range(retries + 1)))
    assert [event["request"] for event in bench.hec.events("mcp.failed")] == ["tools/list"] * retries
    if status != "answered":
        assert_recorded(bench, outcome, status, "tool_server_unreachable")


def test_cancelling_ends_the_wait_before_another_attempt(bench: Bench) -> None:
    stop = threading.Event()

    def answer(name: str, arguments: dict[str, Any]) -> ToolResult:
        stop.set()
        raise ToolServerError("did not answer in time", again=True)

    bench.tools = StubTools([{**LIST, **MAY_REPEAT}])
    bench.tools.answer = answer
    outcome = bench.run(turn(("list_files", "{}")), ANSWER, stop=stop, retry_calls="annotated", mcp_retries=5)
    assert (outcome.status, len(bench.tools.calls)) == ("cancelled", 1)
