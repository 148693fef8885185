"""A text taken apart by a pattern whose groups name what each part is."""

from __future__ import annotations

import re

from splunkcheck.findings import FaultError


def tokens(pattern: re.Pattern[str], text: str, called: str) -> list[tuple[str, str]]:
    """Return the parts as (group, text). Raises FaultError naming what is not `called` so."""
    found: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = pattern.match(text, position)
        if not match or match.lastgroup is None:
            raise FaultError(f"{text[position:].strip()[:30]!r} is no {called}")
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found
