"""A question that is under way while something is changed: the model holds its answer back until it is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labtools import MODEL_RECORD, STATE, Done, ask

SECONDS = 180.0


def wait_for(what: str, found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.5)


def model_process() -> int:
    """The process of the lab's model API, found by the record that it alone writes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"--record={MODEL_RECORD}".encode() in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
        except OSError:  # it ended meanwhile
            continue
    raise AssertionError("the lab's model API does not run")


@contextmanager
def silent_model() -> Iterator[None]:
    """The model API holds its answers back for a time."""
    process = model_process()
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def token(name: str) -> str:
    """A writer's token, as its file on the control node has it."""
    text = (STATE / "secrets" / name).read_text(encoding="utf-8").strip()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def under_a_question(
    question: str,
    calls: Callable[[], int],
    change: Callable[[], Done],
    arrived: Callable[[], bool],
    then: Callable[[], None],
) -> tuple[Done, Done, dict[str, Any]]:
    """Change something while a question waits for its model; return the change, the asking and its answer.

    `calls` counts the calls of the model on record. `then` is done while the question still waits, once `arrived`.
    """
    with ThreadPoolExecutor(2) as threads:
        with silent_model():
            before = calls()
            asking = threads.submit(ask, question)
            wait_for("a question", lambda: calls() > before)
            changing = threads.submit(change)
            wait_for("the change at its writer", arrived)
            then()
        done, result = asking.result(SECONDS)
        return changing.result(SECONDS), done, result
