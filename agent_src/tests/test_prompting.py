"""The person at the terminal: what is shown, what counts as yes, and what was typed before counts for nothing."""

import hashlib
import os
import pty
import threading
import time
import tty
import unicodedata
from collections.abc import Callable, Iterator

import pytest

from glasslab.approvals import Asked, Nobody, Verdict
from glasslab.desk import described
from glasslab.frames import canonical_json
from glasslab.models import Stopped
from glasslab.prompting import Terminal, at_terminal, lines


class Screen:
    """A terminal in which somebody types once the question is there."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = b""

    def decide(self, typed: bytes | None, seconds: float = 20, before: bytes = b"", stop: bool = False) -> Verdict:
        if before:
            os.write(self.master, before)
            time.sleep(0.05)
        asked = Asked("lab-outbox", "send_message", "send", "c0", 0, SHOWN, "class send", "s-1", seconds)
        stopped = threading.Event()

        def person() -> None:
            while b"Run it?" not in self.shown:
                self.shown += os.read(self.master, 65_536)
            if typed is not None:
                time.sleep(0.05)  # the flush of what was typed before comes right after the question
                os.write(self.master, typed)
            if stop:
                stopped.set()

        thread = threading.Thread(target=person)
        thread.start()
        try:
            return Terminal(self.slave, self.slave).decide(asked, stopped)
        finally:
            thread.join(5)


SHOWN = canonical_json(
    {"arguments": {"to": "\u0430p@lab.example", "body": "a\u202eb\u3164c \x7f\u00a0\n\x1b[2J"}, "server": "lab-outbox"}
)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    os.close(made.master)
    os.close(made.slave)


@pytest.mark.parametrize("typed", [b"yes\n", b"YES\n", b" yes \n"])
def test_the_whole_word_yes_approves(screen: Screen, typed: bytes) -> None:
    assert screen.decide(typed) == Verdict(True, "terminal", os.getuid())


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (b"y\n", "y"),
        (b"\n", ""),
        (b"no\n", ""),
        (b"yes, later\n", "yes, later"),
        (b"\x04", ""),
        (b"yes\x04\x04", ""),  # the end of input, twice: what was typed was never entered
    ],
)
def test_anything_else_denies_and_is_the_reason(screen: Screen, typed: bytes, why: str) -> None:
    assert screen.decide(typed) == Verdict(False, "terminal", os.getuid(), why)


def test_what_was_typed_before_the_question_answers_nothing(screen: Screen) -> None:
    assert screen.decide(b"no\n", before=b"yes\n") == Verdict(False, "terminal", os.getuid())


def test_nothing_typed_in_time_is_a_denial(screen: Screen) -> None:
    assert screen.decide(None, seconds=0.3) == Verdict(False, "timeout")


def test_a_cancelled_question_waits_no_longer(screen: Screen) -> None:
    with pytest.raises(Stopped):
        screen.decide(None, stop=True)


def test_what_is_shown_hides_nothing_and_drives_no_terminal(screen: Screen) -> None:
    screen.decide(b"no\n")
    text = screen.shown.decode().replace("\r\n", "\n")
    assert "send_message of lab-outbox, class send" in text
    assert r"a\u202eb\u3164c \u007f\u00a0\n\u001b[2J" in text
    assert "\x1b" not in text
    named = next(line for line in text.split("\n") if line.startswith("  beyond ASCII: "))
    assert "U+0430 CYRILLIC SMALL LETTER A" in named
    assert hashlib.sha256(SHOWN).hexdigest() in text


def shown_of(body: str) -> list[str]:
    """The lines of a call with this text."""
    shown = canonical_json({"arguments": {"body": body}})
    return lines(described(Asked("lab-outbox", "send_message", "send", "c0", 0, shown, "class send", "s-1", 20)))


def test_whatever_looks_like_ascii_is_named() -> None:
    dressed = "ap\uff20lab\u2024example 1\u0338\U0001d7d9\u0660\uff0e"
    call, named = shown_of(dressed)[2], shown_of(dressed)[4]
    assert dressed in call
    for letter in (letter for letter in dressed if ord(letter) > 126):
        assert f"U+{ord(letter):04X} {unicodedata.name(letter)}" in named
    assert len(shown_of("plain\x7e")) == 4, "of plain ASCII nothing is named"


def test_more_characters_than_can_be_named_are_shown_as_escapes() -> None:
    forty = "".join(chr(0x4E00 + number) for number in range(40))
    found = shown_of(f"{forty}{forty}")
    assert f"{forty}{forty}" in found[2]
    assert found[4].count("CJK UNIFIED") == 40
    found = shown_of(f"{forty}\uff20")
    assert found[2].isascii()
    assert r"\u4e27\uff20" in found[2]
    assert found[4] == r"  beyond ASCII: 41 characters, more than 40 to name: all are shown as \u escapes"


def test_blanks_do_not_push_what_matters_off_the_screen() -> None:
    assert '"body":"pay  1<2400 blanks>000"' in shown_of(f"pay  1{' ' * 2400}000")[2]


def test_without_a_terminal_nobody_is_there(monkeypatch: pytest.MonkeyPatch, screen: Screen) -> None:
    person = at_terminal()
    assert isinstance(person, Nobody), "pytest reads from no terminal"
    assert person.caller == os.getuid()

    class Stream:
        def __init__(self, number: int) -> None:
            self.fileno: Callable[[], int] = lambda: number

    tty.setraw(screen.slave)
    monkeypatch.setattr("sys.stdin", Stream(screen.slave))
    monkeypatch.setattr("sys.stderr", Stream(screen.slave))
    assert isinstance(at_terminal(), Terminal)
    monkeypatch.setattr("sys.stdin", None)
    assert isinstance(at_terminal(), Nobody)
