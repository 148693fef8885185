"""Long conversations against the scripted model, which refuses what the real APIs refuse: both, to their end."""

import itertools
import json
from typing import Any

import pytest

from agent_bench import ANSWER, Bench, assert_recorded
from agent_lab import turn
from glasslab.agent import LAST_TURN, Outcome
from glasslab.context import tokens_of
from glasslab.continuing import unpaired
from glasslab.frames import canonical_json, sha256_hex, text_sha256
from glasslab.scripted.strict import chat_problem
from glasslab.summaries import PARTS
from glasslab.tooltypes import ToolResult
from soak import SOAK

LIMIT = 4_000
TURNS = 200 if SOAK else 20
SUMMARY = "## DECISIONS\nThe tool had no allow-list.\n**OPEN PROBLEMS**\nnone\nFILES\na.md: the report."
READING = turn(("read_file", '{"path": "a.md"}'), ("list_files", "{}"), ("nope", "{}"), content="I read on.")
LAST = {"last": "This is the last turn", **ANSWER}
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])


def long(bench: Bench, summary: Any = SUMMARY, **settings: Any) -> Outcome:
    """Ask a model that reads and reads until it is told to answer; some results are small, some too large alone."""
    sizes = itertools.count()
    bench.tools.answer = lambda name, arguments: ToolResult(
        f"{next(sizes)}:" + "é\x01xy" * (next(sizes) ** 3 % 997), False
    )
    asked = {"message": {"content": summary}} if isinstance(summary, str) else summary
    when = [{"last": "Shorten it to at most", **asked}, LAST]
    how = {"repeat_last": True, "strict": True, "when": when, "max_turns": TURNS, "last_turn": "answer"}
    return bench.run(READING, **{**how, "context_tokens": LIMIT, **settings})


def changes(bench: Bench) -> list[dict[str, Any]]:
    return bench.hec.events("context.reduced")


@PROVIDERS
def test_a_long_conversation_stays_within_its_limit_and_is_never_refused(bench: Bench, provider: str) -> None:
    outcome = long(bench, model_provider=provider)
    assert (outcome.status, outcome.turns) == ("answered", TURNS)
    requests = [event for event in bench.hec.events("llm.request") if "purpose" not in event]
    assert len(requests) == TURNS
    for request in requests:
        assert tokens_of(request["messages"]) <= LIMIT
        assert unpaired(request["messages"]) is None
        assert request["messages"][0]["role"] == "system"
    assert {change["how"] for change in changes(bench)} == {"stub", "summary", "trim"}
    assert "The tool had no allow-list." in json.dumps(requests[-1]["messages"])
    assert bench.hec.kinds[-1][-2:] == ["agent.final", "session.end"]


def test_a_change_is_on_record_before_the_call_that_it_is_for_and_says_what_it_took(bench: Bench) -> None:
    long(bench)
    events = [event for post in bench.hec.posts for event in post]
    results = {event["tool_call_id"]: event for event in bench.hec.events("toolcall")}
    named = [item for change in changes(bench) for item in change["replaced"]]
    assert len(named) > 15
    for item in named:
        assert item["sha256"] == results[item["tool_call_id"]]["result_sha256"]
    placed = [item for change in changes(bench) if change["how"] != "trim" for item in change["replaced"]]
    by_id = {event["event_id"]: event for event in events}
    for item in placed:
        frame = by_id[item["event_id"]]
        assert (frame["seq"], frame["tool_call_id"]) == (item["seq"], item["tool_call_id"])
        assert frame["kind"] in ("mcp.call_tool.result", "agent.call_refused")
        whole = frame.get("result", frame.get("error"))
        assert (text_sha256(whole), len(whole)) == (item["sha256"], item["characters"])
    for number, event in enumerate(events):
        if event["kind"] == "context.reduced":
            assert event["before"] > event["after"]
            before = max(n for n in range(number) if events[n]["kind"] == "llm.request")
            after = min(n for n in range(number, len(events)) if events[n]["kind"] == "llm.request")
            assert before < number < after
    stubs = [
        m["content"] for m in bench.last_request() if m["role"] == "tool" and "left out by the lab" in m["content"]
    ]
    assert all(any(item["sha256"] in stub for item in named) for stub in stubs)


