"""Lists of what an argument may be, such as recipients: texts, in which `*` stands for a part of a name and no more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

# What `*` stands for. No blank, comma, bracket, @, / or line end: else `*@lab.example` would also let through
# `thief@evil.example, x@lab.example`, which a mailer reads as two recipients.
_PART: Final = "[A-Za-z0-9._+-]+"


def split(text: str) -> tuple[str, ...]:
    """Return the entries of a list in a setting: separated by commas, blanks around them dropped."""
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)


def allows(entries: Sequence[str], value: object) -> bool:
    """Return whether a value is one of the entries; a list is when each of its items is. Nothing else ever is."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) and allows(entries, item) for item in value)
    return isinstance(value, str) and any(_pattern(entry).fullmatch(value) for entry in entries)


@cache
def _pattern(entry: str) -> re.Pattern[str]:
    return re.compile(_PART.join(re.escape(part) for part in entry.split("*")))
