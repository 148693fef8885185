"""Any JSON at all as a reply: it is read or it is refused, and whatever is read leaves a history that is accepted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasslab.context import Context
from glasslab.models import Reply, Request
from glasslab.models import anthropic_wire as messages
from glasslab.models import openai_wire as chat
from glasslab.models.replies import Unusable
from glasslab.models.usage import estimated
from glasslab.scripted.strict import chat_problem, messages_problem
from soak import examples

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "d", "parameters": SCHEMA}}
HEADERS = {"anthropic-version": "x"}

texts = st.one_of(
    st.text(max_size=40), st.text(st.characters(), max_size=5), st.sampled_from(["\ud800", "", " ", "\0"])
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
json_values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
anything = st.one_of(json_values, st.sampled_from(["read_file", "list_files", "stop", "tool_use", "{}", "c1"]))


def fields(required: dict[str, Any] | None = None, **optional: Any) -> Any:
    """A mapping with these fields, those by name only sometimes."""
    return st.fixed_dictionaries(required or {}, optional=optional)


arguments = st.one_of(anything, st.just('{"path": "a.md"}'), json_values.map(json.dumps))
call = st.one_of(anything, fields(id=anything, function=fields(name=anything, arguments=arguments)))
chat_message = fields(content=anything, refusal=st.none(), tool_calls=st.lists(call, max_size=4))
choices = st.lists(fields({"message": chat_message}, finish_reason=anything), max_size=2)
chat_bodies = fields({"choices": choices}, usage=anything)
block = st.one_of(
    anything,
    fields({"type": st.just("text"), "text": texts}),
    fields({"type": st.just("tool_use")}, id=anything, name=anything, input=arguments),
)
message_bodies = fields({"content": st.lists(block, max_size=5)}, stop_reason=anything, usage=anything)
event_names = ["type", "delta", "index", "content_block", "message", "usage", "error"]
events = st.one_of(
    st.dictionaries(st.sampled_from(event_names), anything),
    fields({"choices": st.lists(fields({"delta": chat_message}, finish_reason=anything), max_size=2)}),
    fields(
        {"type": st.sampled_from(["content_block_start", "content_block_delta", "message_delta"])},
        index=st.integers(0, 2),
        content_block=block,
        delta=anything,
    ),
)


def read(wire: Any, body: object) -> Reply | None:
    """The reply in a body, as it arrives: written as JSON and read back. None when it cannot be used."""
    try:
        return wire.reply_of(json.loads(json.dumps(body)), 0.0)
    except Unusable:
        return None


@pytest.mark.parametrize("wire", [chat, messages])
@given(body=json_values)
@examples(150)
def test_any_value_is_no_reply_or_one_that_says_something(wire: Any, body: object) -> None:
    reply = read(wire, body)
    assert reply is None or reply.content or reply.tool_requests


@given(bodies=st.lists(chat_bodies, min_size=1, max_size=3), results=st.lists(texts, min_size=1, max_size=4))
@examples(300)
def test_after_any_completions_the_next_call_is_accepted(bodies: list[Any], results: list[str]) -> None:
    check_history(chat, bodies, results)


@given(bodies=st.lists(message_bodies, min_size=1, max_size=3), results=st.lists(texts, min_size=1, max_size=4))
@examples(300)
def test_after_any_messages_the_next_call_is_accepted(bodies: list[Any], results: list[str]) -> None:
    check_history(messages, bodies, results)


def check_history(wire: Any, bodies: list[Any], results: list[str]) -> None:
    context = Context("Be brief.", "q")
    for body in bodies:
        reply = read(wire, body)
        if reply is None or not reply.tool_requests:
            continue
        for number, made in enumerate(context.add_reply(reply, {"read_file": SCHEMA})):
            text = made.error if made.error is not None else results[number % len(results)]
            context.add_result(made, text, made.error is not None)
    request = Request(context.messages(), [TOOL])
    assert chat_problem(chat.body_of(request, None), {}) is None
    assert messages_problem(messages.body_of(request, "m", 1), HEADERS) is None
    counted = estimated(Reply("x", [], "stop"), request).usage
    assert counted.prompt is not None
    assert counted.prompt > 0


@pytest.mark.parametrize("assembler", [chat.Chunks, messages.Events])
@given(sent=st.lists(events, max_size=6))
@examples(200)
def test_any_events_of_a_stream_make_a_reply_that_can_be_read_or_none(assembler: Any, sent: list[Any]) -> None:
    made = assembler()
    for event in sent:
        assert isinstance(made.add(json.loads(json.dumps(event))), str)
    body = made.body()
    if body is not None:
        read(chat if assembler is chat.Chunks else messages, body)
