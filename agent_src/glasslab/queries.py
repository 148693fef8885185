"""The fixed searches that read the log back: the one text that both the client and the collector know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

EXPORT_PATH: Final = "/services/search/v2/jobs/export"
SESSION_SEARCH: Final = 'search index={index} session_id="{session_id}" | sort 0 _time'
SESSIONS_SEARCH: Final = 'search index={index} sourcetype="agent:session" | sort 0 _time'
# The same for what the hypervisor saw and for the calls of the model, of all sessions since a time (epoch seconds).
SINCE_SEARCH: Final = 'search index={index} sourcetype="{sourcetype}" earliest={earliest} | sort 0 _time'
SINCE_SOURCETYPES: Final = ("agent:session", "agent:llm", "agent:network")
# Letters that mean nothing to SPL: no quote, no wildcard, no space. What is outside is never put into a search.
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_SEARCH: Final = re.compile(
    rf'search index=({_INDEX.pattern}) (?:session_id="({_SESSION_ID.pattern})"|sourcetype="agent:session"'
    rf'|sourcetype="({"|".join(SINCE_SOURCETYPES)})" earliest=([0-9]{{1,12}})) \| sort 0 _time'
)


@dataclass(frozen=True, slots=True)
class Query:
    """What a fixed search asks for: a session's events, or (None) one sourcetype of all sessions, since a time."""

    index: str
    session_id: str | None
    sourcetype: str = "agent:session"
    earliest: int = 0


def session_search(session_id: str, index: str = "agents") -> str:
    """Return the search for all events of one session. Raises ValueError for an id that cannot be one."""
    if not _SESSION_ID.fullmatch(session_id):
        raise ValueError(f"{session_id!r} is no session id; copy it from the end of `glasslab ask`")
    return SESSION_SEARCH.format(index=_checked(index), session_id=session_id)


def sessions_search(index: str = "agents") -> str:
    """Return the search for the start and end events of all sessions."""
    return SESSIONS_SEARCH.format(index=_checked(index))


def since_search(sourcetype: str, earliest: int, index: str = "agents") -> str:
    """Return the search for all events of one of SINCE_SOURCETYPES from a time on (epoch seconds)."""
    if sourcetype not in SINCE_SOURCETYPES or earliest < 0:
        raise ValueError(f"no search for {sourcetype!r} since {earliest}; give one of {', '.join(SINCE_SOURCETYPES)}")
    return SINCE_SEARCH.format(index=_checked(index), sourcetype=sourcetype, earliest=earliest)


def parse_search(text: str) -> Query | None:
    """Return what a search asks for; None when it is not one of the fixed ones."""
    match = _SEARCH.fullmatch(text.strip())
    if not match:
        return None
    return Query(match[1], match[2], match[3] or "agent:session", int(match[4] or 0))


def _checked(index: str) -> str:
    if not _INDEX.fullmatch(index):
        raise ValueError(f"{index!r} is no index name; give lower-case letters, digits, - and _")
    return index
