"""What models and their servers really send: one cause a case, on the wires on which it can come.

Names of public reports stand beside the cases that they tell of. `ANSWERED` cases go on: the next call has to be taken
by a server as strict as the strictest one in use.
"""

import json
from collections.abc import Iterator
from typing import Any

from model_calls import bad_calls, odd_calls, results
from reply_forms import ANSWERED, CHAT, INVALID, MESSAGES, REFUSED, UNREACHABLE, WIRES, Case, calls, said, whole


def cases() -> Iterator[Case]:
    """All of them."""
    for wire in WIRES:
        yield from http(wire)
        yield from bodies(wire)
        yield from replies(wire)
        yield from bad_calls(wire)
        yield from odd_calls(wire)
        yield from counts(wire)
        yield from results(wire)
        yield from streams(wire)
    yield from only_chat()
    yield from only_messages()


def http(wire: str) -> Iterator[Case]:
    """HTTP statuses and lost connections, with and without another attempt."""
    for status in (400, 401, 402, 403, 404, 408, 409, 413, 422, 429):
        yield Case(f"HTTP {status}", wire, [{"status": status, "body": {"error": {}}}], (REFUSED, f"http_{status}"))
    for status in (302, 500, 502, 503, 504, 529):
        yield Case(f"HTTP {status}", wire, [{"status": status, "body": "<html>"}], (UNREACHABLE, f"http_{status}"))
    again = {"model_retries": 1}
    for status in (408, 409, 429, 500, 503, 529):
        turn = [{"status": status, "headers": {"Retry-After": "0"}}, said(wire)]
        yield Case(f"HTTP {status}, then a reply", wire, [turn], ANSWERED, again)
    quota = {"status": 429, "headers": {"Retry-After": "86400"}}
    yield Case("a quota that is gone for a day", wire, [[quota, said(wire)]], (REFUSED, "http_429"), again)
    final = {"status": 429, "headers": {"x-should-retry": "false"}}
    yield Case("not to be tried again", wire, [[final, said(wire)]], (REFUSED, "http_429"), again)
    for fault in ("reset", "hang_up"):
        yield Case(f"connection {fault}", wire, [{"fault": fault}], (UNREACHABLE, "connection_failed"))
        yield Case(f"connection {fault}, then a reply", wire, [[{"fault": fault}, said(wire)]], ANSWERED, again)
    yield Case("half of a reply", wire, [{**said(wire), "fault": "cut"}], (UNREACHABLE, "connection_failed"))
    hasty = {"model_seconds": 0.4}
    yield Case("a reply that is late", wire, [said(wire, delay=0.8)], (UNREACHABLE, "timeout"), hasty)
    yield Case("a reply that drips", wire, [said(wire, drip=0.02)], (UNREACHABLE, "timeout"), hasty)


def bodies(wire: str) -> Iterator[Case]:
    """HTTP 200, and a body that is no reply."""
    nothing = "no_choices" if wire == CHAT else "no_content"
    texts = {"HTML": "<html>", "nothing": "", "half of its JSON": '{"choices": [{',
             "very deep JSON": "[" * 100_000, "an event stream unasked": "data: {}\n\n"}  # fmt: skip
    for cause, text in texts.items():
        yield Case(f"body: {cause}", wire, [{"status": 200, "body": text}], (INVALID, "not_json"))
    for cause, value in {"a list": [], "null": None, "a number": 7, "an empty object": {}}.items():
        yield Case(f"body: {cause}", wire, [{"status": 200, "body": json.dumps(value)}], (INVALID, nothing))
    large = {"status": 200, "body": "x" * 2_000_000}
    yield Case("body: larger than any reply", wire, [large], (INVALID, "not_readable"))
    packed = {"status": 200, "body": "x", "headers": {"Content-Encoding": "gzip"}}
    yield Case("body: compressed unasked", wire, [packed], (INVALID, "not_readable"))
    errors = {
        "without a code": {"message": "overloaded"},
        "as text": "overloaded",
        "with a code of its own": {"code": "x"},
    }
    for cause, error in errors.items():
        yield Case(
            f"HTTP 200 with an error {cause}", wire, [{"status": 200, "body": {"error": error}}], (INVALID, nothing)
        )
    limited = {"status": 200, "body": {"error": {"code": 429, "message": "slow down"}}}
    yield Case("HTTP 200 with an error 429", wire, [limited], (REFUSED, "http_429"))
    overloaded = {"status": 200, "body": {"type": "error", "error": {"type": "overloaded_error"}}}
    yield Case("HTTP 200 with an overload", wire, [overloaded], (UNREACHABLE, "http_529"))
    marked = {"status": 200, "body": "\ufeff" + json.dumps(said(wire)["body"])}
    yield Case("body: a byte order mark before it", wire, [marked], ANSWERED)


