"""Stdout callback of `make demo`: a line a stage with its duration, and of a failure only what helps."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ansible.plugins.callback import CallbackBase

if TYPE_CHECKING:
    from ansible.executor.stats import AggregateStats
    from ansible.executor.task_result import CallbackTaskResult
    from ansible.playbook import Playbook
    from ansible.playbook.play import Play
    from ansible.playbook.task import Task

DOCUMENTATION = """
name: stages
type: stdout
short_description: a line a stage, with its duration
description:
  - Prints each play as a stage with its duration, and what takes long while it does.
  - Of a failure it prints the task, the machine and the message.
"""

HEARTBEAT_SECONDS = 10.0


class CallbackModule(CallbackBase):
    """Stages instead of tasks; on a terminal the current task is shown on a line that goes away."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "stages"

    def __init__(self) -> None:
        super().__init__()
        self._stage = ""
        self._task = ""
        self._stage_began = self._task_began = 0.0
        self._tasks = self._changed = 0
        self._item_reason: list[str] = []
        self._tty = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._done = threading.Event()
        threading.Thread(target=self._heartbeat, daemon=True).start()

    def _line(self, text: str) -> None:
        with self._lock:
            sys.stdout.write(("\r\033[K" if self._tty else "") + text + "\n")
            sys.stdout.flush()

    def _passing(self, text: str) -> None:
        if self._tty:
            with self._lock:
                sys.stdout.write("\r\033[K" + text[:78])
                sys.stdout.flush()

    def _heartbeat(self) -> None:
        told = 0.0
        while not self._done.wait(1.0):
            now = time.monotonic()
            waited = now - self._task_began if self._task else 0.0
            if waited < HEARTBEAT_SECONDS:
                continue
            if self._tty:
                self._passing(f"    {self._task} ({waited:.0f} s)")
            elif now - told >= HEARTBEAT_SECONDS:
                told = now
                self._line(f"    {self._task} ({waited:.0f} s so far)")

    def _end_stage(self) -> None:
        if self._stage and self._tasks:  # one in which no task ran, being for another backend, is no stage
            seconds = time.monotonic() - self._stage_began
            self._line(f"  {self._stage:<42} {seconds:6.1f} s   {self._tasks:3d} tasks, {self._changed} changed")
        self._stage = self._task = ""

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        """Nothing is said before the first stage."""

    def v2_playbook_on_play_start(self, play: Play) -> None:
        """The stage before ends, the next begins."""
        self._end_stage()
        self._stage, self._stage_began = play.get_name().strip(), time.monotonic()
        self._tasks = self._changed = 0
        self._passing(f"  {self._stage} ...")

    def v2_playbook_on_task_start(self, task: Task, is_conditional: bool) -> None:
        """Remember what runs, for the heartbeat."""
        self._task, self._task_began = task.get_name().strip(), time.monotonic()
        self._passing(f"    {self._task}")

    v2_playbook_on_handler_task_start = v2_playbook_on_cleanup_task_start = lambda self, task: (
        self.v2_playbook_on_task_start(task, False)
    )

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Count; a debug task's message is shown, for somebody wrote it to be read."""
        self._tasks += 1
        self._changed += bool(result.result.get("changed"))
        if result.task.action in ("ansible.builtin.debug", "debug"):
            shown = result.result.get("msg") or next(
                (v for k, v in result.result.items() if not k.startswith("_") and isinstance(v, str | list)), ""
            )
            for text in shown if isinstance(shown, list) else [shown]:
                self._line(f"    {text}")

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """A loop's own result names no reason: keep the item's."""
        self._item_reason = self._reason(result.result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """The task, the machine, the message: no dump of the result."""
        self._line(f"  FAILED: {self._stage}: {result.task.get_name()} [{result.host.get_name()}]")
        for text in self._item_reason or self._reason(result.result):
            self._line(f"    {text}")
        self._item_reason = []

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """As a failure, said as what it is."""
        self._line(f"  UNREACHABLE: {self._stage}: {result.host.get_name()}")
        for text in self._reason(result.result):
            self._line(f"    {text}")

    @staticmethod
    def _reason(result: dict[str, Any]) -> list[str]:
        texts = [result.get("stderr") or "", result.get("msg") or "", result.get("stdout") or ""]
        lines = [
            line.rstrip() for line in str(next((t for t in texts if t), "no message")).splitlines() if line.strip()
        ]
        return lines[-8:]

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        """The last stage ends."""
        self._done.set()
        self._end_stage()
