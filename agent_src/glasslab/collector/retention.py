"""How long events stay: by their index's age, and by the room that all may take. The oldest go first, by batches."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from glasslab.collector.config import Retention

EVERY_SECONDS: Final = 60.0
BATCH: Final = 2000  # rows of one deletion: what is to be written does not wait for more
DELETE: Final = "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE"


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
        if _used(database) > self._retention.total_bytes:
            deleted += database.execute(f"{DELETE} 1 ORDER BY id LIMIT {BATCH})").rowcount
        self._next = time.monotonic() + (0.0 if deleted else EVERY_SECONDS)
        return deleted


def _used(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
