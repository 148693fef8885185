"""Which of a session's events are shown frame by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from glasslab.kinds import TRACE

ALWAYS_SHOWN: Final = ("tools.drift", "guardrail", "context.reduced")


class Shown(Protocol):
    """An event out of the log, as far as it matters here."""

    @property
    def sourcetype(self) -> str:
        """The event's sourcetype."""

    @property
    def event(self) -> Mapping[str, Any]:
        """The event's JSON, {} when it is none."""


def frames_shown[Item: Shown](stored: Sequence[Item]) -> list[Item]:
    """Return what is shown: the trace frames; the summary events of a session that has no trace.

    What guardrails found is a summary event that no trace frame says, so it is always shown; so is a drift's, and
    what the model no longer got whole.
    """
    traced = [item for item in stored if item.sourcetype == TRACE or item.event.get("kind") in ALWAYS_SHOWN]
    return traced if any(item.sourcetype == TRACE for item in traced) else list(stored)
