"""The loop's approvals: who is asked, what is on record before anything runs, and that what runs is what was shown."""

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_bench import ANSWER, Bench
from agent_lab import LIST, READ, StubTools, make_agent, make_settings, model_for, never, stub_lock, turn
from glasslab.approvals import REFUSALS, Asked, Verdict
from glasslab.desk import described
from glasslab.frames import canonical_json
from glasslab.models import Stopped
from glasslab.statuses import EXIT_CODES
from glasslab.tooltypes import ToolResult

SEND: dict[str, Any] = {
    "name": "send_message",
    "description": "Send a message.",
    "inputSchema": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "body": {"type": "string"}},
        "required": ["to", "body"],
    },
}
ARGUMENTS = {"to": "ap@lab.example", "body": "Gr\u00fc\u00dfe, 1e3 & <b> \u2028"}
CALL = turn(("send_message", json.dumps(ARGUMENTS)))
CLASSES = {"tool_classes": "stub/read_file=read, stub/send_message=send"}


class Decides:
    """A person who decides as told, and keeps what was asked."""

    def __init__(self, verdict: Verdict | Exception, meanwhile: Callable[[Asked], object] | None = None) -> None:
        self.caller, self.asked = 1234, list[Asked]()
        self._verdict, self._meanwhile = verdict, meanwhile

    def decide(self, asked: Asked, stop: threading.Event) -> Verdict:
        self.asked.append(asked)
        if self._meanwhile is not None:
            self._meanwhile(asked)
        if isinstance(self._verdict, Exception):
            raise self._verdict
        return self._verdict


@pytest.fixture
def office(bench: Bench) -> Bench:
    bench.tools = StubTools([LIST, READ, SEND])
    return bench


def ask(office: Bench, person: Decides | None, *turns: dict[str, Any], **settings: Any) -> Any:
    office.model.play({"turns": list(turns or (CALL, ANSWER)), "strict": True})
    made = make_settings(office.hec, office.ca, office.model.url, **(CLASSES | settings))
    agent = make_agent(made, lambda: office.tools, stub_lock(office.tools), model_for(made, 5))
    try:
        return agent.ask("Please write to them.", never(), person=person)
    finally:
        agent.close()


def decision(office: Bench) -> dict[str, Any]:
    (found,) = office.hec.events("approval.decision")
    return dict(found)


def test_what_was_approved_runs_byte_for_byte_as_shown(office: Bench) -> None:
    person, before = Decides(Verdict(True, "service", 77)), time.time()
    assert ask(office, person).status == "answered"
    (asked,) = person.asked
    assert json.loads(asked.shown) == {"arguments": ARGUMENTS, "server": "stub", "tool": "send_message"}
    assert asked.sha256 == hashlib.sha256(asked.shown).hexdigest()
    ((tool, arguments, _),) = office.tools.calls
    ran = canonical_json({"arguments": arguments, "server": "stub", "tool": tool})
    assert ran == asked.shown
    request, found = office.hec.events("approval.request")[0], decision(office)
    assert request["sha256"] == found["sha256"] == asked.sha256
    assert (request["arguments"], request["class"], request["caller"]) == (ARGUMENTS, "send", 1234)
    assert (found["decision"], found["how"], found["by"], found["approval_id"]) == ("approved", "service", 77, asked.id)
    assert found["decided_at"] >= before - 1
    assert office.hec.events("mcp.call_tool.request")[0]["arguments"] == ARGUMENTS


