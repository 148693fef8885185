"""The person at the terminal of `glasslab ask`: shown the exact call, asked for the whole word yes."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import termios
import threading
import time
import unicodedata
from contextlib import suppress
from typing import Any, Final

from glasslab.approvals import MAX_WHY, Asked, Nobody, Person, Verdict
from glasslab.desk import described
from glasslab.guardrails import hidden_characters, visible_line
from glasslab.models import Stopped

_LOOK: Final = 0.2  # seconds between two looks at whether the question was cancelled
_LONGEST: Final = 4_096  # bytes of an answer
_NAMED: Final = 40  # different characters beyond ASCII that are shown as themselves, each with its name
_BLANKS: Final = re.compile(" {3,}")  # they would push the rest of a call off the screen


def at_terminal() -> Person:
    """Return the person at this terminal, or nobody when input or output is no terminal."""
    with suppress(OSError, ValueError, AttributeError):
        if os.isatty(sys.stdin.fileno()) and os.isatty(sys.stderr.fileno()):
            return Terminal(sys.stdin.fileno(), sys.stderr.fileno())
    return Nobody()


class Terminal:
    """Asks on one terminal, reads the answer from another or the same."""

    def __init__(self, source: int, shown_on: int) -> None:
        """Both are descriptors."""
        self.caller = os.getuid()
        self._source, self._shown_on = source, shown_on

    def decide(self, asked: Asked, stop: threading.Event) -> Verdict:
        """Show the call and read one line: yes approves, anything else denies and is the reason."""
        question = f"Run it? Type yes, or why not ({asked.seconds:g} s): "
        self._show("\n".join(["", "The model asks for this:", *lines(described(asked)), question]))
        with suppress(termios.error, OSError):
            termios.tcflush(self._source, termios.TCIFLUSH)  # what was typed before the question answers another one
        answer = self._line(asked.seconds, stop)
        if answer is None:
            self._show("\nno answer in time: denied\n")
            return Verdict(False, "timeout")
        if answer.lower() == "yes":
            return Verdict(True, "terminal", self.caller)
        return Verdict(False, "terminal", self.caller, "" if answer.lower() in ("n", "no") else answer[:MAX_WHY])

    def _show(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        with suppress(OSError):  # a terminal that went away shows nothing; its answer is then none, and a denial
            while data:
                data = data[os.write(self._shown_on, data) :]

    def _line(self, seconds: float, stop: threading.Event) -> str | None:
        """Return the line that is typed; None when none is in time. Without its end it is an empty one: a denial."""
        deadline, typed = time.monotonic() + seconds, b""
        while b"\n" not in typed and len(typed) < _LONGEST:
            if stop.is_set():
                raise Stopped
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if select.select([self._source], [], [], min(left, _LOOK))[0]:
                try:
                    piece = os.read(self._source, _LONGEST)
                except OSError:
                    piece = b""
                if not piece:
                    break
                typed += piece
        line, end, _ = typed.partition(b"\n")
        return visible_line(line.decode("utf-8", "replace")) if end else ""  # "yes" that nobody entered is none


def lines(call: dict[str, Any]) -> list[str]:
    """Return what a person is shown of a call (as desk.described gives it), a line each, fit for a terminal."""
    shown = str(call["shown"])
    others = sorted({letter for letter in shown if ord(letter) > 126})
    named = others if len(others) <= _NAMED else []
    seen = "".join(_seen(letter, letter in named) for letter in shown)
    found = [
        f"  tool:    {visible_line(str(call['tool']))} of {visible_line(str(call['server']))}, class {call['class']}",
        f"  because: {visible_line(str(call['reason']))}",
        f"  call:    {_BLANKS.sub(lambda run: f'<{len(run[0])} blanks>', seen)}",
        f"  sha256:  {visible_line(str(call['sha256']))}",
    ]
    if named:  # what looks like a letter, a digit or a dot of ASCII need not be one: an address is not what it seems
        what = ", ".join(f"U+{ord(letter):04X} {unicodedata.name(letter, '?')}" for letter in named)
        found.append(f"  beyond ASCII: {what}")
    elif others:
        found.append(
            f"  beyond ASCII: {len(others)} characters, more than {_NAMED} to name: all are shown as \\u escapes"
        )
    return found


def _seen(letter: str, named: bool) -> str:
    """Return a letter of JSON as it may be shown: as itself, or as JSON's own escape where it would deceive the eye."""
    unseen = letter != " " and (hidden_characters(letter) or unicodedata.category(letter) == "Zs")
    return json.dumps(letter)[1:-1] if unseen or (ord(letter) > 126 and not named) else letter
