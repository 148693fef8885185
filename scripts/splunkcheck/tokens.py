"""A text taken apart by a pattern whose groups name what each part is."""

from __future__ import annotations

import functools
import re
from typing import Final

from splunkcheck.findings import FaultError

# What stands in a search where a view's or a saved search's token ($name$) was: any value.
TOKEN: Final = "x_token_x"  # noqa: S105  # no secret
# What stands where a subsearch was.
SUBSEARCH: Final = "x_subsearch_x"
_PLACE: Final = re.compile(r"\$(?:[\w.:-]+(?:\|[a-z])?)\$")


@functools.lru_cache(maxsize=2048)
def tokens(pattern: re.Pattern[str], text: str, called: str) -> tuple[tuple[str, str], ...]:
    """Return the parts as (group, text). Raises FaultError naming what is not `called` so."""
    found: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = pattern.match(text, position)
        if not match or match.lastgroup is None:
            raise FaultError(f"{text[position:].strip()[:30]!r} is no {called}")
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return tuple(found)


def taken(text: str) -> tuple[str, set[str]]:
    """Return a search with TOKEN in place of its tokens, and their names. Raises FaultError for a `$name` left open."""
    names = set(re.findall(r"\$([\w.]+)\$", text))
    rest = _PLACE.sub(TOKEN, text)
    rest = re.sub(r"(\|\s*return\b[^|\]]*)", lambda found: found[0].replace("$", ""), rest)  # its fields have a $ each
    if found := re.search(r"\$[A-Za-z_][\w.]*", rest):
        raise FaultError(f"{found[0]} is no token: its closing $ is missing")
    return rest, names
