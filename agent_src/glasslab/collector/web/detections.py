"""What finds something: SQLite forms of the app's detections, one file each, run on the store within bounds.

A form is `etc/apps/APP/sqlite/NAME.sql` under SPLUNK_HOME: one SELECT. A comment on its first line is its title.
Whoever may write there may also change the app; the query can read the events and nothing else.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from glasslab.collector.conf import ConfError, load
from glasslab.collector.store import Store

SECONDS: Final = 2.0  # for one form
MOST_ROWS: Final = 100
MOST_FORMS: Final = 50
SIZE: Final = 64 * 1024


@dataclass(frozen=True)
class Detection:
    """What one form found: rows under column names, or why it could not be run."""

    name: str
    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    more: bool = False
    error: str = ""


def run_all(store: Store, home: Path) -> list[Detection]:
    """Run every form; what one finds or fails at touches no other."""
    files = sorted((home / "etc" / "apps").glob("*/sqlite/*.sql"))[:MOST_FORMS]
    return [_run(store, file) for file in files]


def searches(home: Path) -> list[tuple[str, str]]:
    """Return name and description of the app's saved searches: they are in SPL, and nothing here runs them."""
    try:
        found = load(home, "savedsearches.conf")
    except ConfError:
        return []
    return sorted((name, settings.get("description", "")) for name, settings in found.items() if "search" in settings)


def _run(store: Store, file: Path) -> Detection:
    try:
        text = file.read_text(encoding="utf-8")[:SIZE]
    except (OSError, UnicodeDecodeError) as error:
        return Detection(file.stem, file.stem, error=f"cannot be read: {error}")
    first = text.lstrip().partition("\n")[0]
    title = first.lstrip("- ").strip() if first.startswith("--") else file.stem
    until = time.monotonic() + SECONDS
    try:
        with store.reading() as database:
            database.execute("PRAGMA query_only = 1")
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.set_progress_handler(lambda: int(time.monotonic() > until), 10_000)
            cursor = database.execute(text)
            rows = cursor.fetchmany(MOST_ROWS + 1)
            columns = [name for name, *_ in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning) as error:
        late = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        return Detection(file.stem, title, error=f"took more than {SECONDS:g} s" if late else str(error))
    shown = [["" if value is None else str(value)[:300] for value in row] for row in rows[:MOST_ROWS]]
    return Detection(file.stem, title, columns, shown, len(rows) > MOST_ROWS)
