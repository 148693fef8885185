"""How long a text Python's `re` can be given with a pattern that somebody else wrote: once it runs nothing stops it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Final

MAX_PATTERN: Final = 1_000  # characters
MAX_MATCHED: Final = 2_000  # characters of a text, whatever the pattern
MAX_CHOICES: Final = 1_000
_STEPS: Final = 10_000_000  # some seconds at the very worst
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!>]|<[=!]|P<\w+>|[aiLmsux-]+:))?|.", re.DOTALL)
_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{(\d{1,4})?(,)?(\d{1,4})?\})[?+]?")


@dataclass
class _Group:
    """What is known of a group: unbounded repetitions in it, ways to choose, how each alternative begins."""

    unbounded: int = 0
    choices: int = 1
    begins: list[str] = field(default_factory=lambda: [""])

    @property
    def ways(self) -> int:
        """Ways to match one text. Alternatives that begin with different letters leave no choice."""
        plain = all(begin.isalnum() for begin in self.begins) and len(set(self.begins)) == len(self.begins)
        return self.choices * (1 if plain or len(self.begins) == 1 else len(self.begins))


@functools.lru_cache(256)
def longest_matched(pattern: str) -> int | None:
    """Return the longest text that may be tried, or None where the time could be exponential. A cautious estimate.

    Each repetition without a bound may cost a factor of the text's length, and so does a beginning that is not fixed;
    one within another, or one of something that matches in several ways, may cost an exponent.
    """
    whole = _read(pattern) if len(pattern) <= MAX_PATTERN else None
    if whole is None or whole.ways > MAX_CHOICES:
        return None
    factors = whole.unbounded + (not pattern.startswith(("^", r"\A")) or len(whole.begins) > 1)
    return min(MAX_MATCHED, int((_STEPS / whole.ways) ** (1 / factors))) if factors else MAX_MATCHED


def _read(pattern: str) -> _Group | None:
    atoms, stack, position = _ATOM.findall(pattern), [_Group()], 0
    while position < len(atoms):
        atom, position, inner = atoms[position], position + 1, _Group()
        if atom[0] == "(":
            stack.append(_Group())
            continue
        if atom == "|":
            stack[-1].begins.append("")
            continue
        if atom == ")" and len(stack) > 1:
            inner, atom = stack.pop(), "("
        group = stack[-1]
        group.begins[-1] = group.begins[-1] or atom
        low, high, length = _quantifier("".join(atoms[position : position + 12]))
        position += length
        if high is None:
            if inner.unbounded or inner.ways > 1:
                return None
            group.unbounded += 1
        elif high > 1 and (inner.unbounded or (inner.ways > 1 and high > 20)):
            return None
        else:
            group.unbounded += inner.unbounded
            group.choices *= inner.ways**high * (high - low + 1)
        if group.choices > MAX_CHOICES:
            return None
    return stack[0]


def _quantifier(text: str) -> tuple[int, int | None, int]:
    """Return the least and the most times (None: no bound) that a quantifier at the beginning says, and its length."""
    found = _QUANTIFIER.match(text)
    if found is None or found.group() == "{}":
        return 1, 1, 0
    sign, least, comma, most = found.groups()
    if sign:
        return 0 if sign in "*?" else 1, 1 if sign == "?" else None, found.end()
    low = int(least or 0)
    return low, (int(most) if most else None) if comma else low, found.end()
