"""The fixed searches that read the log back: the one text that both the client and the collector know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

EXPORT_PATH: Final = "/services/search/v2/jobs/export"
SESSION_SEARCH: Final = 'search index={index} session_id="{session_id}" | sort 0 _time'
SESSIONS_SEARCH: Final = 'search index={index} sourcetype="agent:session" | sort 0 _time'
# Letters that mean nothing to SPL: no quote, no wildcard, no space. What is outside is never put into a search.
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_SEARCH: Final = re.compile(
    rf'search index=({_INDEX.pattern}) (?:session_id="({_SESSION_ID.pattern})"|sourcetype="agent:session")'
    r" \| sort 0 _time"
)


@dataclass(frozen=True, slots=True)
class Query:
    """What a fixed search asks for: the events of one session, or (None) the session events of all of them."""

    index: str
    session_id: str | None


def session_search(session_id: str, index: str = "agents") -> str:
    """Return the search for all events of one session. Raises ValueError for an id that cannot be one."""
    if not _SESSION_ID.fullmatch(session_id):
        raise ValueError(f"{session_id!r} is no session id; copy it from the end of `glasslab ask`")
    return SESSION_SEARCH.format(index=_checked(index), session_id=session_id)


def sessions_search(index: str = "agents") -> str:
    """Return the search for the start and end events of all sessions."""
    return SESSIONS_SEARCH.format(index=_checked(index))


def parse_search(text: str) -> Query | None:
    """Return what a search asks for; None when it is not one of the fixed ones."""
    match = _SEARCH.fullmatch(text.strip())
    return Query(match[1], match[2]) if match else None


def _checked(index: str) -> str:
    if not _INDEX.fullmatch(index):
        raise ValueError(f"{index!r} is no index name; give lower-case letters, digits, - and _")
    return index
