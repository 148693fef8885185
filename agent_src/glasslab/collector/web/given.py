"""What a form gets from the app that it is in: the search's frames and time range, the app's macros and lookups."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from glasslab.collector.conf import ConfError, load, parse
from glasslab.collector.store import KIND, LISTED
from glasslab.collector.web.render import moment
from glasslab.frames import event_hash, sha256_hex

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LOOKUP_BYTES: Final = 1024 * 1024
HASHED: Final = 4 * 1024 * 1024  # characters of an event; a larger one has no hash: parsed it takes twenty times that
_SINCE: Final = re.compile(r"-(\d{1,6})([smhdw])")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX: Final = re.compile(r"index=\"?([a-z0-9][a-z0-9_-]*)\"?")
_AMONG: Final = re.compile(r"\w+ IN \((.*)\)")
_QUOTED: Final = re.compile(r'"([^"\\]*)"')
# `frames`: of the search's index and time range. `listed`: those of them whose kind has an index (agent:session and
# agent:network). `chains`: those that have a number in a writer's chain. Text that is no JSON gives NULL in every
# column, and ends no query. A + keeps SQLite from the index that would answer a view's queries slowly.
VIEW: Final = """
CREATE TEMP VIEW {name} AS SELECT id, time, source, {sourcetype} AS sourcetype, session_id, raw, {kind} AS kind,
    CASE WHEN json_valid(raw) THEN raw END AS event,
    CASE WHEN json_valid(raw) THEN raw ->> 'event_id' END AS event_id,
    CASE WHEN json_valid(raw) THEN raw ->> 'component' END AS component,
    CASE WHEN json_valid(raw) THEN raw ->> 'seq' END AS seq,
    CASE WHEN json_valid(raw) THEN raw ->> 'clock' END AS clock
FROM events WHERE {index} = '{given}' AND time >= {since} AND {more}"""

TECHNIQUES: Final = (
    "SELECT id || ' ' || name FROM glasslab_detections JOIN glasslab_techniques USING (id) WHERE detection = ?"
)


@dataclass(frozen=True)
class Given:
    """An app's saved searches, the values of its macros by name, the reasons of searches that have no form."""

    saved: Mapping[str, Mapping[str, str]]
    macros: Mapping[str, str | float]
    reasons: Mapping[str, str]


def read(home: Path) -> Given:
    """Return what the .conf files under SPLUNK_HOME say; what cannot be read gives nothing."""
    try:
        saved = {name: stanza for name, stanza in load(home, "savedsearches.conf").items() if "search" in stanza}
        macros = {name: _value(stanza.get("definition", "")) for name, stanza in load(home, "macros.conf").items()}
        without = [parse(file.read_text(encoding="utf-8")) for file in (home / "etc/apps").glob("*/sqlite/none.conf")]
    except (ConfError, OSError, UnicodeDecodeError):
        return Given({}, {}, {})
    return Given(
        saved,
        {name: value for name, value in macros.items() if value is not None and _NAME.fullmatch(name)},
        {name: stanza["reason"] for stanzas in without for name, stanza in stanzas.items() if "reason" in stanza},
    )


def _value(definition: str) -> str | float | None:
    """Return what a macro stands for as a parameter: a number, a text, an index, `field IN (...)` as a JSON list."""
    if found := _INDEX.fullmatch(definition) or _QUOTED.fullmatch(definition):
        return found[1]
    if found := _AMONG.fullmatch(definition):
        return json.dumps(_QUOTED.findall(found[1]))
    try:
        return float(definition)
    except ValueError:
        return None


def since(search: Mapping[str, str], now: float) -> float:
    """Return where a search's time range begins; 0 for one over all time."""
    found = _SINCE.fullmatch(search.get("dispatch.earliest_time", ""))
    return now - int(found[1]) * UNITS[found[2]] if found else 0.0


def prepare(database: sqlite3.Connection, given: Given, begin: float) -> None:
    """Give a connection the views and functions that forms are written against."""
    index = str(given.macros.get("glasslab_index", ""))
    index = index if _INDEX.fullmatch(f"index={index}") else "agents"
    numbered = "session_id IS NOT NULL AND typeof(seq) = 'integer'"
    for name, sourcetype, column, more in (
        ("frames", "sourcetype", '+"index"', "1"),
        ("listed", "+sourcetype", '+"index"', LISTED),
        ("chains", "sourcetype", '"index"', numbered),
    ):
        about = {"name": name, "sourcetype": sourcetype, "index": column, "more": more}
        database.execute(VIEW.format(kind=KIND, given=index, since=repr(begin), **about))
    database.create_function("moment", 1, lambda at: moment(at) if isinstance(at, int | float) else None)
    database.create_function("frame_hash", 1, _hash, deterministic=True)


def _hash(raw: str) -> str | None:
    """Return the hash of an event as its writer sent it: as it is kept, but that the log escapes what is not ASCII."""
    if "\\u" not in raw and raw.isascii():
        return sha256_hex(raw.encode())
    try:
        return event_hash(json.loads(raw)) if len(raw) <= HASHED else None
    except (ValueError, RecursionError):
        return None


def tables(database: sqlite3.Connection, folder: Path) -> None:
    """Make a table of each lookup (lookups/NAME.csv): its columns are text."""
    for file in sorted(folder.glob("*.csv")):
        if not _NAME.fullmatch(file.stem) or file.stat().st_size > LOOKUP_BYTES:
            continue
        with file.open(encoding="utf-8", newline="") as lines:
            head, *rows = [row for row in csv.reader(lines) if row] or [[]]
        if head and all(_NAME.fullmatch(name) for name in head):
            database.execute(f"CREATE TEMP TABLE {file.stem} ({', '.join(f'{name} TEXT' for name in head)})")
            marks = ", ".join("?" * len(head))
            values = [(row + [""] * len(head))[: len(head)] for row in rows]
            database.executemany(f"INSERT INTO {file.stem} VALUES ({marks})", values)  # noqa: S608  a name that _NAME has matched; values are bound


def techniques(database: sqlite3.Connection, title: str) -> list[str]:
    """Return what a search is about, by the app's lookups: `LLM06 Excessive Agency`."""
    try:
        return [row[0] for row in database.execute(TECHNIQUES, (title,))]
    except sqlite3.Error:  # an app without these lookups
        return []
