"""Any result of a tool, and any schema: bounded text that is recorded, screened and sent; one error and no other."""

import contextlib
import json
from typing import Any

import mcp_types as types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from glasslab import tool_frames
from glasslab.arguments import ArgumentError
from glasslab.context import Call, Context
from glasslab.frames import canonical_json, sha256_hex, text_sha256
from glasslab.instructions import instructions_in
from glasslab.models import Reply, Request, ToolRequest
from glasslab.models import anthropic_wire as messages
from glasslab.models import openai_wire as chat
from glasslab.results import as_text
from glasslab.schemas import validate
from glasslab.scripted.strict import chat_problem, messages_problem
from glasslab.sensitive import secrets_in
from glasslab.tooltypes import ToolResult
from soak import examples

TOOL = {"type": "function", "function": {"name": "get", "description": "d", "parameters": {"type": "object"}}}
NOTE = 100  # bytes that the note of what was cut may take

letters = st.one_of(st.text(max_size=60), st.sampled_from(["\ud800", "\0", "\u202e", "é" * 90, "\x1b[2J", " ", ""]))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), letters),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(letters, inner, max_size=4)),
    max_leaves=12,
)
uris = st.sampled_from(["file:///a.md", "https://evil.example/?q=\u202e", "x:y"])
resource = st.one_of(
    st.fixed_dictionaries({"uri": uris, "text": letters}, optional={"mimeType": letters}),
    st.fixed_dictionaries({"uri": uris, "blob": letters}, optional={"mimeType": letters}),
)
block = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": letters}),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "audio"]), "mimeType": letters, "data": letters}),
    st.fixed_dictionaries({"type": st.just("resource_link"), "uri": uris, "name": letters}),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": resource}),
    json_values,
)
results = st.fixed_dictionaries(
    {"content": st.lists(block, max_size=5)},
    optional={"structuredContent": json_values, "isError": st.sampled_from([True, False, None, "yes"])},
)


def read(value: object) -> types.CallToolResult | None:
    """A result as the SDK reads it; None when it refuses it."""
    try:
        return types.CallToolResult.model_validate(value)
    except (ValidationError, RecursionError):
        return None


@given(value=st.one_of(results, json_values), limit=st.integers(0, 300))
@examples(80)
def test_any_result_is_bounded_text_that_is_recorded_screened_and_sent(value: object, limit: int) -> None:
    found = read(value)
    if found is None:
        return
    text = as_text(found, limit)
    assert len(text.encode()) <= limit + NOTE
    call, result = Call("c", "get", {}), ToolResult(text, bool(found.is_error))
    for frame in tool_frames.call_result(1, call, result):
        assert canonical_json(frame)
    assert instructions_in(text) is not None
    assert secrets_in(text, []) is not None
    context = Context("s", "q")
    context.add_reply(Reply(None, [ToolRequest("c", "get", "{}")], "tool_calls"), {"get": {"type": "object"}})
    context.add_result(call, f"[data]\n{text}", result.is_error, text)
    assert context.results["c"].sha256 == text_sha256(text) == sha256_hex(text.encode())
    request = Request(context.messages(), [TOOL])
    assert chat_problem(chat.body_of(request, None), {}) is None
    assert messages_problem(messages.body_of(request, "m", 1), {"anthropic-version": "x"}) is None


words = st.sampled_from(
    ["type", "properties", "required", "pattern", "enum", "maxLength", "$ref", "anyOf", "items", "a"]
)
keywords = st.recursive(
    st.one_of(json_values, st.sampled_from(["object", "string", "integer", "#", "#/$defs/a", "(a+)+$", ["a"]])),
    lambda inner: st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)


@given(arguments=st.dictionaries(letters, json_values, max_size=3), schema=st.dictionaries(words, keywords, max_size=5))
@examples(60)
def test_any_schema_takes_any_arguments_or_says_why_not(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    said = ""
    with contextlib.suppress(ArgumentError):  # the only error that may come
        try:
            validate(arguments, schema)
        except ArgumentError as error:
            said = str(error)
            raise
    assert len(said) < 1_000
    json.dumps(said, ensure_ascii=True)


@given(text=st.text(max_size=200), limit=st.integers(0, 60))
@examples(50)
def test_what_is_cut_says_of_how_much(text: str, limit: int) -> None:
    clean = text.encode("utf-8", "replace").decode()
    shown = as_text(types.CallToolResult(content=[types.TextContent(type="text", text=clean)]), limit)
    size = len(clean.encode())
    if size <= limit:
        assert shown == clean
    else:
        kept, _, note = shown.rpartition("\n[cut: ")
        assert clean.startswith(kept)
        assert note == f"{len(kept.encode())} of {size} bytes shown]"
