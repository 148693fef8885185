"""HTTP around protocol, store and search: a server for HEC, one for the management port, one for the page."""

from __future__ import annotations

import dataclasses
import hmac
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from glasslab.collector import hec, search
from glasslab.collector.ack import Acks
from glasslab.collector.config import Config, Token
from glasslab.collector.forms import form, split
from glasslab.collector.hec import Reply
from glasslab.collector.store import BusyError, Store, WriteError
from glasslab.httpserver import BadRequestError, Handler, ServeError, Server, tls_context
from glasslab.queries import EXPORT_PATH

JSON: Final = "application/json; charset=UTF-8"
EVENT_PATHS: Final = frozenset({"", "/event", "/event/1.0"})
RAW_PATHS: Final = frozenset({"/raw", "/raw/1.0"})
ACK_PATHS: Final = frozenset({"/ack"})
HEALTH_PATHS: Final = frozenset({"/health", "/health/1.0"})
FORM_LIMIT: Final = 64 * 1024
REFUSED_BODY_LIMIT: Final = 1024 * 1024
WRITE_SECONDS: Final = 60.0
NO_TOKEN: Final = (401, 403)


class HecServer(Server):
    """The HTTP Event Collector, listening."""

    def __init__(self, config: Config, store: Store, host: str, max_connections: int) -> None:
        """Bind as the configuration says. Raises ServeError."""
        context = tls_context(config.certificate) if config.certificate else None
        super().__init__(host, config.port, HecHandler, context=context, max_connections=max_connections)
        self.config, self.store, self.acks = config, store, Acks()

    def reload(self, config: Config) -> None:
        """Take tokens and indexes from a configuration that was read anew; ports and certificates want a restart."""
        self.config = dataclasses.replace(self.config, tokens=config.tokens, indexes=config.indexes)


class HecHandler(Handler):
    """Answers the paths under /services/collector."""

    server: HecServer

    def do_GET(self) -> None:
        """Tell the health; anything else that exists is for POST."""
        path = self._path()
        if path in HEALTH_PATHS:
            return self._reply(self._health())
        known = path is not None and path in EVENT_PATHS | RAW_PATHS | ACK_PATHS
        self._reply(hec.NOT_ALLOWED if known else hec.NOT_FOUND)

    def _health(self) -> Reply:
        store = self.server.store
        if self.server.closing or store.full:
            return hec.CLOSING if self.server.closing else hec.QUEUES_FULL
        return hec.QUEUE_NEAR if store.near else hec.ACKS_NEAR if self.server.acks.near else hec.HEALTHY

    def do_POST(self) -> None:
        """Take events, or tell acknowledgements."""
        path, query = self._path(), form(split(self.path)[1])
        token = hec.authorize(self.headers.get("Authorization"), query, self.server.config.tokens)
        refusal = hec.NOT_FOUND if path is None else token if isinstance(token, Reply) else None
        limit = self.server.config.content_limit
        try:
            # Also a refused request is read, or its answer would be lost with what came; but not as much of it.
            body = self.read_body(limit if refusal is None else min(limit, REFUSED_BODY_LIMIT))
        except BadRequestError as error:
            code = {411: hec.INVALID_FORMAT.code, 413: 27}.get(error.status, hec.INVALID_FORMAT.code)
            return self._reply(refusal or Reply(error.status, code, str(error)))
        if refusal is not None or isinstance(token, Reply):
            return self._reply(refusal or hec.INVALID_TOKEN)
        if self.server.closing:
            self.close_connection = True
            return self._reply(hec.CLOSING)
        with self.server.answering():
            if path in ACK_PATHS:
                return self._reply(self._acks(body, token, query))
            if path in EVENT_PATHS or path in RAW_PATHS:
                return self._reply(self._take(body, token, query, raw=path in RAW_PATHS))
        self._reply(hec.NOT_ALLOWED if path in HEALTH_PATHS else hec.NOT_FOUND)

    def _path(self) -> str | None:
        """What follows /services/collector in the request's path; None when it begins otherwise."""
        path = split(self.path)[0]
        prefix = "/services/collector"
        found = path == prefix or path.startswith(f"{prefix}/")
        return path.removeprefix(prefix) if found else None

    def _channel(self, query: dict[str, str]) -> str | Reply:
        return hec.channel(self.headers.get("X-Splunk-Request-Channel") or query.get("channel"))

    def _take(self, body: bytes, token: Token, query: dict[str, str], *, raw: bool) -> Reply:
        """Index what a POST holds and return the answer; it is on disk before a 200 is."""
        channel = self._channel(query) if token.use_ack else None
        if isinstance(channel, Reply):
            return channel
        if channel is not None and self.server.acks.full(token.value, channel):
            return hec.ACKS_FULL
        given = query if raw else {}
        base = hec.Event(
            time=time.time(),
            host=given.get("host") or token.host or str(self.headers.get("Host", "")),
            source=given.get("source") or token.source,
            sourcetype=given.get("sourcetype") or token.sourcetype,
            index=given.get("index") or token.index,
            raw="",
        )
        config = self.server.config
        parse = hec.parse_raw if raw else hec.parse_events
        try:
            plain = hec.unpack(body, self.headers.get("Content-Encoding"), config.content_limit)
            events, reply = parse(plain, base, token, config.indexes)
            self.server.store.add(events)
        except hec.BodyError as error:
            return error.reply
        except BusyError:
            return hec.CLOSING if self.server.closing else hec.BUSY
        except WriteError:
            return hec.INTERNAL_ERROR
        if channel is not None and reply is hec.SUCCESS:
            number = self.server.acks.add(token.value, channel)
            return Reply(reply.status, reply.code, reply.text, {"ackId": number})
        return reply

    def _acks(self, body: bytes, token: Token, query: dict[str, str]) -> Reply | bytes:
        if not token.use_ack:
            return hec.ACK_DISABLED
        channel, ids = self._channel(query), hec.parse_acks(body)
        if isinstance(channel, Reply):
            return channel
        if isinstance(ids, Reply):
            return ids
        told = self.server.acks.tell(token.value, channel, ids)
        return search.compact({"acks": told})

    def _reply(self, reply: Reply | bytes) -> None:
        status, body = (200, reply) if isinstance(reply, bytes) else (reply.status, reply.body())
        if status in NO_TOKEN:
            self.close_connection = True  # without a token nobody keeps one of the places between requests
        self.server.set_deadline(self.connection, WRITE_SECONDS)
        self.answer(status, body, JSON)


