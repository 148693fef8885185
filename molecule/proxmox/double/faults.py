"""Faults on demand: at which call, of which kind, how often; read again at every request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("500", "timeout", "failed_task", "lock")
KEYS = frozenset(("at", "kind", "times", "skip", "hold", "done"))


class FaultFileError(Exception):
    """The fault file does not say what it must."""


@dataclass
class Fault:
    """One fault: `at` the n-th request, or at a method and path (as the schema writes it, or as it is called)."""

    at: int | str
    kind: str
    times: int = 1
    skip: int = 0
    hold: float = 5.0
    done: bool = False

    def meets(self, number: int, method: str, template: str | None, path: str) -> bool:
        """Whether this request is one that the fault is meant for, whatever it has done before."""
        if isinstance(self.at, int):
            return self.at <= number < self.at + self.times
        return self.at in (f"{method} {template}", f"{method} {path}")


class Faults:
    """The faults of a file: what is left of each is forgotten when the file changes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._text = ""
        self._faults: list[Fault] = []

    def pick(self, number: int, method: str, template: str | None, path: str) -> Fault | None:
        """The fault for this request, if any; nothing is used up until `use` is called."""
        self._reread()
        for fault in self._faults:
            if fault.times > 0 and fault.meets(number, method, template, path):
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                return fault
        return None

    @staticmethod
    def use(fault: Fault) -> None:
        """Count one use of a fault that is bound to a call; one bound to a number ends by itself."""
        if isinstance(fault.at, str):
            fault.times -= 1

    def _reread(self) -> None:
        if self._path is None:
            return
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        if text != self._text:
            self._faults = parse(text)
            self._text = text


def parse(text: str) -> list[Fault]:
    """The faults of a file's text: one object, or a list of them; nothing in an empty one."""
    if not text.strip():
        return []
    try:
        given = json.loads(text)
    except ValueError as error:
        raise FaultFileError(f"fault file: not JSON: {error}") from error
    return [_fault(each) for each in (given if isinstance(given, list) else [given])]


def _fault(given: Any) -> Fault:
    if not isinstance(given, dict) or "at" not in given or "kind" not in given:
        raise FaultFileError(f"fault file: {given!r} is no object with 'at' and 'kind'")
    unknown = sorted(set(given) - KEYS)
    if unknown:
        raise FaultFileError(f"fault file: unknown key {unknown[0]!r}; known are {', '.join(sorted(KEYS))}")
    if str(given["kind"]) not in KINDS:
        raise FaultFileError(f"fault file: kind {given['kind']!r} is none of {', '.join(KINDS)}")
    return Fault(**{**given, "kind": str(given["kind"])})
