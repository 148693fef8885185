"""Where events are kept: one SQLite file, written by one thread, on disk before anybody is told so."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from glasslab.collector.config import Retention
from glasslab.collector.hec import Event
from glasslab.collector.retention import HOLD, ROW_BYTES, SIZE, Keeper

FILE: Final = Path("var/lib/splunk/glasslab/events.sqlite3")
MOST_WAITING: Final = 1000
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
COMMIT_EVENTS: Final = 5000
NEAR: Final = 0.8  # of what may wait, from which on it is said
CHECK_SECONDS: Final = 20.0
LEAST_FREE: Final = 1024 * 1024  # bytes without which a disk that refused is not asked again
# What a page lists: few events have one of these sourcetypes. A query has to repeat both texts to be answered by it.
KIND: Final = "CASE WHEN json_valid(raw) THEN json_extract(raw, '$.kind') END"
LISTED: Final = "sourcetype IN ('agent:session', 'agent:network')"
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
    received REAL NOT NULL,
    writer TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS held (writer TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
"""
INDEXES: Final = f"""
CREATE INDEX IF NOT EXISTS events_by_session ON events (session_id, time);
CREATE INDEX IF NOT EXISTS events_by_sourcetype ON events (sourcetype, time);
CREATE INDEX IF NOT EXISTS events_by_age ON events ("index", time);
CREATE INDEX IF NOT EXISTS events_by_writer ON events (writer);
CREATE INDEX IF NOT EXISTS events_by_kind ON events ({KIND}, time) WHERE {LISTED};
"""
INSERT: Final = (
    'INSERT INTO events (time, host, source, sourcetype, "index", raw, session_id, fields, received, writer)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT: Final = 'SELECT time, host, source, sourcetype, "index", raw, session_id, fields FROM events'


class StoreError(Exception):
    """The events cannot be opened; the text is one line naming the file and the remedy."""


class BusyError(Exception):
    """More is waiting to be written than may wait."""


class WriteError(Exception):
    """The events could not be written; nothing of the POST was kept."""


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

    def __init__(self, path: Path, retention: Retention | None = None) -> None:
        """Open or create the file, check its integrity and start the writer. Raises StoreError.

        Without `retention` events stay for ever.
        """
        self.path = path
        self._keeper = Keeper(retention) if retention else None
        self._disk_full = False
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
            raise StoreError(
                f"cannot use {path}: {error}; give the collector's user access, or move the file away (a new one is "
                f"made; `sqlite3 FILE .recover` may save what was in it)"
            ) from None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        self._writing.execute("PRAGMA journal_mode=WAL")
        self._writing.execute("PRAGMA synchronous=FULL")
        self._check()
        self._writing.executescript(SCHEMA)
        if "writer" not in {row[1] for row in self._writing.execute("PRAGMA table_info(events)")}:
            # A store of before writers were told apart: what is in it is nobody's, and goes as one writer's would.
            self._writing.execute("BEGIN IMMEDIATE")
            self._writing.execute("ALTER TABLE events ADD COLUMN writer TEXT NOT NULL DEFAULT ''")
            self._writing.execute(f"INSERT INTO held SELECT '', coalesce(sum({SIZE}), 0) FROM events")  # noqa: S608  only a constant of this package is put in
            self._writing.execute("COMMIT")
        self._writing.executescript(INDEXES)

    def _check(self) -> None:
        until = time.monotonic() + CHECK_SECONDS
        self._writing.set_progress_handler(lambda: int(time.monotonic() > until), 100_000)
        try:
            (found,) = self._writing.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            rest = f"sqlite3 {self.path} 'PRAGMA quick_check' checks all of it while the collector is stopped"
            print(f"{self.path} is too large to be checked whole within {CHECK_SECONDS:g} s: {rest}", file=sys.stderr)
            return
        finally:
            self._writing.set_progress_handler(None, 0)
        if found != "ok":
            raise sqlite3.DatabaseError(f"integrity check: {' '.join(found.split())}")

    @property
    def full(self) -> bool:
        """Whether the next POST would be refused: too much waits, or the disk is full."""
        if self._disk_full:
            place = os.statvfs(self.path.parent)
            if place.f_bavail * place.f_frsize < LEAST_FREE:
                return True
        return len(self._waiting) >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES

    @property
    def near(self) -> bool:
        """Whether little more may wait."""
        return len(self._waiting) >= NEAR * MOST_WAITING or self._waiting_bytes >= NEAR * MOST_WAITING_BYTES

    def add(self, events: Sequence[Event]) -> None:
        """Keep the events of one POST, all or none, and return when they are on disk.

        Raises BusyError when too much waits already, the disk is full or the store closes, WriteError when it cannot
        be written.
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
            raise BusyError if self._disk_full else WriteError(waiting.error)

    def _take(self) -> list[_Waiting] | None:
        """Return what is to be written next: nothing when the keeper's look is due, None when the store closes."""
        with self._change:
            while not self._waiting:
                seconds = self._keeper.seconds if self._keeper else None
                if self._closing or seconds == 0:
                    return None if self._closing else []
                self._change.wait(seconds)
            taken: list[_Waiting] = []
            events = 0
            while self._waiting and (not taken or events < COMMIT_EVENTS):
                taken.append(self._waiting.popleft())
                events += len(taken[-1].events)
                self._waiting_bytes -= taken[-1].size
            return taken

    def _write(self) -> None:
        while (taken := self._take()) is not None:
            error = self._try(functools.partial(self._commit, taken), "events not written to") if taken else None
            for waiting in taken:
                waiting.error = error
                waiting.done.set()
            # Under load too, between commits: a log that is never idle is the one that has to be kept small.
            if self._keeper and not self._keeper.seconds:
                self._try(functools.partial(self._keeper.look, self._writing), "old events not deleted from")

    def _try(self, work: Callable[[], object], failed: str) -> str | None:
        """Do what writes; return why it failed. Whatever it is, the POSTs get their answer and the writer goes on."""
        try:
            work()
            self._disk_full = False
        except Exception as problem:
            self._disk_full = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            error = f"{problem}" or type(problem).__name__
            print(f"{failed} {self.path}: {error}", file=sys.stderr, flush=True)
            with contextlib.suppress(sqlite3.Error):
                self._writing.rollback()
            return error
        return None

    def _commit(self, taken: list[_Waiting]) -> None:
        now = time.time()
        rows = [
            (e.time, e.host, e.source, e.sourcetype, e.index, e.raw, e.session_id, e.fields, now, e.writer)
            for waiting in taken
            for e in waiting.events
        ]
        held: Counter[str] = Counter()
        for waiting in taken:
            for e in waiting.events:
                held[e.writer] += ROW_BYTES + (len(e.raw) if e.raw.isascii() else len(e.raw.encode()))
        self._writing.execute("BEGIN IMMEDIATE")
        self._writing.executemany(INSERT, rows)
        self._writing.executemany(HOLD, list(held.items()))
        self._writing.execute("COMMIT")  # WAL and synchronous=FULL: the log is synced before this returns

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that can read and nothing else."""
        with contextlib.closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as database:
            yield database

    def select(self, where: str, values: Sequence[str | int]) -> Iterator[Event]:
        """Yield events by time, those of one moment in the order of arrival. `where` is the caller's own SQL text."""
        with self.reading() as database:
            for row in database.execute(f"{SELECT} WHERE {where} ORDER BY time, id", values):
                yield Event(*row)

    def close(self) -> None:
        """Write what waits, then close the file."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._writing.close()
        self._lock.close()
