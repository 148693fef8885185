"""The loop against what models really send: none ends unrecorded, none leaves a history that would be refused."""

import json
from typing import Any

import pytest

from agent_bench import Bench
from agent_lab import API_KEY
from glasslab.models import retries
from glasslab.statuses import EXIT_CODES
from glasslab.tooltypes import ToolResult
from model_replies import cases
from reply_forms import CHAT, WIRES, Case, said

CASES = list(cases())


def play(bench: Bench, case: Case, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a question to a model that sends the case's reply first, and answers then."""
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.01)
    settings = dict(case.settings)
    seconds = settings.pop("model_seconds", 20.0)
    watch = (lambda text: None) if settings.pop("watch", False) else None
    if case.result is not None:
        bench.tools.answer = lambda name, arguments: ToolResult(str(case.result), False)
    return bench.run(
        *case.turns, said(case.wire), strict=True, watch=watch, patience=seconds, model_provider=case.wire, **settings
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_reply(bench: Bench, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    outcome = play(bench, case, monkeypatch)
    status, reason = case.end
    assert outcome.status == status, outcome.problem
    assert (outcome.answer is None) == (status != "answered")
    assert "refused as a real one would" not in str(outcome.problem)
    final, end = bench.hec.events("agent.final"), bench.hec.events("session.end")
    assert [event["status"] for event in (*final, *end)] == [status, status]
    assert [event.get("reason") for event in (*final, *end)] == [reason, reason]
    assert bench.hec.kinds[-1][-2:] == ["agent.final", "session.end"]
    json.dumps(bench.last_request(), ensure_ascii=False, allow_nan=False).encode()
    assert API_KEY.encode() not in b"".join(bench.hec.bodies)
    if status != "answered":
        assert EXIT_CODES[status] in (3, 6)
        assert outcome.problem is not None
        assert "; " in outcome.problem
        assert "\n" not in outcome.problem


@pytest.mark.parametrize(("cause", "name"), [
    ("blocks: thinking before a call", "thinking"), ("reasoning that has to go back", "reasoning_details"),
])  # fmt: skip
def test_reasoning_that_the_provider_wants_back_stays_in_the_history(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cause: str, name: str
) -> None:
    case = next(case for case in CASES if case.cause == cause)
    assert play(bench, case, monkeypatch).status == "answered"
    kept = bench.last_request()[2][name]
    assert [item["type"] for item in kept] == ["thinking" if name == "thinking" else "reasoning.encrypted"]


def test_there_are_enough_of_them() -> None:
    """As many causes and replies as the project promises, both APIs, and no cause counted twice."""
    names = [str(case) for case in CASES]
    assert len(set(names)) == len(names)
    assert len(CASES) >= 300
    assert len({case.cause for case in CASES}) >= 150
    for wire in WIRES:
        assert sum(case.wire == wire for case in CASES) >= 120


def test_strictness_is_what_finds_a_spoilt_history(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table would say nothing if a history that is not repaired passed: sent as it came, it is refused."""
    monkeypatch.setattr("glasslab.context.Context._unique", lambda self, sent: sent)
    case = next(case for case in CASES if case.cause == "ids: the same in one reply" and case.wire == CHAT)
    outcome = play(bench, case, monkeypatch)
    assert "refused as a real one would" in str(outcome.problem)