def replies(wire: str) -> Iterator[Case]:
    """Replies without calls."""
    for cause, text in {"empty": "", "blank": " \n\t", "null": None, "a number": 7}.items():
        yield Case(f"text: {cause}", wire, [said(wire, text)], (INVALID, "empty_reply"))
    # NousResearch/hermes-agent 107125, huggingface/smolagents 938: text is shown and never run, whatever it looks like
    for cause, text in {"JSON": '{"name": "list_files", "arguments": {}}', "prose": "Calling tools: [list_files({})]",
                        "markup": "<tool_call>{}</tool_call>"}.items():  # fmt: skip
        yield Case(f"text: a call written as {cause}", wire, [said(wire, text)], ANSWERED)
    yield Case("text: with a lone surrogate", wire, [said(wire, "so \udc9b it is")], ANSWERED)
    for cause, reason in {"null": None, "a number": 7, "unknown": "because", "very long": "x" * 10_000}.items():
        turn = whole(wire, [{"type": "text", "text": "a"}], {"content": "a"}, reason, reason)
        yield Case(f"finish reason: {cause}", wire, [turn], ANSWERED)
    some, given = [{"type": "text", "text": "The ans"}], {"content": "The ans"}
    yield Case("cut at the token limit", wire, [whole(wire, some, given, "max_tokens", "length")], (INVALID, "length"))
    refused = whole(wire, some, {**given, "refusal": "I will not."}, "refusal", "stop")
    yield Case("a refusal", wire, [refused], (REFUSED, "refusal"))
    # openai/openai-agents-python 2352: the text announces a step that never comes
    announced = whole(wire, some, given, "tool_use", "tool_calls")
    yield Case("calls announced, none there", wire, [announced], (INVALID, "calls_missing"))
    cut = calls(wire, {"arguments": '{"path": "a'})  # NousResearch/hermes-agent 7680: half of the arguments
    choice = cut["body"] if wire == MESSAGES else cut["body"]["choices"][0]
    choice |= {"stop_reason": "max_tokens", "finish_reason": "length"}
    yield Case("a call cut at the token limit", wire, [cut], (INVALID, "length"))


def counts(wire: str) -> Iterator[Case]:
    """Token counts that are none."""
    sent, got = ("prompt_tokens", "completion_tokens") if wire == CHAT else ("input_tokens", "output_tokens")
    odd: dict[str, Any] = {"missing": None, "empty": {}, "text": {sent: "9", got: "9"}, "negative": {sent: -1, got: -1},
                           "true": {sent: True, got: True}, "huge": {sent: 10**30, got: 10**30}, "a list": [1],
                           "half of them": {sent: 5}}  # fmt: skip
    for cause, usage in odd.items():
        yield Case(f"usage: {cause}", wire, [calls(wire, {}, usage=usage)], ANSWERED, {"max_total_tokens": 100_000})


def streams(wire: str) -> Iterator[Case]:
    """Streamed replies."""
    watched = {"watch": True}
    if wire == CHAT:
        good = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": %s}]}'
        part, end, error = good % "null", good % '"stop"', 'data: {"error": {"code": 502, "message": "gone"}}'
    else:
        block = '{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}'
        part, end = f"data: {block}", 'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}'
        error = 'data: {"type": "error", "error": {"type": "api_error", "message": "gone"}}'
    failed = "http_502" if wire == CHAT else "http_500"

    def stream(*lines: str, mark: str = "\n\n") -> list[dict[str, Any]]:
        return [{"status": 200, "headers": {"Content-Type": "text/event-stream"}, "body": mark.join([*lines, ""])}]

    yield Case("stream: whole", wire, stream(part, end), ANSWERED, watched)
    yield Case(
        "stream: comments and blank lines", wire, stream(": PROCESSING", part, "", "data:", end), ANSWERED, watched
    )
    long = [f": {'x' * 800_000}"] * 3
    yield Case("stream: longer than a reply, what it holds is not", wire, stream(part, *long, end), ANSWERED, watched)
    yield Case("stream: CRLF", wire, stream(part, end, mark="\r\n\r\n"), ANSWERED, watched)
    yield Case("stream: what is no event in it", wire, stream(part, "data: 7", "data: {}", end), ANSWERED, watched)
    yield Case("stream: not asked to, whole all the same", wire, [said(wire)], ANSWERED, watched)
    yield Case("stream: no end", wire, stream(part), (UNREACHABLE, "stream_cut"), watched)
    yield Case("stream: nothing", wire, stream(), (UNREACHABLE, "stream_cut"), watched)
    yield Case("stream: an error in the middle", wire, stream(part, error), (UNREACHABLE, failed), watched)
    yield Case("stream: a line that is not JSON", wire, stream(part, "data: {"), (INVALID, "not_json"), watched)
    again = {**watched, "model_retries": 1}
    yield Case("stream: no end, then a whole one", wire, [[*stream(part), *stream(part, end)]], ANSWERED, again)
    talk = {"message": {"content": "Let me look.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.md"}'}}]},
        "finish_reason": "tool_calls"}  # fmt: skip
    yield Case("stream: a call in pieces", wire, [talk, {"message": {"content": "a"}}], ANSWERED, watched)


