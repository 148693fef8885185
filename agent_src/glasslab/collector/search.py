"""The one search that the collector answers, in the shape in which Splunk answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from glasslab.collector.hec import Event
from glasslab.collector.store import Store
from glasslab.queries import EXPORT_PATH, SESSION_SEARCH, SESSIONS_SEARCH, SINCE_SEARCH, Query, parse_search

PARAMETERS: Final = frozenset({"search", "output_mode", "preview"})


def compact(value: object) -> bytes:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def message(kind: str, text: str) -> bytes:
    """Return an error as Splunk's REST interface words one."""
    return compact({"messages": [{"type": kind, "text": text}]})


def understand(parameters: Mapping[str, str]) -> Query | bytes:
    """Return what a request asks for, or the body of the 400 that refuses it."""
    unknown = sorted(set(parameters) - PARAMETERS)
    if unknown:
        return message("FATAL", f"The collector knows no parameter {', '.join(unknown)}.")
    if parameters.get("output_mode") != "json":
        return message("FATAL", "The collector answers output_mode=json only.")
    query = parse_search(parameters.get("search", ""))
    if query is None:
        fixed = f"{SESSION_SEARCH} (or {SESSIONS_SEARCH}, or {SINCE_SEARCH})".replace("{", "").replace("}", "")
        return message("FATAL", f"The collector answers one search at {EXPORT_PATH}: {fixed}")
    return query


def results(store: Store, query: Query) -> Iterator[bytes]:
    """Yield the lines of an export: one JSON object for each event, the last one marked `lastrow`."""
    if query.session_id is None:
        where = 'sourcetype = ? AND +"index" = ? AND time >= ?'  # by the sourcetype's index, not by the age's
        events = store.select(where, (query.sourcetype, query.index, query.earliest))
    else:
        events = store.select('session_id = ? AND +"index" = ?', (query.session_id, query.index))
    offset, held = 0, next(events, None)
    if held is None:
        yield b'{"preview":false,"lastrow":true}\n'
    while held is not None:
        following = next(events, None)
        line: dict[str, Any] = {"preview": False, "offset": offset}
        if following is None:
            line["lastrow"] = True
        yield compact({**line, "result": _result(held)}) + b"\n"
        offset, held = offset + 1, following


def _result(event: Event) -> dict[str, Any]:
    when = datetime.fromtimestamp(event.time, UTC)
    return {
        "_raw": event.raw,
        "_time": when.strftime("%Y-%m-%d %H:%M:%S.") + f"{when.microsecond // 1000:03d} UTC",
        "host": event.host,
        "index": event.index,
        "source": event.source,
        "sourcetype": event.sourcetype,
        **({} if event.session_id is None else {"session_id": event.session_id}),
    }
