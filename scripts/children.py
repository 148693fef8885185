"""The programs that a script starts and waits for: none of them runs on when the script is interrupted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from lab import ROOT

INTERRUPT_SECONDS = 3.0
END_SECONDS = 10.0


@contextmanager
def child(
    words: Sequence[str], environment: Mapping[str, str], *, asks: bool = False, out: IO[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in the checkout; whatever ends the block ends the program, too.

    asks: it may read this script's stdin. out: a file that takes what it says on stdout and stderr.
    """
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stdin=None if asks else subprocess.DEVNULL,
        stdout=out,
        stderr=None if out is None else subprocess.STDOUT,
    )
    try:
        yield process
    except BaseException:
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself: Ctrl-C on a terminal has reached it too, a signal to the script has not."""
    for seconds, number in ((INTERRUPT_SECONDS, signal.SIGINT), (END_SECONDS, signal.SIGKILL)):
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    process.wait()
