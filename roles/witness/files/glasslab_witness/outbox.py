"""What waits for the log, and how far everything has been read: one SQLite file, each step all or nothing.

Frames are sealed into the bytes of their POST when they are queued, in the same transaction that moves the read
positions on. After a kill at any moment the same bytes are sent again at most; nothing is sealed twice, and nothing
that was read is forgotten.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, receipts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One POST: its body, and the receipts in it: lists of [name, session_id, seq, event_id]."""

    number: int
    body: bytes
    receipts: list[Any]


class Outbox:
    """The queue and the state. Used by one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises sqlite3.Error and OSError."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, isolation_level=None, timeout=5)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)
        self.bytes = int(self._database.execute("SELECT coalesce(sum(length(body)), 0) FROM outbox").fetchone()[0])

    def state(self) -> dict[str, Any]:
        """Return the state that was saved last."""
        return {name: json.loads(value) for name, value in self._database.execute("SELECT name, value FROM state")}

    def save(self, state: dict[str, Any], queued: Sequence[tuple[bytes, list[Any]]] = ()) -> None:
        """Save the state and queue bodies with the receipts in them: all of it or nothing. Raises sqlite3.Error."""
        rows = [(name, json.dumps(value)) for name, value in state.items()]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
            self._database.executemany(
                "INSERT INTO outbox (body, receipts) VALUES (?, ?)",
                [(body, json.dumps(receipts)) for body, receipts in queued],
            )
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self.bytes += sum(len(body) for body, _ in queued)

    def oldest(self) -> Batch | None:
        """Return what is to be sent next."""
        row = self._database.execute("SELECT id, body, receipts FROM outbox ORDER BY id LIMIT 1").fetchone()
        return Batch(row[0], row[1], json.loads(row[2])) if row else None

    def sent(self, batch: Batch) -> None:
        """Forget a batch that the log has acknowledged."""
        self._database.execute("DELETE FROM outbox WHERE id = ?", (batch.number,))
        self.bytes -= len(batch.body)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
