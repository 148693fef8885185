"""The loop on a bench: a scripted model, stub tools, a log that can be looked into."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_lab import (
    API_KEY,
    QUESTION,
    ScriptedModel,
    StubTools,
    make_agent,
    make_settings,
    model_for,
    never,
    stub_lock,
    turn,
)
from faulty_hec import FaultyHec
from glasslab import pins
from glasslab.agent import Outcome
from tool_servers import eventually

ANSWER = turn(content="The answer.")


class Bench:
    """Runs a script against stub tools."""

    def __init__(self, hec: FaultyHec, ca: Path, model: ScriptedModel) -> None:
        self.hec, self.ca, self.model = hec, ca, model
        self.tools = StubTools()
        self.requests = 0

    def run(
        self,
        *turns: dict[str, Any],
        lock: pins.Lock | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Outcome:
        flags = {name: settings.pop(name) for name in ("repeat_last", "strict", "when") if name in settings}
        self.model.play({"turns": list(turns), **flags})
        outcome = self.run_on(self.model.url, lock, stop, **settings)
        self.requests = self.model.requests
        return outcome

    def run_on(
        self,
        url: str,
        lock: pins.Lock | None = None,
        stop: threading.Event | None = None,
        watch: Callable[[str], None] | None = None,
        patience: float = 1.0,
        question: str = QUESTION,
        **settings: Any,
    ) -> Outcome:
        made = make_settings(self.hec, self.ca, url, **settings)
        model = model_for(made, seconds=patience)
        agent = make_agent(made, lambda: self.tools, stub_lock(self.tools) if lock is None else lock, model)
        try:
            return agent.ask(question, stop or never(), watch)
        finally:
            agent.close()

    def ask(self, question: str, **settings: Any) -> Outcome:
        """Ask another question than QUESTION, of the script that is being played."""
        return self.run_on(self.model.url, question=question, **settings)

    def last_request(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.hec.events("llm.request")[-1]["messages"]
        return messages


def stop_once(bench: Bench, kind: str) -> threading.Event:
    """What cancels a session once a frame of this kind is on record."""
    stop = threading.Event()

    def watch() -> None:
        if eventually(lambda: bench.hec.events(kind), 60):
            stop.set()

    threading.Thread(target=watch, daemon=True).start()
    return stop


def assert_recorded(bench: Bench, outcome: Outcome, status: str, reason: str | None) -> None:
    assert (outcome.status, outcome.answer) == (status, None)
    final, end = bench.hec.events("agent.final"), bench.hec.events("session.end")
    assert [len(final), len(end)] == [1, 1]
    assert (final[0]["status"], end[0]["status"]) == (status, status)
    assert (final[0]["reason"], end[0]["reason"]) == (reason, reason)
    assert final[0]["detail"] == outcome.problem
    assert end[0]["answer_sha256"] is None
    assert bench.hec.kinds[-1][-2:] == ["agent.final", "session.end"]
    assert API_KEY.encode() not in b"".join(bench.hec.bodies)
    assert bench.tools.closed == 1
