"""Reading a growing file of lines from where the last process left off, also when it was rotated in between."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Self

ONE_READ = 1024 * 1024
LONGEST_LINE = 65_536
_HEAD = 64


@dataclass(frozen=True, slots=True)
class Position:
    """Which file (by inode and first bytes: an inode is used again) has been read up to where."""

    inode: int = 0
    head: str = ""
    offset: int = 0

    def state(self) -> dict[str, int | str]:
        """Return it as JSON takes it."""
        return asdict(self)


class Tail:
    """One file, with `.1` behind its name once rotated. `read` moves on only by what it returns."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        """Nothing is opened yet; without a position the file is read from its beginning."""
        self.path = path
        self.position = position or Position()
        self.gap = False
        self.more = False

    def read(self) -> list[bytes]:
        """Return the next whole lines, at most about ONE_READ bytes of them; none when nothing is new.

        Sets `more` when there is more to read already, and `gap` when the file that was read last is gone, and its rest
        with it. Raises OSError when the file cannot be read, but not when it is not there.
        """
        self.more = False
        with contextlib.ExitStack() as stack:
            current = _open(self.path, stack)
            begun = current is not None and os.fstat(current.fileno()).st_size > 0
            if self.position.inode:
                if current is not None and _same(current, self.position):
                    return self._lines(current)
                former = _open(self.path.with_name(self.path.name + ".1"), stack)
                if former is not None and _same(former, self.position):
                    # Its writer goes on in it until it has opened the new one: only what is read after that is all.
                    lines = self._lines(former)
                    if lines or not begun:
                        return lines
                elif begun:
                    self.gap = True
            if current is None or not begun:
                return []
            self.position = Position(os.fstat(current.fileno()).st_ino, _head(current), 0)
            return self._lines(current)

    def resumed(self, state: dict[str, int | str] | None) -> Self:
        """Take up the position that an earlier process left."""
        if state:
            self.position = Position(int(state["inode"]), str(state["head"]), int(state["offset"]))
        return self

    def _lines(self, file: BinaryIO) -> list[bytes]:
        file.seek(self.position.offset)
        data = file.read(ONE_READ)
        self.more = len(data) == ONE_READ
        end = data.rfind(b"\n") + 1
        if not end and len(data) > LONGEST_LINE:
            end = len(data)  # no line of ours is as long; what follows its next end is
        self.position = Position(self.position.inode, self.position.head or _head(file), self.position.offset + end)
        return data[:end].splitlines()


def _open(path: Path, stack: contextlib.ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None


def _head(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(_HEAD)
    return head.hex() if len(head) == _HEAD else ""


def _same(file: BinaryIO, position: Position) -> bool:
    about = os.fstat(file.fileno())
    if about.st_ino != position.inode or about.st_size < position.offset:
        return False
    return not position.head or _head(file) == position.head
