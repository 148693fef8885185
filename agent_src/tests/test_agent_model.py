"""The loop against models that misbehave: each end has its status, and is on record."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded
from agent_lab import (
    API_KEY,
    ScriptedModel,
    turn,
)
from glasslab.collector.config import CONTENT_LIMIT
from glasslab.statuses import EXIT_CODES
from glasslab.tooltypes import ToolResult


def raw(status: int, body: Any = None, **more: Any) -> dict[str, Any]:
    return {"status": status, "body": {"error": {"message": f"no, {API_KEY}"}} if body is None else body, **more}


def reply(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"message": {"content": None, **message}, "finish_reason": finish}


MODEL_FAILURES = [
    (raw(401), "model_refused", "http_401"),
    (raw(403), "model_refused", "http_403"),
    (raw(404), "model_refused", "http_404"),
    (raw(429), "model_refused", "http_429"),
    (raw(400), "model_refused", "http_400"),
    (raw(500), "model_unreachable", "http_500"),
    (raw(503, "busy"), "model_unreachable", "http_503"),
    (raw(302, headers={"Location": "http://127.0.0.1:1/"}), "model_unreachable", "http_302"),
    (raw(200, "<html>"), "model_invalid", "not_json"),
    (raw(200, ""), "model_invalid", "not_json"),
    (raw(200, "[" * 100_000), "model_invalid", "not_json"),
    (raw(200, {"choices": []}), "model_invalid", "no_choices"),
    (raw(200, {"choices": None, "error": {"message": "overloaded"}}), "model_invalid", "no_choices"),
    (raw(200, {"choices": [7]}), "model_invalid", "no_choices"),
    (raw(200, "[]"), "model_invalid", "no_choices"),
    (raw(200, {"choices": [{"finish_reason": "stop"}]}), "model_invalid", "no_message"),
    (reply("length", content="The ans"), "model_invalid", "length"),
    (reply("length", tool_calls=turn(("list_files", "{"))["message"]["tool_calls"]), "model_invalid", "length"),
    (raw(200, "x" * 2_000_000), "model_invalid", "not_readable"),
    (raw(500, "x" * 2_000_000), "model_invalid", "not_readable"),
    (raw(500, "no way", drip=0.3), "model_unreachable", "timeout"),
    (raw(200, {}, headers={"Content-Encoding": "gzip"}), "model_invalid", "not_readable"),
    (reply("tool_calls", tool_calls=[7] * 10_000), "model_invalid", "too_many_calls"),
    (reply("content_filter", content=""), "model_refused", "content_filter"),
    (reply(refusal="I will not."), "model_refused", "refusal"),
    (reply(content=""), "model_invalid", "empty_reply"),
    (reply(content=" \n"), "model_invalid", "empty_reply"),
    (reply("tool_calls", tool_calls=[]), "model_invalid", "empty_reply"),
    (raw(200, '{"choices": [{}]}', drip=0.2), "model_unreachable", "timeout"),
    ({**ANSWER, "delay": 1.5}, "model_unreachable", "timeout"),
]


@pytest.mark.parametrize(("script", "status", "reason"), MODEL_FAILURES, ids=lambda value: str(value)[:40])
def test_a_model_without_a_usable_reply(bench: Bench, script: dict[str, Any], status: str, reason: str) -> None:
    outcome = bench.run(script)
    assert_recorded(bench, outcome, status, reason)
    assert EXIT_CODES[outcome.status] == 6
    assert bench.requests == 1  # nothing is repeated in silence
    assert outcome.problem is not None
    assert "test-model at 127.0.0.1" in outcome.problem
    assert "; " in outcome.problem
    assert API_KEY not in outcome.problem
    assert "\n" not in outcome.problem
    assert bench.tools.calls == []


def test_a_reply_that_cannot_be_used_is_on_record(bench: Bench) -> None:
    bench.run(reply("length", content="The ans"))
    assert bench.hec.events("llm.response")[0]["content"] == "The ans"
    assert bench.hec.events("llm")[0]["finish_reason"] == "length"


def test_of_ten_thousand_calls_in_one_reply_some_are_on_record_and_none_is_made(bench: Bench) -> None:
    outcome = bench.run(turn(*[("list_files", "{}")] * 10_000))
    assert "asks for 10000 tool calls; at most 128" in (outcome.problem or "")
    assert len(bench.hec.events("llm.response")[0]["tool_calls"]) == 128
    assert len(bench.hec.events("llm")[0]["tools_requested"]) == 128
    assert bench.tools.calls == []


def test_the_largest_reply_fits_the_log(bench: Bench) -> None:
    """What a reply holds is recorded several times over in one POST; the log's limit is not ours."""
    bench.run(turn(("list_files", "{" * 1_490_000)), turn(("read_file", '"' * 700_000)), ANSWER)
    assert bench.hec.events("session.end")[0]["status"] == "answered"
    assert max(len(body) for body in bench.hec.bodies) < CONTENT_LIMIT


def test_a_conversation_that_grows_without_end_is_a_recorded_end(bench: Bench) -> None:
    bench.tools.answer = lambda name, arguments: ToolResult("\x01" * 20_000, False)
    outcome = bench.run(turn(*[("list_files", "{}")] * 40), context_tokens=3_000)  # forty are too many however short
    assert_recorded(bench, outcome, "max_tokens_reached", "context_too_large")
    assert "CONTEXT_TOKENS" in str(outcome.problem)
    assert bench.requests == 1
    assert max(len(body) for body in bench.hec.bodies) < CONTENT_LIMIT


def test_nobody_listens_where_the_model_should_be(bench: Bench) -> None:
    outcome = bench.run_on("http://127.0.0.1:1/v1")
    assert_recorded(bench, outcome, "model_unreachable", "connection_refused")


def test_a_model_with_another_ca(bench: Bench) -> None:
    outcome = bench.run_on(f"{bench.hec.url}/v1")
    assert_recorded(bench, outcome, "model_unreachable", "tls")
    assert "MODEL_CA" in str(outcome.problem)


def test_a_model_with_the_labs_ca_and_something_else_behind_it(bench: Bench) -> None:
    outcome = bench.run_on(f"{bench.hec.url}/v1", model_ca=bench.ca)
    assert outcome.status == "model_unreachable"
    assert outcome.status in [event["status"] for event in bench.hec.events("session.end")]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_model_without_a_key_gets_no_authorization(bench: Bench, tmp_path: Path, provider: str) -> None:
    model = ScriptedModel({"turns": [ANSWER]}, tmp_path)
    assert bench.run_on(model.url, model_api_key=None, model_provider=provider).status == "answered"
    assert bench.run_on(model.url, model_provider=provider).status == "answered"
    model.stop()
    lines = [json.loads(line) for file in tmp_path.glob("model-*.jsonl") for line in file.read_text().splitlines()]
    assert [line["authorization"] for line in lines if line["method"] == "POST"] == [False, True]


def test_usage_that_is_missing_is_estimated_and_says_so(bench: Bench) -> None:
    outcome = bench.run({"message": {"content": "yes, it is so"}})
    assert outcome.status == "answered"
    assert outcome.usage["estimated"] is True
    assert 100 < outcome.usage["prompt"] < 1000
    assert outcome.usage["completion"] == 5
    for kind in ("llm", "llm.response"):
        event = bench.hec.events(kind)[0]
        assert (event["estimated"], event["prompt_tokens"]) == (True, outcome.usage["prompt"])
    assert bench.hec.events("session.end")[0]["estimated"] is True
    assert "estimated" not in bench.hec.events("session.end")[0]["tokens"]
