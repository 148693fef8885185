"""Any history, any limit, any summary: what is sent fits or is said not to, and no call loses its result."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from glasslab.context import Context, tokens_of
from glasslab.continuing import unpaired
from glasslab.fitting import Reduction, fit
from glasslab.frames import sha256_hex
from glasslab.models import Message, ModelError, Reply, Request, ToolRequest
from glasslab.models import anthropic_wire as messages
from glasslab.models import openai_wire as chat
from glasslab.scripted.strict import chat_problem, messages_problem
from glasslab.summaries import PARTS
from soak import examples

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "d", "parameters": SCHEMA}}
THOUGHT = {"thinking": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}

letters = st.sampled_from(["x", "é", "\x01", '"', "\n", "\ud800", "a b ", "漢"])
texts = st.builds(lambda letter, number: letter * number, letters, st.integers(0, 4_000))
calls = st.builds(
    ToolRequest,
    st.sampled_from(["c1", "c2", "", "c 1", "ü"]),
    st.sampled_from(["read_file", "nope", "", "bad name"]),
    st.sampled_from(["{}", "", '{"path": "a.md"}', "{", '{"path": 7}', '{"path": "%s"}' % ("long" * 200)]),
)
rounds = st.builds(
    Reply,
    st.one_of(st.none(), texts),
    st.lists(calls, min_size=1, max_size=4),
    st.just("tool_calls"),
    carry=st.sampled_from([{}, THOUGHT]),
)
summaries = st.one_of(
    st.none(),
    st.builds(lambda text: Reply("\n".join(f"{part}\n{text}" for part in PARTS), [], "stop"), texts),
    st.builds(lambda text: Reply(text, [], "stop"), texts),
    st.just(Reply(None, [ToolRequest("c", "read_file", "{}")], "tool_calls")),
)
earlier: Any = st.sampled_from(
    [
        [],
        [{"role": "user", "content": "before"}, {"role": "assistant", "content": "It was so."}],
        [
            {"role": "user", "content": "before"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "long " * 900},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
        ],
    ]
)


@dataclass
class Play:
    """A conversation as it is held, and what is told about it."""

    context: Context
    changes: list[Reduction] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)

    def ask(self, replies: list[Reply | None]) -> Any:
        def ask(request: Request) -> Reply:
            self.asked.append(request)
            reply = replies[len(self.asked) % len(replies)]
            if reply is None:
                raise ModelError("model_unreachable", "timeout", "late")
            return reply

        return ask

    def add(self, reply: Reply, results: list[str]) -> None:
        for number, call in enumerate(self.context.add_reply(reply, {"read_file": SCHEMA})):
            text = call.error if call.error is not None else results[number % len(results)]
            self.held[call.id] = text
            self.context.add_result(call, f"[data]\n{text}", call.error is not None, text)


def accepted(sent: list[Message]) -> None:
    request = Request(sent, [TOOL])
    assert unpaired(sent) is None
    assert chat_problem(chat.body_of(request, None), {}) is None
    assert messages_problem(messages.body_of(request, "m", 1), {"anthropic-version": "x"}) is None


@given(
    before=earlier,
    replies=st.lists(rounds, max_size=6),
    results=st.lists(texts, min_size=1, max_size=4),
    limit=st.integers(200, 6_000),
    summed=st.lists(summaries, min_size=1, max_size=3),
    by_model=st.booleans(),
)
@examples(100)
def test_any_history_is_made_to_fit_and_stays_one_that_is_accepted(
    before: Any, replies: list[Reply], results: list[str], limit: int, summed: Any, by_model: bool
) -> None:
    play = Play(Context("Be brief.", "What was it?", limit, before))
    for reply in (None, *replies):
        if reply is not None:
            play.add(reply, results)
        context, newest = play.context, list(play.context.messages())[play.context.newest :]
        size = context.tokens
        changes = list(fit(context, play.ask(summed) if by_model else None))
        play.changes += changes
        sent = list(context.messages())
        accepted(sent)
        assert sent[0]["content"] == "Be brief."
        assert sum(message.get("content") == "What was it?" for message in sent) == 1
        if size <= limit:
            assert changes == []
            assert [m["role"] for m in sent[context.newest :]] == [m["role"] for m in newest]
        # The newest round is there whole but for the middle of its results; where it still does not fit, all else went.
        assert [m for m in sent[context.newest :] if m["role"] != "tool"] == [m for m in newest if m["role"] != "tool"]
        assert [m.get("tool_call_id") for m in sent[context.newest :]] == [m.get("tool_call_id") for m in newest]
        check_changes(changes, size, context, play.held)
    for request in play.asked:
        assert chat_problem(chat.body_of(request, None), {}) is None
        assert request.tools == []
        assert tokens_of(request.messages) <= limit * 3 // 4


def check_changes(changes: list[Reduction], size: int, context: Context, held: dict[str, str]) -> None:
    """Each begins where the one before ended, shrinks, and names what it took by its hash."""
    for change in changes:
        assert change.before == size
        assert change.after < size or change.how == "none"
        size = change.after
        for item in change.replaced:
            if item["tool_call_id"] in held:
                whole = held[item["tool_call_id"]].encode("utf-8", "backslashreplace")
                assert item["sha256"] == sha256_hex(whole)
    assert size == context.tokens
    order = ["stub", "none", "summary", "list", "trim"]
    assert [order.index(change.how) for change in changes] == sorted(order.index(change.how) for change in changes)


def test_a_summary_that_saves_too_little_is_not_taken() -> None:
    context = Context("s", "q", 1_000)
    play = Play(context)
    for _ in range(12):
        play.add(Reply("w " * 100, [ToolRequest("c", "read_file", "{}")], "tool_calls"), ["x" * 300])
    wordy = Reply("DECISIONS\nOPEN PROBLEMS\nFILES\n" + "y" * 3_000, [], "stop")
    changes = list(fit(context, play.ask([wordy])))
    assert [(change.how, change.reason) for change in changes] == [("stub", None), ("list", "too_large")]
    assert len(play.asked) == 1
    assert context.tokens < 1_000
    play.add(Reply("w " * 900, [ToolRequest("c", "read_file", "{}")], "tool_calls"), ["x" * 300])
    list(fit(context, play.ask([wordy])))
    assert len(play.asked) == 1  # once in a session is enough


def test_the_newest_results_share_the_room_and_small_ones_stay_whole() -> None:
    context = Context("s", "q", 1_000)
    three = [ToolRequest(name, "read_file", "{}") for name in ("a", "b", "c")]
    Play(context).add(Reply(None, three, "tool_calls"), ["small", "B" * 9_000, "C" * 9_000])
    (change,) = fit(context)
    assert change.how == "trim"
    assert [item["tool_call_id"] for item in change.replaced] == ["b", "c"]
    small, b, c = (str(m["content"]) for m in context.messages()[-3:])
    assert small == "[data]\nsmall"
    assert abs(len(b) - len(c)) < 10
    assert b.startswith("[data]\nBBB")
    assert b.endswith("BBB")
    assert "characters were left out here by the lab" in b
    assert sha256_hex(b"B" * 9_000) in b
    assert 900 < context.tokens <= 1_000


def test_a_question_that_fills_the_limit_alone_leaves_no_room_to_ask_for_a_summary() -> None:
    context = Context("s", "q" * 2_400, 1_000)
    play = Play(context)
    for _ in range(8):
        play.add(Reply("w " * 40, [ToolRequest("c", "read_file", "{}")], "tool_calls"), ["x" * 20])
    changes = list(fit(context, play.ask([Reply("late", [], "stop")])))
    assert [(change.how, change.reason) for change in changes] == [("list", "no_room")]
    assert play.asked == []
    assert context.tokens <= 1_000
