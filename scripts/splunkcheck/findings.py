"""What the checker found: a place and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One fault: the file (relative to the app), the line (0: the whole file), and what is wrong in one line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class FaultError(Exception):
    """What is wrong with a piece of text, in one line."""
