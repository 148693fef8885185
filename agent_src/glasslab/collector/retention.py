"""How long events stay: by their index's age, and by the room that all may take. The oldest go first, by batches."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Final

from glasslab.collector.config import Retention

EVERY_SECONDS: Final = 60.0
BATCH: Final = 2000  # rows of one deletion: what is to be written does not wait for more
ROW_BYTES: Final = 500  # what a row takes beside its text, its entries in the indexes included; rather too many
DELETE: Final = "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE"
OLDEST: Final = (
    "SELECT id, length(CAST(raw AS BLOB)) FROM events WHERE id < (SELECT max(id) FROM events) ORDER BY id LIMIT ?"
)


class Keeper:
    """Deletes what is to go. The file does not shrink: what is freed is used for what comes."""

    def __init__(self, retention: Retention) -> None:
        """Keep the rules; the first look is due at once."""
        self._retention = retention
        self._next = 0.0

    @property
    def seconds(self) -> float:
        """Seconds until the next look is due, 0 when it is."""
        return max(0.0, self._next - time.monotonic())

    def look(self, database: sqlite3.Connection) -> int:
        """Delete at most a batch for each rule; return how many rows. It is due again at once while there were some."""
        deleted = 0
        for index, kept in self._retention.seconds.items():
            rule = f'{DELETE} "index" = ? AND time < ? ORDER BY time LIMIT {BATCH})'
            deleted += database.execute(rule, (index, time.time() - kept)).rowcount
        over = _used(database) - self._retention.total_bytes
        if over > 0:
            deleted += database.execute("DELETE FROM events WHERE id <= ?", (_last_over(database, over),)).rowcount
        self._next = time.monotonic() + (0.0 if deleted else EVERY_SECONDS)
        return deleted


def _last_over(database: sqlite3.Connection, over: int) -> int:
    """Return the id up to which the oldest rows, at most a batch, take so many bytes; 0 when there is but the newest.

    Not a batch whatever its size: with large events that would be everything, what was acknowledged just now included.
    """
    last = 0
    with contextlib.closing(database.execute(OLDEST, (BATCH,))) as rows:
        for number, size in rows:
            last, over = number, over - size - ROW_BYTES
            if over <= 0:
                break
    return last


def _used(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
