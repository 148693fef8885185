"""The limits of the loop, cancelling, and several questions at once."""

import threading
from pathlib import Path
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded, stop_once
from agent_lab import (
    QUESTION,
    StubTools,
    make_agent,
    make_settings,
    never,
    scripted_model,
    stub_lock,
    turn,
)
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab.agent import Outcome
from glasslab.statuses import EXIT_CODES
from glasslab.tooltypes import ToolResult


def test_six_turns_and_no_more(bench: Bench) -> None:
    outcome = bench.run(turn(("list_files", "{}")), repeat_last=True)
    assert_recorded(bench, outcome, "max_steps_reached", "max_steps_reached")
    assert EXIT_CODES[outcome.status] == 3
    assert (outcome.turns, bench.requests) == (6, 6)
    assert len(bench.tools.calls) == 5  # nobody would read what the sixth gives
    assert bench.hec.events("agent.decision")[-1]["decision"] == "stop"


def test_an_answer_in_the_last_turn_counts(bench: Bench) -> None:
    assert bench.run(turn(("list_files", "{}")), ANSWER, max_turns=2).status == "answered"


def test_too_many_calls_in_one_turn(bench: Bench) -> None:
    three = turn(*[("list_files", "{}")] * 3)
    assert bench.run(three, ANSWER, max_tool_calls_per_turn=3).status == "answered"
    outcome = bench.run(three, ANSWER, max_tool_calls_per_turn=2)
    assert (outcome.status, EXIT_CODES[outcome.status]) == ("max_tool_calls_reached", 3)
    assert "MAX_TOOL_CALLS_PER_TURN" in str(outcome.problem)
    assert bench.hec.events("session.end")[-1]["reason"] == "too_many_calls_in_a_turn"
    assert bench.hec.events("agent.decision")[-1]["reason"] == "too_many_calls_in_a_turn"
    assert len(bench.tools.calls) == 3  # those of the first session


def test_the_last_turn_can_be_told_to_answer(bench: Bench) -> None:
    outcome = bench.run(turn(("list_files", "{}")), ANSWER, max_turns=2, last_turn="answer", strict=True)
    assert outcome.status == "answered"
    first, last = bench.hec.events("llm.request")
    assert "tool_choice" not in first
    assert (last["tool_choice"], last["messages"][-1]["role"]) == ("none", "user")
    assert "no more tools" in last["messages"][-1]["content"]
    assert last["tools"] == first["tools"]
    assert last["message_count"] == len(last["messages"]) == 5


def test_a_model_that_calls_tools_on_the_last_turn_all_the_same(bench: Bench) -> None:
    outcome = bench.run(turn(("list_files", "{}")), repeat_last=True, max_turns=2, last_turn="answer")
    assert_recorded(bench, outcome, "max_steps_reached", "max_steps_reached")
    assert len(bench.tools.calls) == 1


def test_what_was_found_so_far_is_kept_for_the_one_who_asked(bench: Bench) -> None:
    long = '{"path": "%s"}' % ("x" * 500)
    looking = turn(("read_file", '{"path": "a.md"}'), ("read_file", long), ("nope", "{}"), content=" Let me look. ")
    outcome = bench.run(looking, turn(("list_files", "{}"), content="Once more."), max_turns=2)
    assert_recorded(bench, outcome, "max_steps_reached", "max_steps_reached")
    assert outcome.so_far is not None
    lines = outcome.so_far.splitlines()
    assert lines[0] == 'read_file {"path": "a.md"}: 4 characters'
    assert len(lines[1]) < 180
    assert lines[2:] == ["the model: Once more."]
    assert bench.hec.events("agent.final")[0]["so_far"] == outcome.so_far
    assert "so_far" not in bench.hec.events("session.end")[0]


def test_an_answer_needs_no_word_of_what_was_found(bench: Bench) -> None:
    assert bench.run(turn(("list_files", "{}"), content="Looking."), ANSWER).so_far is None
    assert "so_far" not in bench.hec.events("agent.final")[0]


def test_a_reply_that_was_cut_is_shown_as_found(bench: Bench) -> None:
    outcome = bench.run({"message": {"content": "The ans"}, "finish_reason": "length"})
    assert (outcome.status, outcome.so_far) == ("model_invalid", "the model: The ans")


LIMITS = [("max_tool_calls", 1, "max_tool_calls_reached"), ("max_total_tokens", 20, "max_tokens_reached")]


@pytest.mark.parametrize(("setting", "value", "status"), LIMITS)
def test_the_other_limits(bench: Bench, setting: str, value: int, status: str) -> None:
    outcome = bench.run(turn(("list_files", "{}")), repeat_last=True, **{setting: value})
    assert_recorded(bench, outcome, status, status)
    assert (bench.requests, len(bench.tools.calls)) == (2, 1)


def test_seconds_cut_a_model_call_short(bench: Bench) -> None:
    bench.run(ANSWER)  # what is imported for a first call takes its time
    bench.hec.reset()
    bench.tools.closed = 0
    outcome = bench.run({**ANSWER, "delay": 6}, max_seconds=1.5, patience=60)  # else it would be answered
    assert_recorded(bench, outcome, "deadline_reached", "deadline_reached")
    assert bench.requests == 1


def test_cancelled_while_the_model_thinks(bench: Bench) -> None:
    stop = stop_once(bench, "llm.request")
    outcome = bench.run({**ANSWER, "delay": 6}, stop=stop, patience=60)  # else it would be answered
    assert_recorded(bench, outcome, "cancelled", "cancelled")
    assert EXIT_CODES[outcome.status] == 8


def test_cancelled_before_a_tool_runs(bench: Bench) -> None:
    stop = threading.Event()

    def answer(name: str, arguments: dict[str, Any]) -> ToolResult:
        stop.set()
        return ToolResult("x", False)

    bench.tools.answer = answer
    outcome = bench.run(turn(("list_files", "{}"), ("list_files", "{}")), ANSWER, stop=stop)
    assert_recorded(bench, outcome, "cancelled", "cancelled")
    assert len(bench.tools.calls) == 1
    assert bench.requests == 1


def test_several_questions_at_once_keep_apart(hec: FaultyHec, certificates: Certificates, tmp_path: Path) -> None:
    script = {"turns": [turn(("list_files", "{}")), ANSWER]}
    outcomes: list[Outcome] = []
    with scripted_model(script, tmp_path) as model:
        settings = make_settings(hec, certificates.ca, model.url)
        agent = make_agent(settings, StubTools, stub_lock(StubTools()))
        threads = [threading.Thread(target=lambda: outcomes.append(agent.ask(QUESTION, never()))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        agent.close()
    assert [outcome.status for outcome in outcomes] == ["answered"] * 6
    by_session = {outcome.session_id: 0 for outcome in outcomes}
    for post in hec.posts:
        assert len({event["session_id"] for event in post}) == 1
        for event in post:
            by_session[event["session_id"]] += 1
            assert event["seq"] == by_session[event["session_id"]]
    assert set(by_session.values()) == {17}
