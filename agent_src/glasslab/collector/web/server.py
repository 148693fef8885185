"""HTTP around the pages: who may look, what may be asked for, and what a browser may do with an answer."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from glasslab.collector.config import Web
from glasslab.collector.forms import form, split
from glasslab.collector.store import Store
from glasslab.collector.web import data, detections, figures, receipt
from glasslab.collector.web.login import Logins
from glasslab.collector.web.render import STATIC, page
from glasslab.httpserver import BadRequestError, Handler, Server, tls_context
from glasslab.views.shown import frames_shown

HTML: Final = "text/html; charset=utf-8"
FORM_LIMIT: Final = 4096
WRITE_SECONDS: Final = 60.0
ROWS: Final = 200  # frames on a page
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a form says that its origin is null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ASSETS: Final = {
    "/static/style.css": "text/css; charset=utf-8",
    "/static/live.js": "text/javascript; charset=utf-8",
    "/static/icon.svg": "image/svg+xml",
}
SESSION: Final = re.compile(r"/sessions/([^/]{1,1000})(?:/frames/([1-9][0-9]{0,5}))?")


class WebServer(Server):
    """The page, listening."""

    def __init__(self, web: Web, store: Store, home: Path, tokens: list[str]) -> None:
        """Bind as the configuration says; `tokens` are the ones that may look. Raises ServeError."""
        context = tls_context(web.certificate, web.key)
        super().__init__(web.host, web.port, WebHandler, context=context, max_connections=64)
        self.store, self.home, self.logins = store, home, Logins(tokens)
        self.detecting = threading.Lock()  # the one page that reads all of the store: one at a time beside HEC


class WebHandler(Handler):
    """Answers with pages."""

    server: WebServer

    def do_GET(self) -> None:
        """Show a page, or the login to somebody who has not logged in."""
        path, query = split(self.path)
        if path in ASSETS:
            return self._send(200, (STATIC / path.rpartition("/")[2]).read_bytes(), ASSETS[path])
        if path == "/login" or not self._may_look():
            # A page that was asked for without a login is the login's: 401, so that no script takes it for an answer.
            status = 200 if path == "/login" else 401
            return self._page(status, "login.html", error="")
        with self.server.answering():
            self._show(path, form(query))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Log in or out."""
        try:
            given = form(self.read_body(FORM_LIMIT).decode("utf-8", "replace"))
        except BadRequestError as error:
            return self._fault(error.status, str(error))
        path = split(self.path)[0]
        if not self._own_origin():
            return self._fault(403, "The form is another site's.")
        if path == "/logout":
            return self._go("/login", self.server.logins.end(self.headers.get("Cookie")))
        if path != "/login":
            return self._fault(405, "Nothing can be changed here.")
        logins, address = self.server.logins, str(self.client_address[0])
        if logins.blocked(address):
            return self._page(429, "login.html", error="Too many attempts. Wait a minute.")
        if not logins.known(given.get("token", "").strip()):
            logins.failed(address)
            return self._page(403, "login.html", error="That is not the search token.")
        self._go("/", logins.begin())

    def _may_look(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() == "bearer":
            return self.server.logins.known(token.strip())
        return self.server.logins.holds(self.headers.get("Cookie"))

    def _own_origin(self) -> bool:
        origin = self.headers.get("Origin")
        fetched = self.headers.get("Sec-Fetch-Site", "same-origin")
        same = origin is None or urlsplit(origin).netloc == self.headers.get("Host")
        return same and fetched in ("same-origin", "none")

    def _show(self, path: str, query: Mapping[str, str]) -> None:
        pages: dict[str, Callable[[Mapping[str, str]], None]] = {
            "": self._sessions,
            "/receipts": self._receipts,
            "/detections": self._detections,
        }
        match = SESSION.fullmatch(path)
        if path in pages:
            pages[path](query)
        elif match and match[2]:
            self._frame(unquote(match[1]), int(match[2]), query)
        elif match:
            self._session(unquote(match[1]), query)
        else:
            self._fault(404, "There is no such page.")

    def _sessions(self, query: Mapping[str, str]) -> None:
        before = query.get("before", "")
        found = data.sessions(self.server.store, before)
        items = [(item, *figures.status_of(item.end, item.last)) for item in found.items]
        self._page(200, "sessions.html", items=items, next=found.next, first=not before)

    def _session(self, session_id: str, query: Mapping[str, str]) -> None:
        frames, complete = data.session(self.server.store, session_id)
        if not frames:
            return self._fault(404, f"Session {session_id} is not in the log.")
        everything, first = query.get("all") == "1", _at_least_1(query.get("from", "1"))
        shown = figures.session(session_id, frames, first, ROWS, everything=everything)
        pages = range(1, shown.events + 1, ROWS) if shown.events > ROWS else ()
        place = {"everything": everything, "first": first, "pages": pages}
        self._page(200, "session.html", s=shown, complete=complete, total=len(frames), **place)

    def _frame(self, session_id: str, number: int, query: Mapping[str, str]) -> None:
        frames, _ = data.session(self.server.store, session_id)
        chosen = frames if query.get("all") == "1" else frames_shown(frames)
        if number > len(chosen):
            return self._fault(404, f"Session {session_id} has no frame {number}.")
        row = figures.row(number, chosen[number - 1], frames[0].time, figures.MOST)
        self._page(200, "frame.html", session_id=session_id, row=row)

    def _receipts(self, query: Mapping[str, str]) -> None:
        found = data.receipts(self.server.store, query.get("before", ""))
        shown = [(frame, receipt.groups(frame.event.get("receipt"))) for frame in found.items]
        self._page(200, "receipts.html", receipts=shown, next=found.next)

    def _detections(self, query: Mapping[str, str]) -> None:
        home = self.server.home
        with self.server.detecting:
            ran = detections.run_all(self.server.store, home)
        self._page(200, "detections.html", detections=ran, searches=detections.searches(home, ran))

    def _page(self, status: int, template: str, **values: object) -> None:
        logged_in = status != 401 and template != "login.html"
        self._send(status, page(template, path=split(self.path)[0], logged_in=logged_in, **values), HTML)

    def _fault(self, status: int, text: str) -> None:
        self._page(status, "fault.html", code=status, text=text)

    def _go(self, where: str, cookie: str) -> None:
        self._send(303, b"", HTML, {"Location": where, "Set-Cookie": cookie})

    def _send(self, status: int, body: bytes, content_type: str, more: Mapping[str, str] | None = None) -> None:
        self.server.set_deadline(self.connection, WRITE_SECONDS)
        if not self._may_look():
            self.close_connection = True  # without the token nobody keeps one of the places between requests
        self.answer(status, body, content_type, {**HEADERS, **(more or {})})


def _at_least_1(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 8 else 1
