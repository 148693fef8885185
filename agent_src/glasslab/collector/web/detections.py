"""What finds something: SQLite forms of the app's searches, one file each, run on the store within bounds.

A form is `etc/apps/APP/sqlite/NAME.sql` under SPLUNK_HOME: one SELECT (see `given` for what it may select from). The
comment on its first line is the name of the saved search that it stands for: description and time range are that one's.
Whoever may write there may also change the app; the query can read the events and nothing else.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from glasslab.collector.store import Store
from glasslab.collector.web import given
from glasslab.collector.web.given import Given

SECONDS: Final = 2.0  # for one form
ALL_SECONDS: Final = 15.0  # for all of them
PARTS: Final = 3.0
MOST_ROWS: Final = 100
MOST_FORMS: Final = 50
SIZE: Final = 64 * 1024


@dataclass(frozen=True)
class Detection:
    """What one form found: rows under column names, or why it could not be run."""

    name: str
    title: str
    description: str = ""
    since: str = ""
    techniques: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    more: bool = False
    error: str = ""


def run_all(store: Store, home: Path) -> list[Detection]:
    """Run every form, in the order of the saved searches; what one finds or fails at touches no other."""
    files = sorted((home / "etc" / "apps").glob("*/sqlite/*.sql"))[:MOST_FORMS]
    around, until = given.read(home), time.monotonic() + ALL_SECONDS
    order = {name: number for number, name in enumerate(around.saved)}
    ran = []
    for number, file in enumerate(files):
        # More than an equal part, for most are quick; less and less where they are not, and none is left out.
        share = PARTS * (until - time.monotonic()) / (len(files) - number)
        ran.append(run_one(store, file, around, max(0.0, min(SECONDS, share))))
    return sorted(ran, key=lambda one: (order.get(one.title, len(order)), one.name))


def searches(home: Path, ran: list[Detection]) -> list[tuple[str, str, str]]:
    """Return name, description and, where there is one, the reason of each saved search that has no form."""
    around, titles = given.read(home), {one.title for one in ran}
    left = [(name, search) for name, search in around.saved.items() if name not in titles]
    return [(name, search.get("description", ""), around.reasons.get(name, "")) for name, search in left]


def run_one(store: Store, file: Path, around: Given, seconds: float = SECONDS) -> Detection:
    """Run the form in a file for so many seconds at the most."""
    try:
        text = file.read_text(encoding="utf-8")[:SIZE]
    except (OSError, UnicodeDecodeError) as error:
        return Detection(file.stem, file.stem, error=f"cannot be read: {error}")
    first = text.lstrip().partition("\n")[0]
    title = first.lstrip("- ").strip() if first.startswith("--") else file.stem
    search = around.saved.get(title, {})
    about = Detection(file.stem, title, search.get("description", ""), search.get("dispatch.earliest_time", ""))
    now, until = time.time(), time.monotonic() + seconds
    try:
        with store.reading() as database:
            given.prepare(database, around, given.since(search, now))
            given.tables(database, file.parents[1] / "lookups")
            about = replace(about, techniques=given.techniques(database, title))
            database.execute("PRAGMA query_only = 1")
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.set_progress_handler(lambda: int(time.monotonic() > until), 10_000)
            cursor = database.execute(text, {**around.macros, "now": now})
            rows = cursor.fetchmany(MOST_ROWS + 1)
            columns = [name for name, *_ in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning, OSError, ValueError) as error:
        late = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        return replace(about, error=f"took more than {seconds:.2g} s" if late else str(error))
    shown = [["" if value is None else str(value)[:300] for value in row] for row in rows[:MOST_ROWS]]
    # A column in which no row has anything says nothing, and takes the room of those that do.
    used = [number for number in range(len(columns)) if any(row[number] for row in shown)]
    shown = [[row[number] for number in used] for row in shown]
    return replace(about, columns=[columns[number] for number in used], rows=shown, more=len(rows) > MOST_ROWS)