def test_a_clock_that_is_set_meanwhile_changes_no_waiting(office: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(2e9, -86_400)  # a day back at each look
    monkeypatch.setattr(time, "time", lambda: next(clock))
    person = Decides(Verdict(True, "service", 77))
    assert ask(office, person).status == "answered"
    assert 0 <= decision(office)["waited_seconds"] < 60
    assert 0 < described(person.asked[0])["seconds_left"] <= person.asked[0].seconds
    times = [float(line.split(b",")[0][8:]) for body in office.hec.bodies for line in body.splitlines()]
    assert times == sorted(set(times)), "the order of the record does not turn round with the clock"


def test_the_call_that_runs_is_the_one_that_was_shown_even_if_the_history_changes_meanwhile(
    office: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glasslab.approvals import Gate

    calls = []
    passed = Gate.passed

    def keep(gate: Gate, call: Any, *rest: Any) -> Any:
        calls.append(call)
        return passed(gate, call, *rest)

    monkeypatch.setattr(Gate, "passed", keep)
    person = Decides(Verdict(True, "terminal", 0), lambda asked: calls[-1].arguments.update(to="thief@evil.example"))
    ask(office, person)
    assert office.tools.calls[0][1] == ARGUMENTS


def test_each_step_is_on_record_before_the_next(office: Bench) -> None:
    """The request before a person is asked; the decision before the call."""
    seen = []

    def look(*_: object) -> ToolResult:
        seen.append([event["kind"] for post in office.hec.posts for event in post][-1])
        return ToolResult("sent", False)

    office.tools.answer = look
    ask(office, Decides(Verdict(True, "terminal", 0), look))
    assert seen == ["approval.request", "mcp.call_tool.request"]
    posts = [[event["kind"] for event in post] for post in office.hec.posts]
    assert ["approval.decision", "mcp.call_tool.request"] in posts


@pytest.mark.parametrize("commit", ["approval.request", "approval.decision"])
def test_no_log_no_question_and_no_call(office: Bench, commit: str) -> None:
    ask(office, Decides(Verdict(True, "terminal", 0)))
    number = next(n for n, post in enumerate(office.hec.posts, 1) if commit in [event["kind"] for event in post])
    office.hec.reset(number, "busy")
    office.tools.calls.clear()
    person = Decides(Verdict(True, "terminal", 0))
    outcome = ask(office, person)
    assert EXIT_CODES[outcome.status] == 4
    assert (len(person.asked), office.tools.calls) == (0 if commit == "approval.request" else 1, [])


@pytest.mark.parametrize("how", sorted(REFUSALS))
def test_a_denial_goes_back_to_the_model_and_nothing_runs(office: Bench, how: str) -> None:
    outcome = ask(office, Decides(Verdict(False, how, 7, "not to \u202ethem")))
    assert (outcome.status, office.tools.calls) == ("answered", [])
    told = office.last_request()[-1]
    assert told["role"] == "tool"
    assert REFUSALS[how] in told["content"]
    assert "not to" in told["content"]
    found = decision(office)
    assert (found["decision"], found["how"], found["by"]) == ("denied", how, 7)
    refused = office.hec.events("agent.call_refused")[0]
    assert refused["reason"] == f"approval_{how}"
    assert office.hec.events("toolcall")[0]["refused"] is True
    assert office.hec.events("mcp.call_tool.request") == []


def test_without_anybody_what_acts_is_denied_and_what_reads_runs(office: Bench) -> None:
    both = turn(("read_file", '{"path": "a.md"}'), ("send_message", json.dumps(ARGUMENTS)))
    assert ask(office, None, both, ANSWER).status == "answered"
    assert [call[0] for call in office.tools.calls] == ["read_file"]
    assert (decision(office)["how"], decision(office)["by"]) == ("nobody", None)


def test_a_tool_without_a_class_waits_whatever_its_server_says(office: Bench) -> None:
    office.tools = StubTools([{**LIST, "annotations": {"readOnlyHint": True}}])
    ask(office, None, turn(("list_files", "{}")), ANSWER, tool_classes="")
    assert office.tools.calls == []
    assert office.hec.events("approval.request")[0]["class"] == "publish"


def test_approve_everything_asks_even_for_reads(office: Bench) -> None:
    person = Decides(Verdict(True, "terminal", 0))
    ask(office, person, turn(("read_file", '{"path": "a.md"}')), ANSWER, approvals="everything")
    assert [asked.tool for asked in person.asked] == ["read_file"]
    assert "APPROVALS=everything" in person.asked[0].reason


def test_a_rule_denies_before_anybody_is_asked(office: Bench, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('{"rules": [{"tool": "stub/send_message", "only": {"to": ["*@bank.example"]}, "why": "no"}]}')
    person = Decides(Verdict(True, "terminal", 0))
    ask(office, person, approval_rules=file)
    assert (person.asked, office.tools.calls, office.hec.events("approval.request")) == ([], [], [])
    assert (decision(office)["how"], decision(office)["approval_id"], decision(office)["why"]) == ("rule", None, "no")


def test_a_person_is_waited_for_no_longer_than_the_question_may_take(office: Bench) -> None:
    person = Decides(Verdict(False, "timeout"))
    ask(office, person, approval_seconds=90, max_seconds=20)
    assert 0 < person.asked[0].seconds <= 20
    ask(office, person, approval_seconds=90)
    assert person.asked[1].seconds == 90


def test_a_cancelled_wait_is_a_recorded_end(office: Bench) -> None:
    outcome = ask(office, Decides(Stopped()))
    assert (outcome.status, office.tools.calls) == ("cancelled", [])
    assert office.hec.events("session.end")[0]["status"] == "cancelled"


def test_in_summary_mode_the_decision_is_on_record_too(office: Bench) -> None:
    ask(office, Decides(Verdict(True, "service", 5)), lab_trace="summary")
    kinds = [event["kind"] for post in office.hec.posts for event in post]
    assert kinds.index("approval.request") < kinds.index("approval.decision") < kinds.index("toolcall")
