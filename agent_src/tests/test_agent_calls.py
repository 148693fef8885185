"""Tool calls that cannot be made go back to the model, and the loop goes on."""

import json
from typing import Any

import pytest

from agent_bench import ANSWER, Bench
from agent_lab import (
    turn,
)

BAD_CALLS = [
    ("read_file", '{"path": "a.md"', "invalid_json"),
    ("read_file", "{'path': 'a.md'}", "invalid_json"),
    ("read_file", '["a.md"]', "not_an_object"),
    ("read_file", "null", "not_an_object"),
    ("read_file", '{"path": NaN}', "not_a_number"),
    ("read_file", '{"path": 1e999}', "not_a_number"),
    ("read_file", '{"path": "a", "path": "b"}', "duplicate_key"),
    ("read_file", '{"path": %s}' % ("9" * 5000), "integer_too_large"),
    ("read_file", '{"path": %s}' % ("[" * 100_000), "too_long"),
    ("read_file", '{"path": ' + "[" * 20_000 + "]" * 20_000 + "}", "too_deep"),
    ("read_file", '{"path": "\\ud800"}', "lone_surrogate"),
    ("read_file", "{}", "schema"),
    ("read_file", '{"path": 7}', "schema"),
    ("read_file", '{"path": "a.md", "mode": "w"}', "unknown_argument"),
    ("delete_file", '{"path": "a.md"}', "unknown_tool"),
    ("", "{}", "unknown_tool"),
    ("no such\ud800", "{}", "unknown_tool"),
]


@pytest.mark.parametrize(("name", "arguments", "reason"), BAD_CALLS, ids=lambda value: ascii(value)[:30])
def test_a_bad_call_goes_back_to_the_model_and_the_loop_goes_on(
    bench: Bench, name: str, arguments: str, reason: str
) -> None:
    outcome = bench.run(turn((name, arguments)), turn(("list_files", "{}")), ANSWER)
    assert (outcome.status, outcome.answer, outcome.turns) == ("answered", "The answer.", 3)
    assert [call[0] for call in bench.tools.calls] == ["list_files"]
    refused = bench.hec.events("agent.call_refused")
    assert [event["reason"] for event in refused] == [reason]
    first, second = bench.hec.events("toolcall")
    assert (first["refused"], first["is_error"]) == (True, True)
    assert (second["refused"], second["is_error"]) == (False, False)
    # What is sent back is well-formed, whatever came.
    assistant, result = bench.last_request()[2:4]
    sent = assistant["tool_calls"][0]
    assert result["tool_call_id"] == sent["id"]
    assert result["content"].startswith("Error: ")
    assert refused[0]["error"] == result["content"]
    assert isinstance(json.loads(sent["function"]["arguments"]), dict)
    if reason not in ("unknown_tool", "schema", "unknown_argument"):
        assert sent["function"]["arguments"] == "{}"
    assert 0 < len(sent["function"]["name"]) <= 64
    json.dumps(bench.last_request(), ensure_ascii=False).encode()


def test_what_was_sent_is_on_record_in_a_safe_form(bench: Bench) -> None:
    bench.run(turn(("read_file", '{"path": "\ud800')), ANSWER)
    assert bench.hec.events("llm.response")[0]["tool_calls"][0]["arguments"] == '{"path": "\\ud800'
    assert bench.hec.events("agent.call_refused")[0]["arguments"] == '{"path": "\\ud800'
    assert bench.hec.events("llm")[0]["tools_requested"] == [{"tool": "read_file", "arguments": '{"path": "\\ud800'}]


def test_good_and_bad_calls_in_one_reply_keep_their_order(bench: Bench) -> None:
    bench.run(turn(("read_file", "{"), ("list_files", ""), ("nope", "{}"), ("read_file", '{"path": "a.md"}')), ANSWER)
    assert [call[:2] for call in bench.tools.calls] == [("list_files", {}), ("read_file", {"path": "a.md"})]
    contents = [message["content"] for message in bench.last_request()[3:]]
    assert [content.startswith("Error: ") for content in contents] == [True, False, True, False]
    assert bench.hec.kinds[2] == [
        "llm.response", "llm", "agent.decision", "agent.call_refused", "toolcall", "mcp.call_tool.request",
    ]  # fmt: skip


def test_text_beside_calls_is_kept_and_the_calls_run(bench: Bench) -> None:
    outcome = bench.run(turn(("list_files", "{}"), content="Let me look."), ANSWER)
    assert outcome.answer == "The answer."
    assert len(bench.tools.calls) == 1
    assert bench.last_request()[2]["content"] == "Let me look."


def test_finish_reason_stop_with_calls_still_runs_them(bench: Bench) -> None:
    bench.run({**turn(("list_files", "{}")), "finish_reason": "stop"}, ANSWER)
    assert len(bench.tools.calls) == 1


def test_empty_and_repeated_call_ids_are_made_unique(bench: Bench) -> None:
    calls = turn(*[("list_files", "{}")] * 4)
    for call, id_ in zip(calls["message"]["tool_calls"], ["same", "same", "", "x" * 100], strict=True):
        call["id"] = id_
    bench.run(calls, calls, ANSWER)
    messages = bench.last_request()
    given = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert given == answered
    assert len(set(given)) == 8
    assert given[0] == "same"
    assert all(0 < len(id_) <= 64 for id_ in given)
    requested = [event["tool_call_id"] for event in bench.hec.events("mcp.call_tool.request")]
    assert requested == given


@pytest.mark.parametrize("call", [{}, {"function": None}, {"function": {"name": 7}}, "text", None])
def test_a_call_that_is_no_call_is_an_unknown_tool(bench: Bench, call: Any) -> None:
    outcome = bench.run({"message": {"content": None, "tool_calls": [call]}}, ANSWER)
    assert outcome.status == "answered"
    assert bench.hec.events("agent.call_refused")[0]["reason"] == "unknown_tool"


def test_arguments_sent_as_an_object_are_taken(bench: Bench) -> None:
    calls = turn(("read_file", ""))
    calls["message"]["tool_calls"][0]["function"]["arguments"] = {"path": "a.md"}
    bench.run(calls, ANSWER)
    assert bench.tools.calls[0][1] == {"path": "a.md"}