def only_chat() -> Iterator[Case]:
    """What only chat completions have room for."""
    # openai/openai-agents-python 604, pydantic/pydantic-ai 7909: none at all, as a content filter leaves it
    for cause, value in {"none": [], "null": None, "a number in them": [7], "an object": {}}.items():
        yield Case(f"choices: {cause}", CHAT, [{"status": 200, "body": {"choices": value}}], (INVALID, "no_choices"))
    for cause, value in {"missing": {}, "null": {"message": None}, "a text": {"message": "a"}}.items():
        turn = {"status": 200, "body": {"choices": [value]}}
        yield Case(f"message: {cause}", CHAT, [turn], (INVALID, "no_message"))
    for cause, call in {"an empty object": {}, "null": None, "a text": "list_files", "no function": {"id": "c"},
                        "function null": {"id": "c", "function": None}}.items():  # fmt: skip
        turn = whole(CHAT, [], {"content": None, "tool_calls": [call]}, "", "tool_calls")
        yield Case(f"call: {cause}", CHAT, [turn], ANSWERED)
    double = calls(CHAT, {"name": "read_file", "arguments": '{"path": "a", "path": "b"}'})
    yield Case("arguments: a key twice", CHAT, [double], ANSWERED)
    parts = [{"type": "text", "text": "The "}, {"type": "odd"}, 7, {"type": "text", "text": "answer."}]
    yield Case("text in parts", CHAT, [said(CHAT, parts)], ANSWERED)
    yield Case("parts without text", CHAT, [said(CHAT, [{"type": "odd"}])], (INVALID, "empty_reply"))
    legacy = whole(
        CHAT, [], {"content": None, "function_call": {"name": "list_files", "arguments": "{}"}}, "", "function_call"
    )
    yield Case("a call in the form before tools", CHAT, [legacy], (INVALID, "empty_reply"))
    for finish, end in {"content_filter": (REFUSED, "content_filter"), "error": (UNREACHABLE, "broken_off")}.items():
        turn = whole(CHAT, [], {"content": "The"}, "", finish)
        yield Case(f"finish reason: {finish}", CHAT, [turn], end)
    kept = calls(CHAT, {})
    kept["body"]["choices"][0]["message"]["reasoning_details"] = [{"type": "reasoning.encrypted", "data": "\ud800"}]
    yield Case("reasoning that has to go back", CHAT, [kept], ANSWERED)


def only_messages() -> Iterator[Case]:
    """What only Anthropic Messages have room for."""
    text, use = {"type": "text", "text": "a"}, {"type": "tool_use", "id": "c1", "name": "list_files", "input": {}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    ends: dict[str, tuple[str, str | None]] = {
        "end_turn": ANSWERED, "stop_sequence": ANSWERED, "pause_turn": (INVALID, "paused"),
        "model_context_window_exceeded": (INVALID, "context_window"),
    }  # fmt: skip
    for reason, end in ends.items():
        yield Case(f"stop reason: {reason}", MESSAGES, [whole(MESSAGES, [text], {}, reason, "")], end)
    blocks: dict[str, tuple[Any, tuple[str, str | None]]] = {
        "none": ([], (INVALID, "empty_reply")), "a text in place of blocks": ("a", (INVALID, "no_content")),
        "null": (None, (INVALID, "no_content")), "only thinking": ([thought], (INVALID, "empty_reply")),
        "a tool of the provider's": ([{"type": "server_tool_use", "id": "s"}], (INVALID, "empty_reply")),
        "junk among them": ([7, None, "x", {}, {"type": "text"}, text], ANSWERED),
        "several texts": ([text, {"type": "odd"}, text], ANSWERED),
    }  # fmt: skip
    for cause, (content, end) in blocks.items():
        yield Case(f"blocks: {cause}", MESSAGES, [whole(MESSAGES, content, {}, "end_turn", "")], end)
    for cause, content in {"thinking before a call": [thought, text, use], "text after a call": [use, text],
                           "hidden thinking": [{"type": "redacted_thinking", "data": "x"}, use]}.items():  # fmt: skip
        yield Case(f"blocks: {cause}", MESSAGES, [whole(MESSAGES, content, {}, "tool_use", "")], ANSWERED)
    bare = whole(MESSAGES, [{"type": "tool_use"}], {}, "tool_use", "")
    yield Case("blocks: a call of nothing", MESSAGES, [bare], ANSWERED)
