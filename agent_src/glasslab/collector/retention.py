"""How long events stay: by their index's age, and by the room that all may take. The oldest go first, by batches.

Of what is too much, the writer who holds most (a HEC token each) loses its own oldest: however much one sends, another
that holds no more than its share of the room keeps all of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from typing import Final

from glasslab.collector.config import Retention

EVERY_SECONDS: Final = 60.0
BATCH: Final = 2000  # rows of one deletion: what is to be written does not wait for more
ROW_BYTES: Final = 500  # what a row takes beside its text, its entries in the indexes included; rather too many
SIZE: Final = f"length(CAST(raw AS BLOB)) + {ROW_BYTES}"
HOLD: Final = (
    "INSERT INTO held (writer, bytes) VALUES (?, ?) ON CONFLICT (writer) DO UPDATE SET bytes = bytes + excluded.bytes"
)
AGED: Final = (
    f'DELETE FROM events WHERE id IN (SELECT id FROM events WHERE "index" = ? AND time < ? ORDER BY time LIMIT {BATCH})'  # noqa: S608  only this module's constants are put in, values are bound
    f" RETURNING writer, {SIZE}"
)
OLDEST: Final = (
    f"SELECT id, {SIZE} FROM events WHERE writer = ? AND id < (SELECT max(id) FROM events) ORDER BY id LIMIT ?"  # noqa: S608  only this module's constants are put in, values are bound
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
        database.execute("BEGIN IMMEDIATE")  # what goes and what its writer holds are one change
        gone: Counter[str] = Counter()
        deleted = 0
        for index, kept in self._retention.seconds.items():
            for writer, size in database.execute(AGED, (index, time.time() - kept)).fetchall():
                gone[writer] += size
                deleted += 1
        over = _used(database) - self._retention.total_bytes
        if over > 0:
            deleted += _make_room(database, over, gone)
        database.executemany(HOLD, [(writer, -size) for writer, size in gone.items()])
        database.execute("COMMIT")
        self._next = time.monotonic() + (0.0 if deleted else EVERY_SECONDS)
        return deleted


def _make_room(database: sqlite3.Connection, over: int, gone: Counter[str]) -> int:
    """Delete the oldest of who holds most, at most a batch and what is over; return how many rows."""
    held = database.execute("SELECT writer, bytes FROM held WHERE bytes > 0 ORDER BY bytes DESC").fetchall()
    for place, (writer, most) in enumerate(held):
        second = held[place + 1][1] if place + 1 < len(held) else 0
        # Down to what the next one holds; of those who hold the same, each its part.
        last, size = _last_over(database, writer, min(over, max(most - second, over // len(held))))
        if last:
            gone[writer] += size
            return database.execute("DELETE FROM events WHERE writer = ? AND id <= ?", (writer, last)).rowcount
    return 0


def _last_over(database: sqlite3.Connection, writer: str, over: int) -> tuple[int, int]:
    """Return the id up to which a writer's oldest rows, at most a batch, take so many bytes, and how many they take.

    The id is 0 when there is but the newest row. Not a batch whatever its size: with large events that would be
    everything, what was acknowledged just now included.
    """
    last, taken = 0, 0
    with contextlib.closing(database.execute(OLDEST, (writer, BATCH))) as rows:
        for number, size in rows:
            last, taken = number, taken + size
            if taken >= over:
                break
    return last, taken


def _used(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