def test_a_summary_names_the_messages_that_it_stands_for(bench: Bench) -> None:
    long(bench)
    events = [event for post in bench.hec.posts for event in post]
    number, change = next((n, e) for n, e in enumerate(events) if e.get("how") == "summary")
    asked = next(e for e in events[:number][::-1] if e["kind"] == "llm.request")
    assert asked["purpose"] == "summary"
    assert (asked["tools"], len(asked["messages"])) == ([], 2)
    assert chat_problem({"messages": asked["messages"]}, {}) is None
    assert all(part in asked["messages"][0]["content"] for part in PARTS)
    after = next(e for e in events[number:] if e["kind"] == "llm.request")["messages"]
    assert sha256_hex(after[2]["content"].encode()) == change["text_sha256"]
    assert SUMMARY in after[2]["content"]
    assert "Called read_file" in after[2]["content"]
    assert change["messages"] > 2
    sent = next(e for e in events[:number][::-1] if e["kind"] == "llm.request" and "purpose" not in e)["messages"]
    assert change["messages_sha256"] == sha256_hex(canonical_json(sent[2:]))
    assert change["messages"] == len(sent) - 2
    calls = [e for e in events if e["kind"] == "llm"]
    assert {e.get("purpose") for e in calls} == {None, "summary"}
    counted = [e for e in calls if "purpose" in e]
    end = bench.hec.events("session.end")[0]
    assert end["tokens"]["total"] == sum(e["prompt_tokens"] + e["completion_tokens"] for e in calls)
    assert end["turns"] == len(calls) - len(counted)


USELESS = [
    ("Nothing of what was asked.", "no_parts"),
    ("DECISIONS\nOPEN PROBLEMS\nFILES\n" + "x" * 40_000, "too_large"),
    (turn(("list_files", "{}")), "calls"),
    ({"status": 400, "body": "no"}, "http_400"),
    ({"message": {"content": "DECISI"}, "finish_reason": "length"}, "length"),
    ({"message": {"content": " "}}, "empty_reply"),
    ({"fault": "reset"}, "connection_failed"),
]


@pytest.mark.parametrize(
    ("summary", "reason", "provider"),
    [(*useless, ("openai", "anthropic")[number % 2]) for number, useless in enumerate(USELESS)],
)
def test_without_a_usable_summary_a_list_stands_there(bench: Bench, summary: Any, reason: str, provider: str) -> None:
    outcome = long(bench, summary, model_provider=provider)
    assert outcome.status == "answered", outcome.problem
    reasons = [change["reason"] for change in changes(bench) if "reason" in change]
    assert reasons == [reason]  # it is not asked for again in this session
    assert {change["how"] for change in changes(bench)} <= {"stub", "list", "trim", "none"}
    assert "list" in {change["how"] for change in changes(bench)}
    assert all(unpaired(event["messages"]) is None for event in bench.hec.events("llm.request"))
    standing = bench.last_request()[2]["content"]
    assert "The model: I read on." in standing
    assert "result sha256" in standing


def test_by_setting_the_model_is_never_asked_for_a_summary(bench: Bench) -> None:
    outcome = long(bench, compaction="list")
    assert (outcome.status, bench.requests) == ("answered", TURNS)
    assert {change["how"] for change in changes(bench)} == {"stub", "list", "trim"}


def test_in_summary_mode_a_change_names_the_frame_with_the_hash(bench: Bench) -> None:
    assert long(bench, lab_trace="summary").status == "answered"
    kinds = {event["event_id"]: event["kind"] for post in bench.hec.posts for event in post}
    named = [item for change in changes(bench) if change["how"] == "stub" for item in change["replaced"]]
    assert {kinds[item["event_id"]] for item in named} == {"toolcall"}
    assert b"I read on." not in b"".join(bench.hec.bodies)


def test_a_limit_that_a_summary_passes_ends_the_session_before_the_next_call(bench: Bench) -> None:
    costly = {"message": {"content": SUMMARY}, "usage": {"prompt_tokens": 10**6, "completion_tokens": 1}}
    outcome = long(bench, costly, max_total_tokens=10**6)
    assert_recorded(bench, outcome, "max_tokens_reached", "max_tokens_reached")
    assert bench.hec.events("llm")[-1]["purpose"] == "summary"


def test_what_fits_is_left_alone(bench: Bench) -> None:
    bench.tools.answer = lambda name, arguments: ToolResult("é" * 20_000, False)
    assert bench.run(READING, ANSWER).status == "answered"
    assert changes(bench) == []
    assert len(bench.last_request()[3]["content"]) > 20_000


def test_a_question_that_is_too_large_alone_is_a_recorded_end(bench: Bench) -> None:
    bench.model.play({"turns": [ANSWER]})
    outcome = bench.ask("long " * 4_000, context_tokens=1_000)
    assert_recorded(bench, outcome, "max_tokens_reached", "context_too_large")
    assert canonical_json(LAST_TURN) not in b"".join(bench.hec.bodies)
