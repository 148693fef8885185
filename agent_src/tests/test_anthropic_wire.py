"""The conversation in Anthropic's form: results first in the user's turn, errors marked, nothing it would refuse."""

from typing import Any

import pytest

from glasslab.models import Message, Request
from glasslab.models.anthropic_wire import body_of, turns
from glasslab.models.openai_wire import body_of as chat_body_of

SYSTEM: Message = {"role": "system", "content": "Be brief."}
USER: Message = {"role": "user", "content": "q"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "read_file", "description": "d", "parameters": {"type": "object"}},
}


def asks(*ids: str, content: str | None = None, **more: Any) -> Message:
    calls = [{"id": id_, "type": "function", "function": {"name": "read_file", "arguments": '{"n": 1}'}} for id_ in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


def result(id_: str, content: str = "x", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": id_, "content": content, **more}


def use(id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "read_file", "input": {"n": 1}}


def given(id_: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": [{"type": "text", "text": text}], **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_the_whole_body() -> None:
    body = body_of(Request([SYSTEM, USER], [TOOL]), "claude", 99)
    assert body == {
        "model": "claude",
        "max_tokens": 99,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [text("q")]}],
        "tools": [{"name": "read_file", "description": "d", "input_schema": {"type": "object"}}],
    }


def test_results_are_one_user_turn_and_errors_are_marked() -> None:
    messages = [USER, asks("a", "b", content="Let me look."), result("a"), result("b", "Error: no", is_error=True)]
    assert turns(messages)[1:] == [
        {"role": "assistant", "content": [text("Let me look."), use("a"), use("b")]},
        {"role": "user", "content": [given("a"), given("b", "Error: no", is_error=True)]},
    ]


def test_a_word_of_the_user_comes_after_the_results() -> None:
    turn = turns([USER, asks("a"), result("a"), {"role": "user", "content": "Answer now."}])[-1]
    assert turn == {"role": "user", "content": [given("a"), text("Answer now.")]}


def test_blank_texts_are_left_out() -> None:
    assert turns([USER, asks("a", content=" \n"), result("a", "")])[1:] == [
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]
    assert "system" not in body_of(Request([{**SYSTEM, "content": " "}, USER], []), "m", 1)


def test_ids_that_it_refuses_are_changed_the_same_way_each_time_and_stay_apart() -> None:
    messages = [USER, asks("f:0", "f_0", "f.0"), result("f:0"), result("f_0"), result("f.0")]
    _, assistant, user = turns(messages)
    made = [block["id"] for block in assistant["content"]]
    assert made == [block["tool_use_id"] for block in user["content"]]
    assert len(set(made)) == 3
    assert made[0] == "f_0"
    assert turns(messages) == turns(messages)


def test_what_was_thought_goes_back_before_the_calls() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assistant = turns([USER, asks("a", content="t", thinking=[thought]), result("a")])[1]
    assert assistant["content"] == [thought, text("t"), use("a")]


def test_no_more_calls_are_asked_for_with_the_tools_still_defined() -> None:
    request = Request([USER], [TOOL], answer_only=True)
    assert body_of(request, "m", 1)["tool_choice"] == {"type": "none"}
    assert chat_body_of(request, None)["tool_choice"] == "none"
    for body in (body_of(request, "m", 1), chat_body_of(request, None)):
        assert len(body["tools"]) == 1
    bare = Request([USER], [], answer_only=True)
    assert not {"tools", "tool_choice"} & (body_of(bare, "m", 1).keys() | chat_body_of(bare, None).keys())


@pytest.mark.parametrize("name", ["is_error", "thinking"])
def test_chat_completions_get_nothing_that_they_do_not_know(name: str) -> None:
    sent = chat_body_of(Request([USER, {**USER, name: True}], []), 7)
    assert sent == {"messages": [USER, USER], "max_completion_tokens": 7}
