"""Waiting for what may take long, and no longer than that: for an answer, for the end of a child."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Final

LOOK_SECONDS: Final = 0.05


def waited[T](ask: Callable[[], T], look: Callable[[], None]) -> T:
    """Return what `ask` returns, or raise what it raises; `look` is called again and again until then.

    What `look` raises ends the wait. `ask` goes on by itself then: whoever gives up has to close what is waited for.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(ask())
        except BaseException as error:  # for the one who waits, whatever it is
            done.set_exception(error)

    try:
        threading.Thread(target=run, name="waited", daemon=True).start()
    except RuntimeError:  # no thread to be had: then without looking up
        run()
    while not wait([done], LOOK_SECONDS).done:
        look()
    return done.result()


def end_child(child: subprocess.Popen[bytes], grace: float) -> None:
    """Wait until a child that leads its process group has ended: by itself within `grace` seconds, or by a signal."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            child.wait(grace)
            return
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)  # its own process group: whatever it started goes with it
    child.wait()
