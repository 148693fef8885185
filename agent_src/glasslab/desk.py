"""Where the service's approvals wait: those who may approve see them, and decide by their id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from glasslab.approvals import MAX_WHY, Asked, Verdict
from glasslab.guardrails import visible_line
from glasslab.models import Stopped
from glasslab.peers import nobodys_id

_LOOK: Final = 0.2  # seconds between two looks at whether the question was cancelled


class Refused(ValueError):
    """A decision that is not taken; the text is one line with the remedy."""


class Desk:
    """The approvals of one service that wait, by id. Thread-safe."""

    def __init__(self, approvers: frozenset[int]) -> None:
        """`approvers` are the user ids that may decide."""
        # Whoever the kernel cannot name might be anybody: on record would stand a name that is nobody's.
        self._approvers = approvers - {nobodys_id()}
        self._changed = threading.Condition()
        self._waiting: dict[str, Asked] = {}
        self._verdicts: dict[str, Verdict] = {}

    def wait(self, asked: Asked, stop: threading.Event, tell: Callable[[Asked], None] | None = None) -> Verdict:
        """Wait for a decision; a time-out is a denial. Raises Stopped when the question was cancelled.

        `tell` is called once it waits: whoever is told may decide at once. It must not raise.
        """
        deadline = time.monotonic() + asked.seconds
        with self._changed:
            self._waiting[asked.id] = asked
        if tell is not None:
            tell(asked)  # not under the lock: a client that does not read must not hold up others' decisions
        with self._changed:
            try:
                while asked.id not in self._verdicts:
                    if stop.is_set():
                        raise Stopped
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return Verdict(False, "timeout")
                    self._changed.wait(min(left, _LOOK))
                return self._verdicts.pop(asked.id)
            finally:
                self._waiting.pop(asked.id, None)

    def listed(self, uid: int) -> list[dict[str, Any]]:
        """Return what waits, the oldest first. Raises Refused for a user who may not decide."""
        self._check(uid)
        with self._changed:
            waiting = list(self._waiting.values())
        return [described(asked) for asked in waiting]

    def decide(self, uid: int, id_: str, approved: bool, why: str) -> dict[str, Any]:
        """Decide about a call that waits; return it. Raises Refused when the user may not, or nothing waits there."""
        self._check(uid)
        with self._changed:
            asked = self._waiting.get(id_)
            if asked is None or id_ in self._verdicts:
                raise Refused(f"no approval {id_[:40]!r} waits; `glasslab approvals` lists those that do")
            self._verdicts[id_] = Verdict(approved, "service", uid, why[:MAX_WHY])
            self._changed.notify_all()
        return described(asked)

    def may_decide(self, uid: int) -> bool:
        """Whether a user is one of those who approve."""
        return uid in self._approvers

    def _check(self, uid: int) -> None:
        if not self.may_decide(uid):
            raise Refused(f"user {uid} may not approve here; ask one of APPROVERS, or root")


class AtDesk:
    """The person of a question that was put to the service: who asked by its socket, decided at the desk."""

    def __init__(self, desk: Desk, caller: int, tell: Callable[[Asked], None]) -> None:
        """`tell` is called when a call has begun to wait; it must not raise."""
        self._desk, self.caller, self._tell = desk, caller, tell

    def decide(self, asked: Asked, stop: threading.Event) -> Verdict:
        """Wait for a decision at the desk."""
        return self._desk.wait(asked, stop, self._tell)


def described(asked: Asked) -> dict[str, Any]:
    """Return a call that waits as JSON takes it; `shown` is the text whose hash is `sha256`."""
    return {
        "id": asked.id,
        "server": asked.server,
        "tool": asked.tool,
        "class": asked.class_,
        "shown": asked.shown.decode(),
        "sha256": asked.sha256,
        "reason": asked.reason,
        "caller": asked.caller,
        "session_id": asked.session_id,
        "seconds_left": round(max(0.0, asked.began + asked.seconds - time.monotonic()), 1),
    }


def answer(desk: Desk, uid: int, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to what a user asks of the desk, or None when it is something else that is asked.

    `{"approvals": true}` lists; `{"approve": ID}` and `{"deny": ID, "why": TEXT}` decide.
    """
    try:
        if request.get("approvals") is True:
            return {"approvals": desk.listed(uid)}
        for word in ("approve", "deny"):
            id_, why = request.get(word), request.get("why", "")
            if isinstance(id_, str):
                decided = desk.decide(uid, id_, word == "approve", visible_line(why) if isinstance(why, str) else "")
                return {"decided": decided, "decision": "approved" if word == "approve" else "denied"}
    except Refused as error:
        return {"refused": str(error)}
    return None
