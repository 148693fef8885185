"""A session's calls of its model: each attempt is recorded, counted, and made again where that may help."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

from glasslab import session_frames
from glasslab.endings import Findings, limit_reached
from glasslab.models import Model, ModelError, Reply, Request, Stopped
from glasslab.models.retries import wait_before
from glasslab.models.usage import priced
from glasslab.policy import Budget
from glasslab.recorder import SessionRecorder
from glasslab.settings import Settings


class ModelCalls:
    """What one session asks its model, on its log and its budget."""

    def __init__(
        self,
        settings: Settings,
        model: Model,
        log: SessionRecorder,
        budget: Budget,
        findings: Findings,
        stop: threading.Event,
    ) -> None:
        """Nothing is asked yet."""
        self._settings, self._model, self._log = settings, model, log
        self._budget, self._findings, self._stop = budget, findings, stop

    def make(self, asked: Request, hashes: Mapping[str, str]) -> Reply:
        """Make a turn's call, whose llm.request is on record. Raises ModelError, or Stopped."""
        reply = self._attempts(asked, hashes)
        self._findings.heard(reply.content)
        if asked.watch and reply.content:
            asked.watch("\n")
        return reply

    def sum_up(self, asked: Request) -> Reply:
        """Make the call for a summary: recorded and counted as any other, but no turn, and not what was found."""
        made = session_frames.request(self._budget.turns, asked, purpose="summary")
        return self._log.act(partial(self._attempts, asked, {}, purpose="summary"), made)

    def _attempts(self, asked: Request, hashes: Mapping[str, str], **more: str) -> Reply:
        attempt = 1
        while True:
            try:
                reply = self._model.complete(asked, self._stop, self._budget.seconds_left)
                self._note(reply, hashes, **more)
                return reply
            except ModelError as error:
                if error.reply is not None:
                    self._note(error.reply, hashes, **more)
                    if not more:
                        self._findings.heard(error.reply.content)
                wait = wait_before(attempt, self._settings.model_retries, error, self._budget.seconds_left)
                limit = None if wait is None else self._budget.spent()  # a reply that cannot be used is paid for, too
                wait = None if limit else wait
                failed = session_frames.call_failed(self._budget.turns, self._settings.model, attempt, error, wait)
                if wait is None:
                    self._log.note(failed)
                    if limit:
                        raise limit_reached(limit, self._budget) from None
                    raise
            # The next attempt is an action like any other: after its frame is acknowledged.
            self._log.act(partial(self._pause, wait), failed)
            attempt += 1

    def _note(self, reply: Reply, hashes: Mapping[str, str], **more: str) -> None:
        usage = priced(reply.usage, self._settings.model, self._settings.prices)
        self._budget.count_usage(usage)
        self._log.note(*session_frames.reply(self._budget.turns, self._settings.model, hashes, reply, usage, **more))

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped
