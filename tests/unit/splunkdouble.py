"""A double of Splunk's management port, as far as `make verify-splunk` asks it. It runs no SPL.

A saved search of the app on one host's frames it answers by the search's form in SQLite.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from glasslab.collector.store import SCHEMA
from glasslab.collector.web import detections, given
from glasslab.httpserver import Handler, Server, tls_context

TOKEN = "live-token"
STUDIO = {
    "dataSources": {
        "ds_base": {
            "type": "ds.search",
            "options": {"query": "index=agents $session$", "queryParameters": {"earliest": "$time.earliest$"}},
        },
        "ds_more": {"type": "ds.chain", "name": "chained", "options": {"extend": "ds_base", "query": "| stats count"}},
        "ds_test": {"type": "ds.test", "options": {}},
    }
}
VIEWS = {
    "of_studio": f'<dashboard version="2"><definition><![CDATA[{json.dumps(STUDIO)}]]></definition></dashboard>',
    "simple": "<form><row><panel><table><search><query>index=agents $x$ | table a</query><earliest>-1h</earliest>"
    "</search></table></panel></row></form>",
}
OF_HOST = re.compile(r'(`glasslab_index`) host="([^"]+)"')
COUNT = re.compile(r'search index=\S+ host="([^"*]+)\*" \| stats count')
FIND = re.compile(r'search index=(\S+) "([^"*]+)\*"')


class _Frames:
    """Some rows, as a store would give them to be read."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.executescript(SCHEMA)
            database.executemany(f"INSERT INTO events VALUES ({', '.join('?' * 11)})", self.rows)
            yield database


class SplunkDouble(Server):
    """Listens on a free port. `database` is the collector's, whose events it finds; `fails`: what none may hold."""

    def __init__(self, certificate: Path, database: Path, saved: dict[str, str], home: Path) -> None:
        super().__init__("127.0.0.1", 0, _Handler, context=tls_context(certificate))
        self.database, self.saved, self.views, self.home = database, saved, dict(VIEWS), home
        self.fails = "no such text"
        self.warns = ""
        self.searches: list[tuple[str, str]] = []
        self.start()

    def _formed(self, text: str, host: str) -> list[dict[str, str]]:
        name = next(name for name, saved in self.saved.items() if saved == text)
        with sqlite3.connect(self.database) as database:
            rows = database.execute("SELECT * FROM events WHERE host = ?", (host,)).fetchall()
        frames: Any = _Frames(rows)
        forms = (self.home / "etc/apps/glasslab/sqlite").glob("*.sql")
        form = next(file for file in forms if file.read_text(encoding="utf-8").startswith(f"-- {name}\n"))
        found = detections.run_one(frames, form, given.read(self.home), 60.0)
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def results(self, search: str) -> list[dict[str, str]]:
        if of_host := OF_HOST.search(search):
            return self._formed(OF_HOST.sub(r"\1", search), of_host[2])
        if counted := COUNT.match(search):
            with sqlite3.connect(self.database) as database:
                query = "SELECT count(*) FROM events WHERE host LIKE ? || '%'"
                return [{"count": str(database.execute(query, (counted[1],)).fetchone()[0])}]
        match = FIND.match(search)
        if not match:
            return [{"count": "1"}]
        with sqlite3.connect(self.database) as database:
            rows = database.execute(
                'SELECT raw, printf("%.6f", time), host, source, sourcetype, "index" FROM events'
                ' WHERE "index" = ? AND instr(raw, ?)',
                (match[1], match[2]),
            ).fetchall()
        return [dict(zip(("_raw", "when", "host", "source", "sourcetype", "index"), row, strict=True)) for row in rows]


class _Handler(Handler):
    server: SplunkDouble

    def _say(self, status: int, value: dict[str, Any]) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def _allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self._say(401, {"messages": [{"type": "WARN", "text": "call not properly authenticated"}]})
        return False

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._allowed():
            return
        if path == "/services/server/info":
            content: dict[str, Any] = {"version": "10.4.4", "build": "abc", "product_type": "enterprise"}
            self._say(200, {"entry": [{"name": "server-info", "content": content}]})
        elif path == "/servicesNS/nobody/glasslab/saved/searches":
            entries = [{"name": name, "content": {"search": text}} for name, text in self.server.saved.items()]
            foreign = {"name": "of another app", "acl": {"app": "search"}, "content": {"search": "index=x"}}
            self._say(200, {"entry": [*entries, foreign]})
        elif path == "/servicesNS/nobody/glasslab/data/ui/views":
            views = self.server.views.items()
            self._say(200, {"entry": [{"name": name, "content": {"eai:data": source}} for name, source in views]})
        else:
            self._say(404, {"messages": [{"type": "ERROR", "text": "Not Found"}]})

    def do_POST(self) -> None:
        body = self.read_body(100_000).decode()
        if not self._allowed():
            return
        form = {name: values[-1] for name, values in parse_qs(body).items()}
        self.server.searches.append((form["search"], form["earliest_time"]))
        places = [f"/servicesNS/nobody/{app}/search/jobs" for app in ("glasslab", "search")]
        if urlsplit(self.path).path not in places or form["exec_mode"] != "oneshot":
            self._say(404, {"messages": [{"type": "ERROR", "text": "Not Found"}]})
        elif self.server.fails in form["search"]:
            self._say(400, {"messages": [{"type": "FATAL", "text": "Unknown search command | 'sats'."}]})
        else:
            messages = [{"type": "INFO", "text": "ok"}]
            if self.server.warns and self.server.warns in form["search"]:
                messages.append({"type": "WARN", "text": "The lookup table is not there."})
            self._say(200, {"messages": messages, "results": self.server.results(form["search"])})
