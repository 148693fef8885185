"""Failed model calls that are made again: when, after how long, and only once that is on record."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded, stop_once
from agent_lab import turn
from faulty_hec import FaultyHec
from glasslab.models import ModelError, retries
from glasslab.models.retries import retry_after, wait_before
from glasslab.tooltypes import ToolResult

BUSY = {"status": 503}
NOW = datetime(2026, 9, 1, 12, 0, 0, tzinfo=UTC)


def failed(again: bool = True, after: float | None = None) -> ModelError:
    return ModelError("model_unreachable", "http_503", "text", again=again, retry_after=after)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.01)


def test_the_wait_doubles_up_to_its_bound_less_a_part_by_chance() -> None:
    assert [wait_before(n, 9, failed(), None, chance=0) for n in (1, 2, 3, 4, 5, 9)] == [0.5, 1, 2, 4, 8, 8]
    assert [wait_before(n, 9, failed(), None, chance=1) for n in (1, 2, 3)] == [0.25, 0.5, 1]
    by_chance = {wait_before(3, 9, failed(), None) for _ in range(50)}
    assert len(by_chance) > 10
    assert all(1 <= (wait or 0) <= 2 for wait in by_chance)


@pytest.mark.parametrize(("attempt", "error", "left", "wait"), [
    (2, failed(), None, 1.0), (3, failed(), None, None),  # two retries, no third
    (1, failed(again=False), None, None),
    (1, failed(after=3.0), None, 3.0), (1, failed(after=0.1), None, 0.5),
    (1, failed(after=60.0), None, 60.0), (1, failed(after=60.1), None, None),  # a quota, not a moment
    (1, failed(), 0.6, 0.5), (1, failed(), 0.5, None), (1, failed(after=3.0), 2.0, None),
])  # fmt: skip
def test_what_is_made_again_and_when(attempt: int, error: ModelError, left: float | None, wait: float | None) -> None:
    assert wait_before(attempt, 2, error, left, chance=0) == wait


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"retry-after": "7"}, 7.0), ({"retry-after": " 1.5 "}, 1.5), ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "250", "retry-after": "9"}, 0.25), ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ({"retry-after": "Tue, 01 Sep 2026 12:00:30 GMT"}, 30.0), ({"retry-after": "Tue, 01 Sep 2026 11:00:00 GMT"}, 0.0),
    ({}, None), ({"retry-after": ""}, None), ({"retry-after": "-1"}, None), ({"retry-after": "soon"}, None),
    ({"retry-after": "nan"}, None), ({"retry-after": "9" * 400}, None), ({"retry-after": "\u0663"}, None),
])  # fmt: skip
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_each_attempt_is_a_frame_and_the_next_comes_after_it(bench: Bench, quick: None) -> None:
    outcome = bench.run([BUSY, {"status": 429}, ANSWER], model_retries=2)
    assert (outcome.status, outcome.turns, bench.requests) == ("answered", 1, 3)
    frames = bench.hec.events("llm.failed")
    assert [(event["attempt"], event["reason"], event["step"]) for event in frames] == [
        (1, "http_503", 1),
        (2, "http_429", 1),
    ]
    assert all(event["wait_seconds"] > 0 and event["model"] == "test-model" for event in frames)
    assert [kinds for kinds in bench.hec.kinds if "llm.failed" in kinds] == [["llm.failed"], ["llm.failed"]]
    assert len(bench.hec.events("llm.request")) == len(bench.hec.events("llm")) == 1


def test_the_attempts_have_an_end(bench: Bench, quick: None) -> None:
    outcome = bench.run([BUSY, BUSY, BUSY, ANSWER], model_retries=2)
    assert_recorded(bench, outcome, "model_unreachable", "http_503")
    assert bench.requests == 3
    waits = [event["wait_seconds"] is None for event in bench.hec.events("llm.failed")]
    assert waits == [False, False, True]
    assert bench.hec.kinds[-1] == ["llm.failed", "agent.final", "session.end"]


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"max_total_tokens": 100}, "max_tokens_reached"),
        ({"max_cost": 0.4}, "max_cost_reached"),
    ],
)
def test_an_attempt_that_used_up_what_was_allowed_is_the_last(
    bench: Bench, quick: None, limit: dict[str, Any], status: str
) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1, "cost": 0.5}
    broken_off = {"message": {"content": "The"}, "finish_reason": "error", "usage": usage}
    outcome = bench.run([broken_off, broken_off, ANSWER], model_retries=2, **limit)
    assert_recorded(bench, outcome, status, status)
    assert bench.requests == 1
    assert [event["wait_seconds"] for event in bench.hec.events("llm.failed")] == [None]


def test_a_summary_that_used_up_what_was_allowed_is_not_asked_for_again(bench: Bench, quick: None) -> None:
    bench.tools.answer = lambda name, arguments: ToolResult("word " * 1_200, False)
    usage = {"prompt_tokens": 10_000, "completion_tokens": 1}
    broken_off = {"message": {"content": "DECISIONS"}, "finish_reason": "error", "usage": usage}
    call = turn(("list_files", "{}"))
    outcome = bench.run(
        call, call, [broken_off, broken_off], context_tokens=4_000, model_retries=2, max_total_tokens=9_000
    )
    assert_recorded(bench, outcome, "max_tokens_reached", "max_tokens_reached")
    assert bench.requests == 3


@pytest.mark.parametrize("mode", ["full", "summary"])
def test_no_second_attempt_without_the_log(bench: Bench, hec: FaultyHec, quick: None, mode: str) -> None:
    hec.reset({"full": 3, "summary": 2}[mode], "busy")  # the commit of the first attempt's frame
    outcome = bench.run([BUSY, ANSWER], model_retries=2, lab_trace=mode)
    assert outcome.status == "log_rejected"
    assert bench.requests == 1


def test_a_server_that_asks_for_time_gets_it(bench: Bench, quick: None) -> None:
    outcome = bench.run([{"status": 429, "headers": {"Retry-After": "0.4"}}, ANSWER], model_retries=1)
    assert outcome.status == "answered"
    assert outcome.seconds >= 0.4
    assert bench.hec.events("llm.failed")[0]["wait_seconds"] == 0.4


def test_a_wait_is_ended_by_cancelling(bench: Bench) -> None:
    stop = stop_once(bench, "llm.failed")
    outcome = bench.run([{"status": 429, "headers": {"Retry-After": "30"}}, ANSWER], model_retries=1, stop=stop)
    assert_recorded(bench, outcome, "cancelled", "cancelled")
    assert outcome.seconds < 20
    assert bench.requests == 1


def test_nothing_is_waited_for_beyond_the_sessions_time(bench: Bench) -> None:
    busy = {"status": 429, "headers": {"Retry-After": "30"}}
    outcome = bench.run([busy, ANSWER], model_retries=1, max_seconds=5)
    assert_recorded(bench, outcome, "model_refused", "http_429")
    assert outcome.seconds < 20


@pytest.mark.parametrize(
    "error", [{"status": 401}, {"status": 400}, {"status": 200, "body": "<html>"}, turn(content="")]
)
def test_what_would_fail_again_is_not_made_again(bench: Bench, quick: None, error: Any) -> None:
    assert bench.run([error, ANSWER], model_retries=5).answer is None
    assert bench.requests == 1


@pytest.mark.parametrize(("code", "requests"), [("429", 2), ("503", 2), ("403", 1), ("0429", 1), ("slow", 1)])
def test_a_status_that_a_gateway_sends_as_a_text_is_one(bench: Bench, quick: None, code: str, requests: int) -> None:
    error = {"status": 200, "body": json.dumps({"error": {"message": "no", "type": "None", "code": code}})}
    assert (bench.run([error, ANSWER], model_retries=1).answer is not None) == (requests == 2)
    assert bench.requests == requests


def test_a_refused_connection_is_tried_again(bench: Bench, quick: None) -> None:
    outcome = bench.run_on("http://127.0.0.1:1/v1", model_retries=2)
    assert_recorded(bench, outcome, "model_unreachable", "connection_refused")
    assert [event["attempt"] for event in bench.hec.events("llm.failed")] == [1, 2, 3]
