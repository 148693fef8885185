"""A callback of Ansible that ends the run, at once and for good, where a task would begin: as a power cut would.

GLASSLAB_INTERRUPT_AT names the task (without its role), or says which it is by number, the first being 1.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: interrupt
type: aggregate
short_description: end the run where a task would begin
description: For tests of what a run leaves that was cut off.
requirements: [the environment variable GLASSLAB_INTERRUPT_AT]
"""
INTERRUPTED = 99


class CallbackModule(CallbackBase):
    """Counts the tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "interrupt"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def _begins(self, task: Any) -> None:
        self.begun += 1
        name = task.get_name().partition(" : ")[2] or task.get_name()
        if os.environ["GLASSLAB_INTERRUPT_AT"] in (name, str(self.begun)):
            print(f"interrupted before {name}")
            sys.stdout.flush()
            os._exit(INTERRUPTED)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task of a play."""
        self._begins(task)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """A task that was notified."""
        self._begins(task)
