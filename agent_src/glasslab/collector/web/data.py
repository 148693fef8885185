"""What the pages need out of the store. Every query is answered by an index and gives bounded rows and bytes.

An event may have 10 MB, and parsed JSON takes twenty times its text: the page shares its process with HEC.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from glasslab.collector.store import KIND, LISTED, Store

PAGE: Final = 50  # sessions or receipts on a page
MOST_EVENTS: Final = 5000  # of one session
MOST_BYTES: Final = 4 * 1024 * 1024  # of all that is shown at once
FRAME_BYTES: Final = 1024 * 1024  # of one event; a receipt of 334 probes has a tenth of it
LISTED_BYTES: Final = 64 * 1024  # of one event that the list of sessions looks into
TOO_LARGE: Final = "too large to show here"  # in the place of its text, and no JSON
# The first value is how many bytes of an event are read. length() of a text would end at a NUL, what is read does not.
SELECT: Final = (
    "SELECT id, time, sourcetype, source,"
    " CASE WHEN length(CAST(raw AS BLOB)) <= ? THEN raw ELSE 'too large to show here' END FROM events WHERE"
)


@dataclass(frozen=True)
class Frame:
    """One event out of the store; `event` is its JSON, {} when it is none."""

    id: int
    time: float
    sourcetype: str
    source: str
    raw: str

    @cached_property
    def event(self) -> Mapping[str, Any]:
        """The event's JSON object, {} when it is none."""
        try:
            value = json.loads(self.raw)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Listed:
    """A session in the list: its start, its end when there is one, its question, and when its last event is from."""

    session_id: str
    start: Frame
    end: Frame | None
    question: str | None
    last: float


@dataclass(frozen=True)
class Page[Item]:
    """Some items, newest first, and where the next page begins (None: there is none)."""

    items: list[Item] = field(default_factory=list)
    next: str | None = None


def _newest(database: sqlite3.Connection, kind: str, before: str, most: int) -> Page[Frame]:
    """Return frames of a kind from before a place `TIME-ID` that an earlier page gave ("" for the newest).

    A page ends after PAGE frames or MOST_BYTES, whichever is first; the next one goes on from there.
    """
    time, _, number = before.partition("-")
    try:
        place = (float(time), int(number)) if before else (1e12, 0)
    except (ValueError, OverflowError):
        place = (1e12, 0)
    rows = database.execute(
        f"{SELECT} {LISTED} AND {KIND} = ? AND (time, id) < (?, ?) ORDER BY time DESC, id DESC LIMIT {PAGE + 1}",
        (most, kind, *place),
    )
    frames, complete = _bounded(rows, PAGE)
    return Page(frames, None if complete else f"{frames[-1].time!r}-{frames[-1].id}")


def _bounded(rows: Iterable[tuple[Any, ...]], most: int) -> tuple[list[Frame], bool]:
    """Return so many frames of at most MOST_BYTES together, and whether these are all."""
    frames: list[Frame] = []
    size = 0
    for row in rows:
        size += len(row[-1].encode("utf-8", "surrogatepass"))
        if len(frames) == most or size > MOST_BYTES:
            return frames, False
        frames.append(Frame(*row))
    return frames, True


def sessions(store: Store, before: str = "") -> Page[Listed]:
    """Return the sessions that started last."""
    with store.reading() as database:
        starts = _newest(database, "session.start", before, LISTED_BYTES)
        found: dict[str, Listed] = {}
        for start in starts.items:
            (session_id,) = database.execute("SELECT session_id FROM events WHERE id = ?", (start.id,)).fetchone()
            if session_id is not None and session_id not in found:
                found[session_id] = _listed(database, session_id, start)
    return Page(list(found.values()), starts.next)


def _listed(database: sqlite3.Connection, session_id: str, start: Frame) -> Listed:
    # The + keeps SQLite from an index of all sessions' events of that sourcetype: a session's own are few.
    of = (LISTED_BYTES, session_id)
    of_session = f"{SELECT} session_id = ? AND +sourcetype ="
    rows = database.execute(f"{of_session} 'agent:session' ORDER BY time DESC, id DESC LIMIT 20", of)
    end = next((frame for frame in (Frame(*row) for row in rows) if frame.event.get("kind") == "session.end"), None)
    first = database.execute(f"{of_session} 'agent:trace' ORDER BY time, id LIMIT 1", of).fetchone()
    asked = Frame(*first) if first else None
    question = TOO_LARGE if asked and asked.raw == TOO_LARGE else asked.event.get("question") if asked else None
    (last,) = database.execute("SELECT max(time) FROM events WHERE session_id = ?", (session_id,)).fetchone()
    return Listed(session_id, start, end, question if isinstance(question, str) else None, last)


def session(store: Store, session_id: str) -> tuple[list[Frame], bool]:
    """Return a session's events in order of time, and whether these are all (at most MOST_EVENTS, MOST_BYTES)."""
    query = f"{SELECT} session_id = ? ORDER BY time, id LIMIT {MOST_EVENTS + 1}"
    with store.reading() as database:
        return _bounded(database.execute(query, (FRAME_BYTES, session_id)), MOST_EVENTS)


def receipts(store: Store, before: str = "") -> Page[Frame]:
    """Return the receipts of the network's isolation, the newest first."""
    with store.reading() as database:
        return _newest(database, "network.receipt", before, FRAME_BYTES)
