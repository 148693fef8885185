"""What a person puts into a session and what is shown at its end: screened, on record, and told where changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glasslab import attachments, session_frames
from glasslab.attachments import Attachments
from glasslab.endings import Ended
from glasslab.inquiry import Attached
from glasslab.recorder import SessionRecorder
from glasslab.screening import Screen
from glasslab.settings import Settings


class Words:
    """One session's: `notice` is the line that tells the user what was done to them, None when nothing was."""

    def __init__(self, settings: Settings, log: SessionRecorder, screen: Screen) -> None:
        """Nothing is said yet."""
        self._settings, self._log, self._screen = settings, log, screen
        self.notice: str | None = None

    def begin(self, question: str, given: Attached, named: Mapping[str, Any]) -> tuple[str, Attached]:
        """Note the session's start, and what was found in its question; return both as they may go on. Raises Ended.

        `named` is what the first frames say beside the question: the session that this one goes on with.
        """
        found = self._screen.question(question)
        given, frames, notices, refused = attachments.screened(given, self._screen)
        start = session_frames.start(self._settings, found.text, {**named, **given.named})
        self._log.note(*start, *found.frames, *frames)
        self._tell(found.notice, *notices)
        if found.refused or refused:
            raise Ended("input_refused", "guardrail", refused or found.notice or "")
        return found.text, given

    def with_attached(self, question: str, given: Attached, reader: Attachments) -> str:
        """Return the question with the prompt and the resources that stand beside it. Raises what ends a session."""
        text, notices = reader.question(question, given)
        self._tell(*notices)
        return text

    def shown(self, turn: int, answer: str) -> str:
        """Note what was found in an answer; return it as it may be shown."""
        found = self._screen.answer(turn, answer)
        self._log.note(*found.frames)
        self._tell(found.notice)
        return found.text

    def _tell(self, *notices: str | None) -> None:
        self.notice = "; ".join(filter(None, (self.notice, *notices))) or None
