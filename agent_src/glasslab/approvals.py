"""Approvals: what is more than a read waits for a person, and what then runs is byte for byte what was shown.

The loop hands each call to `Gate.passed`, which gives it back, or in its place one that must not be made. Who is
asked is a `Person`: the one at the terminal (prompting.py), those who answer at the service (desk.py), or nobody.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from glasslab import allowlist
from glasslab.approval_rules import BUILT_IN, OWN_CLASSES, Rule, class_of, parse_classes, read_rules
from glasslab.context import Call
from glasslab.frames import Frame, canonical_json, frame, sha256_hex
from glasslab.policy import Budget
from glasslab.recorder import SessionRecorder
from glasslab.settings import Settings

MAX_WHY: Final = 500

# How a decision came about -> what the model is told.
REFUSALS: Final[Mapping[str, str]] = {
    "rule": "a rule does not allow this call",
    "terminal": "a person denied it",
    "service": "a person denied it",
    "timeout": "nobody approved it in time",
    "nobody": "it needs a person's approval, and nobody is there to give it",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that waits for a person. `shown` is what is shown and what runs: canonical JSON, `sha256` its hash.

    `tool` and `server` are the names that the server and the lock know; `caller` is the user who asked the question.
    """

    server: str
    tool: str
    class_: str
    call_id: str
    caller: int
    shown: bytes
    reason: str
    session_id: str
    seconds: float
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    began: float = field(default_factory=time.monotonic)  # whatever the clock is set to meanwhile

    @property
    def sha256(self) -> str:
        """The hash of what is shown."""
        return sha256_hex(self.shown)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision: how it came about (one of REFUSALS), by which user, and the reason that was given."""

    approved: bool
    how: str
    by: int | None = None
    why: str = ""


class Person(Protocol):
    """Who asked the question, and who decides about its calls."""

    @property
    def caller(self) -> int:
        """The user id of who asked the question."""

    def decide(self, asked: Asked, stop: threading.Event) -> Verdict:
        """Wait for a decision, at most `asked.seconds`. Raises Stopped when `stop` is set."""


class Nobody:
    """Nobody is there: everything that would have to be approved is denied."""

    def __init__(self, caller: int | None = None) -> None:
        """`caller` is this process's user unless it is given."""
        self.caller = os.getuid() if caller is None else caller

    def decide(self, asked: Asked, stop: threading.Event) -> Verdict:
        """Deny."""
        return Verdict(False, "nobody")


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say: classes by SERVER/TOOL, rules, whether reads are asked for too, seconds to wait."""

    classes: Mapping[str, str]
    rules: Sequence[Rule] = ()
    everything: bool = False
    seconds: float = 300.0

    def action(self, tool: str, class_: str, caller: int, arguments: Mapping[str, Any]) -> tuple[str, str]:
        """Return run, ask or deny, and why. `tool` is SERVER/TOOL."""
        said = [found for rule in self.rules if (found := rule.says(tool, class_, caller, arguments))]
        denied = [found for found in said if found[0] == "deny"]
        if denied:
            return denied[0]
        if class_ != "read":
            return "ask", f"class {class_}"
        if self.everything:
            return "ask", "everything is asked for (APPROVALS=everything)"
        return next(iter(said), ("run", "class read"))


def policy_of(settings: Settings) -> Policy:
    """Return what the settings say. Raises SettingsError for a file of rules that cannot be used."""
    rules = [] if settings.approval_rules is None else read_rules(settings.approval_rules)
    recipients = allowlist.split(settings.outbox_recipients)
    why = "the recipient is not on the allow-list (OUTBOX_RECIPIENTS)"
    rules.append(Rule(tools=("lab-outbox/send_message",), only={"to": recipients}, why=why))
    classes = {**OWN_CLASSES, **parse_classes(settings.tool_classes)}
    return Policy(classes, rules, settings.approvals == "everything", settings.approval_seconds)


class Gate:
    """Lets a session's calls through, or not."""

    def __init__(self, policy: Policy, person: Person) -> None:
        """`person` is who asked, and who is asked."""
        self._policy, self._person = policy, person

    def reads(self, name: str, origins: Mapping[str, tuple[str, str, Mapping[str, Any]]]) -> bool:
        """Whether a tool, by its offered name, is of the class read."""
        server, tool, definition = origins.get(name, (BUILT_IN, name, {}))
        return class_of(self._policy.classes, f"{server}/{tool}", definition) == "read"

    def passed(
        self,
        call: Call,
        origins: Mapping[str, tuple[str, str, Mapping[str, Any]]],
        log: SessionRecorder,
        budget: Budget,
        stop: threading.Event,
    ) -> Call:
        """Return the call that may be made, or in its place one with an error. Raises LoggingError, Stopped.

        `origins` are the offered tools' servers, names there and definitions. A person is asked after the request's
        frame is acknowledged; the decision's frame is noted, so it is on record before what it releases.
        """
        if call.error is not None or not isinstance(call.arguments, dict):
            return call
        server, tool, definition = origins.get(call.name, (BUILT_IN, call.name, {}))
        name, caller = f"{server}/{tool}", self._person.caller
        class_ = class_of(self._policy.classes, name, definition)
        action, why = self._policy.action(name, class_, caller, call.arguments)
        if action == "run":
            return call
        left = budget.seconds_left
        seconds = self._policy.seconds if left is None else min(self._policy.seconds, left)
        shown = canonical_json({"arguments": call.arguments, "server": server, "tool": tool})
        asked = Asked(server, tool, class_, call.id, caller, shown, why, log.session_id, round(seconds, 3))
        if action == "deny":
            verdict = Verdict(False, "rule", why=why)
        else:
            verdict = log.act(partial(self._person.decide, asked, stop), request_frame(budget.turns, asked))
        log.note(decision_frame(budget.turns, asked, verdict))
        if not verdict.approved:
            because = f": {verdict.why}" if verdict.why else ""
            text = f"Error: not run, {REFUSALS[verdict.how]}{because}. Do not try again; say what was not done."
            return replace(call, reason=f"approval_{verdict.how}", error=text)
        # Taken from the very bytes that were shown, whatever became of the call's own meanwhile.
        return replace(call, arguments=json.loads(asked.shown)["arguments"])


def request_frame(turn: int, asked: Asked) -> Frame:
    """approval.request: a person is about to be asked."""
    return frame(
        "approval.request",
        step=turn,
        approval_id=asked.id,
        arguments=json.loads(asked.shown)["arguments"],
        seconds=asked.seconds,
        **_of(asked),
    )


def decision_frame(turn: int, asked: Asked, verdict: Verdict) -> Frame:
    """approval.decision: what was decided, how, by whom and when."""
    return frame(
        "approval.decision",
        step=turn,
        approval_id=None if verdict.how == "rule" else asked.id,
        decision="approved" if verdict.approved else "denied",
        how=verdict.how,
        by=verdict.by,
        why=verdict.why[:MAX_WHY],
        decided_at=round(time.time(), 3),
        waited_seconds=round(time.monotonic() - asked.began, 3),
        **_of(asked),
    )


def _of(asked: Asked) -> dict[str, Any]:
    return {
        "tool": asked.tool,
        "server": asked.server,
        "class": asked.class_,
        "sha256": asked.sha256,
        "tool_call_id": asked.call_id,
        "caller": asked.caller,
        "reason": asked.reason,
    }
