"""Is a value one of its setting's type?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from splunkcheck import reference

BOOLEANS: Final = frozenset(("0", "1", "true", "false", "t", "f", "yes", "no", "y", "n"))
_RELATIVE: Final = re.compile(
    r"(?:rt)?(?:now|0|\d{9,10}(?:\.\d+)?|(?:[-+]\d*(?:s|sec|m|min|h|hr|d|day|w|week|mon|month|q|y|year)s?)"
    r"?(?:@(?:s|m|h|d|w[0-7]?|mon|q|y)(?:[-+]\d+[smhdw])?)?)"
)
_CRON_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def fault(kind: str, value: str) -> str:
    """Return what is wrong with a value of that type, or nothing."""
    check = _CHECKS.get(kind)
    if check is not None:
        return check(value)
    if "|" in kind and value.lower() not in kind.lower().split("|"):
        return f"is none of {', '.join(kind.split('|'))}"
    return ""


def _boolean(value: str) -> str:
    return "" if value.lower() in BOOLEANS else "is no boolean; give 0 or 1"


def _integer(value: str) -> str:
    return "" if re.fullmatch(r"-?\d+", value) else "is no whole number"


def regex(value: str) -> str:
    """Return what is wrong with a regular expression. PCRE's named groups are read as Python's."""
    try:
        re.compile(re.sub(r"\(\?<([A-Za-z_]\w*)>", r"(?P<\1>", value))
    except re.error as error:
        return f"is no regular expression: {error}"
    return ""


def time(value: str) -> str:
    """Return what is wrong with a time modifier."""
    return "" if value and _RELATIVE.fullmatch(value) else "is no time modifier (-24h, -7d@d, now, 0 or epoch seconds)"


def _cron(value: str) -> str:
    parts = value.split()
    if len(parts) != len(_CRON_RANGES):
        return f"has {len(parts)} fields; cron has 5"
    for part, (low, high) in zip(parts, _CRON_RANGES, strict=True):
        for item in part.split(","):
            found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", item)
            numbers = [int(number) for number in (found[1], found[2]) if number] if found else []
            if not found or found[3] == "0" or any(not low <= number <= high for number in numbers):
                return f"has {item!r} where a number from {low} to {high}, a range, a list or * goes"
    return ""


def _names(value: str) -> str:
    return "" if re.fullmatch(r"[\w*.-]+(?:\s*[,;]\s*[\w*.-]+)*", value) else "is no list of names"


def _fields(value: str) -> str:
    return "" if re.fullmatch(r"[\w.{}-]+(?:\s*,\s*[\w.{}-]+)*", value) else "is no list of fields"


def _name(value: str) -> str:
    return "" if re.fullmatch(r"[\w.-]+", value) else "is no name"


_CHECKS: Final[dict[str, Callable[[str], str]]] = {
    reference.BOOL: _boolean, reference.INT: _integer, reference.REGEX: regex, reference.TIME: time,
    reference.CRON: _cron, reference.NAMES: _names, reference.FIELDS: _fields, reference.NAME: _name,
}  # fmt: skip