class SearchServer(Server):
    """The management port, listening."""

    def __init__(self, config: Config, store: Store, tokens: Iterable[str]) -> None:
        """Bind as the configuration says; `tokens` are the ones that may search. Raises ServeError."""
        context = tls_context(config.management_certificate) if config.management_certificate else None
        super().__init__(
            config.management_host, config.management_port, SearchHandler, context=context, max_connections=32
        )
        self.store = store
        self.tokens = [token.encode() for token in tokens]


class SearchHandler(Handler):
    """Answers the one search at the export path."""

    server: SearchServer

    def do_GET(self) -> None:
        """Answer a search in the query string."""
        self._search(form(split(self.path)[1]))

    def do_POST(self) -> None:
        """Answer a search in the form."""
        try:
            body = self.read_body(FORM_LIMIT)
        except BadRequestError as error:
            return self._answer(error.status, search.message("FATAL", str(error)))
        self._search({**form(split(self.path)[1]), **form(body.decode("utf-8", "replace"))})

    def _search(self, parameters: dict[str, str]) -> None:
        if not self._authorized():
            return self._answer(401, search.message("WARN", "call not properly authenticated"))
        if split(self.path)[0] != EXPORT_PATH:
            return self._answer(404, search.message("ERROR", f"Not Found: the collector has {EXPORT_PATH}"))
        query = search.understand(parameters)
        if isinstance(query, bytes):
            return self._answer(400, query)
        with self.server.answering():
            self._answer(200, b"".join(search.results(self.server.store, query)))

    def _authorized(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").strip().partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        # Every token is compared, in constant time, so that the time taken tells nothing.
        matches = [hmac.compare_digest(given, known) for known in self.server.tokens]
        return scheme.lower() == "bearer" and any(matches)

    def _answer(self, status: int, body: bytes) -> None:
        if status in NO_TOKEN:
            self.close_connection = True
        self.server.set_deadline(self.connection, WRITE_SECONDS)
        self.answer(status, body, JSON)


def search_tokens(file: Path) -> list[str]:
    """Return the tokens in a file, one a line. Raises ServeError."""
    try:
        with file.open(encoding="utf-8") as lines:
            tokens = [line.strip() for line in lines.read(FORM_LIMIT).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ServeError(f"cannot read --search-token-file {file}: {reason}; give a file with a token in it") from None
    if not tokens:
        raise ServeError(f"--search-token-file {file} is empty; write a token into it")
    return tokens


def start(config: Config, store: Store, host: str, tokens: list[str], max_connections: int) -> list[Any]:
    """Return the servers, listening and serving: HEC; when somebody may search, the management port and the page.

    Raises ServeError, with nothing left listening.
    """
    servers: list[Server] = [HecServer(config, store, host, max_connections)]
    try:
        if tokens:
            servers.append(SearchServer(config, store, tokens))
        if tokens and config.web:
            # Imported here: without a page there is no need of templates.
            from glasslab.collector.web.server import WebServer

            servers.append(WebServer(config.web, store, config.home, tokens))
    except ServeError:
        for server in servers:
            server.server_close()
        raise
    for server in servers:
        server.start()
    return servers
