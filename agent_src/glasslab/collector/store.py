"""Where events are kept: one SQLite file, written by one thread, on disk before anybody is told so."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from glasslab.collector.hec import Event

FILE: Final = Path("var/lib/splunk/glasslab/events.sqlite3")
MOST_WAITING: Final = 1000
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
COMMIT_EVENTS: Final = 5000
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    host TEXT NOT NULL,
    source TEXT NOT NULL,
    sourcetype TEXT NOT NULL,
    "index" TEXT NOT NULL,
    raw TEXT NOT NULL,
    session_id TEXT,
    fields TEXT,
    received REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_session ON events (session_id, time);
CREATE INDEX IF NOT EXISTS events_by_sourcetype ON events (sourcetype, time);
"""
INSERT: Final = (
    'INSERT INTO events (time, host, source, sourcetype, "index", raw, session_id, fields, received)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT: Final = 'SELECT time, host, source, sourcetype, "index", raw, session_id, fields FROM events'


class StoreError(Exception):
    """The events cannot be opened; the text is one line naming the file and the remedy."""


class BusyError(Exception):
    """More is waiting to be written than may wait."""


class WriteError(Exception):
    """The disk refused; nothing of the POST was kept."""


class _Waiting:
    """The events of one POST on their way to the disk."""

    __slots__ = ("done", "error", "events", "size")

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.size = sum(len(event.raw) for event in events)
        self.done = threading.Event()
        self.error: str | None = None


class Store:
    """The events on disk. `add` returns when they are there; POSTs that wait at the same time share one commit."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, check its integrity and start the writer. Raises StoreError."""
        self.path = path
        self._change = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._closing = False
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = path.with_suffix(".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._writing = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._prepare()
        except BlockingIOError:
            raise StoreError(f"{path} is in use by another collector; stop that one first") from None
        except OSError as error:
            raise StoreError(
                f"cannot write in {path.parent}: {error.strerror}; let the collector's user write"
            ) from None
        except sqlite3.Error as error:
            raise StoreError(f"cannot use {path}: {error}; move the file away or give its user access") from None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        self._writing.execute("PRAGMA journal_mode=WAL")
        self._writing.execute("PRAGMA synchronous=FULL")
        (found,) = self._writing.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"integrity check: {' '.join(found.split())}")
        self._writing.executescript(SCHEMA)

    @property
    def full(self) -> bool:
        """Whether the next POST would be refused."""
        return len(self._waiting) >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES

    def add(self, events: Sequence[Event]) -> None:
        """Keep the events of one POST, all or none, and return when they are on disk.

        Raises BusyError when too much waits already or the store closes, WriteError when the disk refuses.
        """
        if not events:
            return
        waiting = _Waiting(events)
        with self._change:
            if self.full or self._closing:
                raise BusyError
            self._waiting.append(waiting)
            self._waiting_bytes += waiting.size
            self._change.notify()
        waiting.done.wait()
        if waiting.error is not None:
            raise WriteError(waiting.error)

    def _take(self) -> list[_Waiting]:
        with self._change:
            while not self._waiting and not self._closing:
                self._change.wait()
            taken: list[_Waiting] = []
            events = 0
            while self._waiting and (not taken or events < COMMIT_EVENTS):
                taken.append(self._waiting.popleft())
                events += len(taken[-1].events)
                self._waiting_bytes -= taken[-1].size
            return taken

    def _write(self) -> None:
        while taken := self._take():
            error = None
            try:
                self._commit(taken)
            except Exception as problem:  # whatever it is, the POSTs get their answer and the writer goes on
                error = f"{problem}" or type(problem).__name__
                print(f"events not written to {self.path}: {error}", file=sys.stderr, flush=True)
                with contextlib.suppress(sqlite3.Error):
                    self._writing.rollback()
            for waiting in taken:
                waiting.error = error
                waiting.done.set()

    def _commit(self, taken: list[_Waiting]) -> None:
        now = time.time()
        rows = [
            (e.time, e.host, e.source, e.sourcetype, e.index, e.raw, e.session_id, e.fields, now)
            for waiting in taken
            for e in waiting.events
        ]
        self._writing.execute("BEGIN IMMEDIATE")
        self._writing.executemany(INSERT, rows)
        self._writing.execute("COMMIT")  # WAL and synchronous=FULL: the log is synced before this returns

    def select(self, where: str, values: Sequence[str | int]) -> Iterator[Event]:
        """Yield events by time, those of one moment in the order of arrival. `where` is the caller's own SQL text."""
        reading = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)
        try:
            for row in reading.execute(f"{SELECT} WHERE {where} ORDER BY time, id", values):
                yield Event(*row)
        finally:
            reading.close()

    def close(self) -> None:
        """Write what waits, then close the file."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._writing.close()
        self._lock.close()
