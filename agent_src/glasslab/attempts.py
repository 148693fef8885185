"""Requests to a tool server that change nothing there are made again where that may help, each attempt on record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from glasslab.frames import frame
from glasslab.models import Stopped
from glasslab.models.retries import wait_before
from glasslab.policy import Budget
from glasslab.recorder import SessionRecorder
from glasslab.tooltypes import ToolServerError


class Attempts:
    """What one session asks its tool servers more than once."""

    def __init__(self, retries: int, log: SessionRecorder, budget: Budget, stop: threading.Event) -> None:
        """`retries` is how often a request is made again (MCP_RETRIES)."""
        self._retries, self._log, self._budget, self._stop = retries, log, budget, stop

    def make[T](self, request: str, ask: Callable[[], T], failed: ToolServerError | None = None, **more: str) -> T:
        """Ask until there is an answer, or no attempt is left. `request` names it in the record, as `more` does.

        `failed` is what an attempt that was made already ended with. Raises what the last one raised, or Stopped.
        """
        attempt = 1
        while True:
            try:
                if failed is None:
                    return ask()
                error, failed = failed, None
            except ToolServerError as raised:
                error = raised
            wait = wait_before(attempt, self._retries, error, self._budget.seconds_left)
            if wait is None:
                raise error
            noted = frame(
                "mcp.failed", step=self._budget.turns, request=request, attempt=attempt, wait_seconds=wait, **more
            )
            # The next attempt is an action like any other: after this frame is acknowledged.
            self._log.act(partial(self._pause, wait), noted)
            attempt += 1

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped
