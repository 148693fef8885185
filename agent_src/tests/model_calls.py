"""Calls as models really send them, and results as tools do: see model_replies.py."""

from collections.abc import Iterator

from reply_forms import ANSWERED, INVALID, MESSAGES, Case, calls

# Arguments that go back to the model as an error that says what is wrong.
ARGUMENTS = {
    "null": "null", "a list": "[1]",  # NousResearch/hermes-agent 58057
    "a text": '"a.md"', "a number": "7", "true": "true",
    "half of it": '{"path": "a',  # OpenHands/software-agent-sdk 2888, openai/openai-agents-python 2249
    "single quotes": "{'path': 'a.md'}",  # agno-agi/agno 8343
    "twice": '{"path": "a"}{"path": "a"}',  # NousResearch/hermes-agent 6841
    "an unquoted word": '{"path": listt_files"}',  # NousResearch/hermes-agent 83229
    "a raw line break": '{"path": "a\nb"}', "a comment": '{"path": "a"} // yes', "a code fence": '```json\n{}\n```',
    "NaN": '{"path": NaN}', "infinity": '{"path": -Infinity}', "a float beyond floats": '{"path": 1e999}',
    "an integer of 4,000 digits": '{"path": %s}' % ("9" * 4000),
    "a lone surrogate": '{"path": "\\ud800"}',  # NousResearch/hermes-agent 66822, 102757
    "100 levels": '{"path": ' + "[" * 100 + "]" * 100 + "}", "70 kB": '{"path": "%s"}' % ("x" * 70_000),
    "a wrong type": '{"path": 7}', "a missing one": "{}", "one too many": '{"path": "a", "mode": "w"}',
    "blanks": "  ", "nothing": "",  # NousResearch/hermes-agent 83937, charmbracelet/crush 2669
    "markup of a chat template": "<tool_call>read_file</tool_call>",
}  # fmt: skip
NAMES = {
    "unknown": "delete_file",  # openai/openai-agents-python 3459
    "empty": "",  # charmbracelet/crush 659
    "doubled": "read_fileread_file",  # NousResearch/hermes-agent 6841
    "blanks in it": "read file", "another alphabet": "читать", "very long": "x" * 500, "a lone surrogate": "read\ud800",
    "a path": "functions.read_file:0", "arguments before it": '{"path": "a"} | read_file',  # openai-agents-python 1196
    "a line break": "read_file\n", "a number": 7, "null": None, "a list": ["read_file"],
}  # fmt: skip


def bad_calls(wire: str) -> Iterator[Case]:
    """Calls that are not made."""
    for cause, arguments in ARGUMENTS.items():
        turn = calls(wire, {"name": "read_file", "arguments": arguments})
        yield Case(f"arguments: {cause}", wire, [turn], ANSWERED)
    for cause, name in NAMES.items():
        yield Case(f"name: {cause}", wire, [calls(wire, {"name": name})], ANSWERED)
    for count in (129, 10_000):
        yield Case(f"{count} calls at once", wire, [calls(wire, *[{}] * count)], (INVALID, "too_many_calls"))


def odd_calls(wire: str) -> Iterator[Case]:
    """Calls that are made, in a form that must not get back into the history."""
    ids = {"empty": "", "null": None, "a number": 7, "very long": "x" * 500, "blanks in it": "call 1",
           "as some models name them": "functions.list_files:0", "another alphabet": "вызов",
           "a lone surrogate": "c\ud800"}  # fmt: skip
    for cause, id_ in ids.items():
        yield Case(f"id: {cause}", wire, [calls(wire, {"id": id_})], ANSWERED)
    # charmbracelet/crush 3107, 3121, huggingface/smolagents 2768: the same id twice; or none, above
    yield Case("ids: the same in one reply", wire, [calls(wire, {"id": "dup"}, {"id": "dup"})], ANSWERED)
    yield Case("ids: the same in two replies", wire, [calls(wire, {"id": "dup"})] * 2, ANSWERED)
    odd = calls(wire, {"id": "a:b"}, {"id": "a_b"}, {"id": "a.b"})
    yield Case("ids: alike but for what is not allowed", wire, [odd], ANSWERED)
    yield Case("text beside the calls", wire, [calls(wire, {}, text="Let me look.")], ANSWERED)
    yield Case("blank text beside the calls", wire, [calls(wire, {}, text=" \n")], ANSWERED)
    mixed = calls(
        wire,
        {"name": "read_file", "arguments": "{"},
        {},
        {"name": "nope"},
        {"name": "read_file", "arguments": '{"path": "a"}'},
    )
    yield Case("good and bad calls at once", wire, [mixed], ANSWERED)
    yield Case(
        "the same bad call for ever",
        wire,
        [calls(wire, {"name": "nope"})] * 6,
        ("max_steps_reached", "max_steps_reached"),
    )
    stop = calls(wire, {})
    choice = stop["body"] if wire == MESSAGES else stop["body"]["choices"][0]
    choice |= {"stop_reason": "end_turn", "finish_reason": "stop"}
    yield Case("calls, and a finish reason that says it is over", wire, [stop], ANSWERED)
    yield Case(
        "arguments: an object in place of text",
        wire,
        [calls(wire, {"name": "read_file", "arguments": {"path": "a"}})],
        ANSWERED,
    )
    yield Case(
        "arguments: a list in place of text", wire, [calls(wire, {"name": "read_file", "arguments": ["a"]})], ANSWERED
    )


def results(wire: str) -> Iterator[Case]:
    """Tool results that must not spoil the next call."""
    texts = {"empty": "", "blank": "\n", "a lone surrogate": "a\ud800", "NUL": "a\0b",
             "markup of a chat template": "<|im_end|></tool_result>"}  # fmt: skip
    for cause, text in texts.items():
        yield Case(f"result: {cause}", wire, [calls(wire, {})], ANSWERED, result=text)
