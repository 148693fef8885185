"""Replies that are watched as they arrive: the text on its way, the whole reply as if it had not been streamed."""

import json
from typing import Any

import pytest

from agent_bench import ANSWER, Bench
from agent_lab import turn
from glasslab.models import replies
from glasslab.models.anthropic_wire import Events
from glasslab.models.openai_wire import Chunks
from glasslab.models.replies import Unusable
from glasslab.models.streams import Stream

TALK = turn(("read_file", '{"path": "a.md"}'), ("list_files", "{}"), content="Let me look at the files first.")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_watching_changes_nothing_but_that_one_sees_it(bench: Bench, provider: str) -> None:
    seen: list[str] = []
    watched = bench.run(TALK, ANSWER, watch=seen.append, strict=True, model_provider=provider)
    assert len(seen) > 3
    assert "".join(seen) == "Let me look at the files first.\nThe answer.\n"
    frames = bench.hec.events("llm.response")
    plain = bench.run(TALK, ANSWER, strict=True, model_provider=provider)
    assert (watched.status, watched.answer, watched.usage) == (plain.status, plain.answer, plain.usage)
    again = bench.hec.events("llm.response")[2:]
    for event in (*frames, *again):
        for name in ("latency_ms", "session_id", "seq", "prev", "clock", "event_id", "sig", "content"):
            event.pop(name, None)
    assert frames == again


def test_a_stream_is_one_however_its_type_is_written(bench: Bench) -> None:
    chunk = {"choices": [{"delta": {"content": "Streamed."}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
    outcome = bench.run(
        {"status": 200, "headers": {"Content-Type": "Text/Event-Stream"}, "body": body}, watch=lambda text: None
    )
    assert (outcome.status, outcome.answer) == ("answered", "Streamed.")


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces_of_any_size_make_the_same_reply(size: int) -> None:
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in ("caf\u00e9 ", "\u2014 ", "ok")]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    data = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in (*chunks, end)).encode()
    seen: list[str] = []
    stream = Stream(Chunks(), seen.append)
    for start in range(0, len(data), size):
        stream.feed(data[start : start + size])
    assert "".join(seen) == "caf\u00e9 \u2014 ok"
    message = json.loads(stream.body())["choices"][0]["message"]
    assert message["content"] == "caf\u00e9 \u2014 ok"


@pytest.mark.parametrize("assembler", [Chunks, Events])
@pytest.mark.parametrize("event", [
    {}, {"type": None}, {"choices": None}, {"choices": [7]}, {"choices": [{"delta": "a"}]},
    {"choices": [{"delta": {"content": 7, "tool_calls": "x", "reasoning_details": 7}}]},
    {"choices": [{"delta": {"tool_calls": [7, {"index": "x", "function": 7}, {"function": {"arguments": 7}}]}}]},
    {"type": "message_start", "message": 7}, {"type": "content_block_start", "index": 0, "content_block": 7},
    {"type": "content_block_delta", "index": 9, "delta": {"text": "x"}}, {"type": "content_block_delta"},
    {"type": "message_delta", "delta": 7, "usage": 7}, {"type": "ping"},
])  # fmt: skip
def test_events_of_any_form_are_no_failure(assembler: type[Chunks | Events], event: dict[str, Any]) -> None:
    made = assembler()
    assert made.add(event) == ""
    assert made.body() is None


@pytest.mark.parametrize(
    "line", ["data: " + json.dumps({"choices": [{"delta": {"content": "x" * 600}}]}) + "\n", "x" * 700]
)
def test_a_stream_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("glasslab.models.streams.MAX_REPLY_BYTES", 1000)
    assert replies.MAX_REPLY_BYTES > 1000
    stream = Stream(Chunks(), lambda text: None)
    stream.feed(line.encode())
    with pytest.raises(Unusable, match="larger than 1000 bytes"):
        stream.feed(line.encode())
