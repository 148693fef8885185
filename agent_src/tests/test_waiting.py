"""Waiting for a tool server: it ends with the session's time, or when that is cancelled, whatever is waited for."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded, stop_once
from agent_lab import turn
from glasslab import waiting
from glasslab.models import Stopped
from glasslab.tooltypes import ToolResult
from glasslab.waiting import waited

CALL = turn(("list_files", "{}"))


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What waits for this does so to the end of its test."""
    event = threading.Event()
    yield event
    event.set()


def hang(bench: Bench, where: str, event: threading.Event) -> None:
    """Let one of what a tool server is asked take for ever."""

    def instead(real: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any) -> Any:
            assert event.wait(60)
            return real(*args)

        return wait

    if where == "call":
        bench.tools.answer = instead(lambda name, arguments: ToolResult("too late", False))
    else:
        setattr(bench.tools, where, instead(getattr(bench.tools, where)))


@pytest.mark.parametrize("where", ["connect", "call", "list_tools"])
def test_a_tool_server_is_not_waited_for_beyond_the_sessions_time(
    bench: Bench, hanging: threading.Event, where: str
) -> None:
    bench.run(ANSWER)  # what is imported for a first call takes its time
    bench.hec.reset()
    bench.tools.closed = 0
    hang(bench, where, hanging)
    outcome = bench.run(CALL, ANSWER, max_seconds=1)
    assert_recorded(bench, outcome, "deadline_reached", "deadline_reached")
    assert len(bench.hec.events("toolcall")) == (1 if where == "list_tools" else 0)


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_call_that_hangs_is_ended_by_cancelling(bench: Bench, hanging: threading.Event, parallel: int) -> None:
    hang(bench, "call", hanging)
    stop = stop_once(bench, "mcp.call_tool.request")
    twice = turn(("list_files", "{}"), ("list_files", "{}"))
    outcome = bench.run(twice, ANSWER, stop=stop, parallel_calls=parallel)
    assert_recorded(bench, outcome, "cancelled", "cancelled")
    assert not bench.hec.events("toolcall")
    assert len(bench.hec.events("mcp.call_tool.request")) == parallel


def test_what_it_returns_or_raises_is_what_is_waited_for() -> None:
    assert waited(lambda: 7, never_look) == 7
    for error in (KeyError("x"), TimeoutError("its own"), Stopped()):
        with pytest.raises(type(error)) as caught:
            waited(raising(error), never_look)
        assert caught.value is error


def test_without_a_thread_to_be_had_it_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiting.threading.Thread, "start", no_thread)
    assert waited(threading.get_ident, never_look) == threading.get_ident()


def never_look() -> None:
    """Nothing ends the wait."""


def raising(error: Exception) -> Callable[[], None]:
    def ask() -> None:
        raise error

    return ask
