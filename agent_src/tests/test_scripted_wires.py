"""The scripted model's two APIs: the same script on both, streamed, with faults, and as strict as the real ones."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from glasslab.scripted import ScriptedServer, load_script, parse_script

Start = Callable[..., str]
TOOL = {"name": "list_files", "description": "d", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"type": "function", "function": {"name": "list_files", "parameters": {"type": "object"}}}
NAMED = {"name": "list_files", "arguments": '{"a": [1, "x"]}'}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": NAMED}
SPOKEN = {"message": {"content": "Let me look at all of it.", "tool_calls": [CALL]}, "finish_reason": "tool_calls"}
USE = {"type": "tool_use", "id": "c1", "name": "list_files", "input": {"a": [1, "x"]}}


@pytest.fixture
def start() -> Iterator[Start]:
    servers: list[ScriptedServer] = []

    def _start(*turns: Any, **more: Any) -> str:
        script = parse_script({"turns": list(turns), **more}, "test") if turns else load_script("sample")
        server = ScriptedServer(script, "127.0.0.1", 0)
        server.start()
        servers.append(server)
        return f"http://127.0.0.1:{server.port}/v1"

    yield _start
    for server in servers:
        server.stop(seconds=0)


def post(url: str, messages: list[Any], headers: dict[str, str] | None = None, **more: Any) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        body = {"model": "m", "messages": messages, **more}
        return session.post(url, json=body, headers=headers, timeout=5)


def user(text: str = "q") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def test_the_sample_script_speaks_anthropic_too(start: Start) -> None:
    base = start()
    assistant = {"role": "assistant", "content": [USE]}
    for done, tokens, uses in ((0, 136, 1), (1, 173, 2), (2, 446, 0)):
        reply = post(f"{base}/messages", [user(), *[assistant] * done]).json()
        assert reply["type"] == "message"
        assert reply["usage"]["input_tokens"] == tokens
        assert [block["type"] for block in reply["content"]].count("tool_use") == uses
        assert reply["stop_reason"] == ("tool_use" if uses else "end_turn")


def test_a_reply_in_one_apis_form_keeps_its_text_calls_and_order(start: Start) -> None:
    reply = post(f"{start(SPOKEN)}/messages", [user()]).json()
    assert reply["content"] == [{"type": "text", "text": "Let me look at all of it."}, USE]


def test_a_turn_of_anthropics_is_served_as_written_and_only_there(start: Start) -> None:
    turn = {"content": [{"type": "odd"}], "stop_reason": "pause_turn", "usage": {"input_tokens": 1}}
    base = start(turn)
    reply = post(f"{base}/messages", [user()]).json()
    assert (reply["content"], reply["stop_reason"], reply["usage"]) == (
        [{"type": "odd"}],
        "pause_turn",
        {"input_tokens": 1},
    )
    assert post(f"{base}/chat/completions", [user()]).status_code == 400


def events(answer: requests.Response) -> list[dict[str, Any]]:
    assert answer.headers["Content-Type"] == "text/event-stream"
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_completion_is_streamed_in_pieces_that_add_up(start: Start) -> None:
    turn = {**SPOKEN, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    chunks = events(post(f"{start(turn)}/chat/completions", [user()], stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Let me look at all of it."
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert len(calls) > 2
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": [1, "x"]}'
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "tool_calls"
    assert chunks[-1]["usage"]["total_tokens"] == 7


def test_a_message_is_streamed_in_pieces_that_add_up(start: Start) -> None:
    thinking = {"type": "thinking", "thinking": "I wonder what it is.", "signature": "sig"}
    blocks = [thinking, {"type": "text", "text": "Let me look at all of it."}, USE]
    turn = {"content": blocks, "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4}}
    got = events(post(f"{start(turn)}/messages", [user()], stream=True))
    assert [got[0]["type"], got[-2]["type"], got[-1]["type"]] == ["message_start", "message_delta", "message_stop"]
    deltas = [event["delta"] for event in got if event["type"] == "content_block_delta"]
    for name, text in (
        ("thinking", "I wonder what it is."),
        ("text", "Let me look at all of it."),
        ("signature", "sig"),
    ):
        assert "".join(delta.get(name, "") for delta in deltas) == text
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"a": [1, "x"]}
    assert got[-2]["usage"]["output_tokens"] == 4


@pytest.mark.parametrize("fault", ["reset", "hang_up"])
def test_a_fault_in_place_of_an_answer(start: Start, fault: str) -> None:
    with pytest.raises(requests.ConnectionError):
        post(f"{start({'fault': fault})}/chat/completions", [user()])


@pytest.mark.parametrize("turn", [{"status": 200, "body": "x" * 100}, {"message": {"content": "x" * 100}}])
def test_half_of_an_answer(start: Start, turn: dict[str, Any]) -> None:
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        post(f"{start({**turn, 'fault': 'cut'})}/chat/completions", [user()])


def test_the_same_request_again_gets_the_next_answer_then_it_begins_anew(start: Start) -> None:
    base = start([{"status": 503}, {"status": 429}, {"message": {"content": "at last"}}])
    for _ in range(2):
        statuses = [post(f"{base}/chat/completions", [user()]).status_code for _ in range(3)]
        assert statuses == [503, 429, 200]
    assert post(f"{base}/chat/completions", [user("other")]).status_code == 503


SYSTEM, ASK = {"role": "system", "content": "s"}, {"role": "user", "content": "q"}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}


def changed_call(**function: Any) -> dict[str, Any]:
    return {**ASKED, "tool_calls": [{**CALL, "function": {**CALL["function"], **function}}]}


CHAT_REFUSED = [
    ([SYSTEM, ASK, ASKED], "without a result"),
    ([SYSTEM, ASK, ASKED, ASK], "without a result"),
    ([SYSTEM, ASK, ASKED, ASK, RESULT], "without a result"),
    ([SYSTEM, ASK, RESULT], "no call waits"),
    ([SYSTEM, ASK, ASKED, RESULT, RESULT], "no call waits"),
    ([ASK, {**ASKED, "tool_calls": [CALL, CALL]}, RESULT, RESULT], "ids not unique"),
    ([ASK, {**ASKED, "tool_calls": []}, ASK], "tool_calls empty"),
    ([ASK, changed_call(arguments='{"a":'), RESULT], "no JSON object"),
    ([ASK, changed_call(arguments="[1]"), RESULT], "no JSON object"),
    ([ASK, changed_call(name="a b"), RESULT], "bad function name"),
    ([ASK, {**ASKED, "tool_calls": [{**CALL, "id": ""}]}, RESULT], "bad id"),
    ([ASK, {"role": "assistant", "content": None}, ASK], "content must be text"),
    ([ASK, ASKED, {**RESULT, "is_error": True}], "unknown parameter"),
    ([ASK, ASKED, {"role": "tool"}], "not of the API's form"),
    ([{"role": "nobody"}], "bad role"),
    ([ASK, ASKED, {**RESULT, "content": "\ud800"}], "UTF-8"),
    ([ASK, ASKED, RESULT, {"role": "assistant", "content": "a"}], "last message"),
]


@pytest.mark.parametrize(("messages", "why"), CHAT_REFUSED)
def test_strict_chat_completions(start: Start, messages: list[Any], why: str) -> None:
    base = start({"message": {"content": "a"}}, strict=True, repeat_last=True)
    good = post(f"{base}/chat/completions", [SYSTEM, ASK, ASKED, RESULT], tools=[FUNCTION], tool_choice="none")
    assert good.status_code == 200, good.text
    answer = post(f"{base}/chat/completions", messages, tools=[FUNCTION])
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]


def used(**more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{**USE, **more}]}


def results(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


GIVEN = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}], "is_error": True}
SAID = {"type": "text", "text": "now"}
MESSAGES_REFUSED = [
    ([user(), used(), user()], "without tool_result"),
    ([user(), used(), results(SAID, GIVEN)], "begin the turn"),
    ([user(), used(), results(GIVEN, GIVEN)], "without tool_result"),
    ([user(), results(GIVEN)], "alternate"),
    ([user(" \n")], "more than blanks"),
    ([user(), used(), results({**GIVEN, "content": [{"type": "text", "text": ""}]})], "more than blanks"),
    ([user(), used(id="a:b"), results({**GIVEN, "tool_use_id": "a:b"})], "bad tool_use id"),
    ([user(), used(name=""), results(GIVEN)], "bad tool_use name"),
    ([user(), used(input="{}"), results(GIVEN)], "must be an object"),
    ([user(), used(), results(GIVEN), used(), results(GIVEN)], "must be unique"),
    ([user(), {"role": "assistant", "content": []}, user()], "must not be empty"),
    ([user(), used(cached=1), results(GIVEN)], "unknown field"),
    ([user(), {"role": "assistant", "content": [USE, {"type": "thinking", "thinking": "t", "signature": "s"}]},
      results(GIVEN)], "must come first"),
    ([used(), results(GIVEN)], "must begin with the user"),
    ([user(), {"role": "assistant", "content": [SAID]}], "must end with the user"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "why"), MESSAGES_REFUSED)
def test_strict_anthropic_messages(start: Start, messages: list[Any], why: str) -> None:
    base = start({"message": {"content": "a"}}, strict=True, repeat_last=True)
    version = {"anthropic-version": "2023-06-01"}
    right = [user(), used(), results(GIVEN, SAID)]
    good = post(f"{base}/messages", right, version, max_tokens=5, tools=[TOOL], tool_choice={"type": "none"})
    assert good.status_code == 200, good.text
    for headers, more in (
        (None, {"max_tokens": 5, "tools": [TOOL]}),
        (version, {"tools": [TOOL]}),
        (version, {"max_tokens": 5}),
    ):
        assert post(f"{base}/messages", right, headers, **more).status_code == 400
    answer = post(f"{base}/messages", messages, version, max_tokens=5, tools=[TOOL])
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert why in answer.json()["error"]["message"]
