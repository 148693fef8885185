"""A server of the lab over streamable HTTP, for any MCP host: the SDK's pieces behind a token, on loopback without TLS.

Every request needs the bearer token. Its Host, and its Origin if it has one, must be names of this server: a page in a
browser that has a name of its own point here (DNS rebinding) is refused even if it knew the token.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Mount
from uvicorn.protocols.http.h11_impl import H11Protocol

from glasslab.httpserver import ServeError, tls_context
from glasslab.jsonfiles import read_text
from glasslab.servers.recorded import PAUSE, RecordedServer
from glasslab.settings_sources import LOOPBACK

PATH: Final = "/mcp"
MAX_BODY: Final = 262_144  # bytes of a request; a path is short
MAX_SESSIONS: Final = 64
MAX_CONNECTIONS: Final = 64
HEAD_SECONDS: Final = 10.0  # for the head of a request, when nothing is being answered
MIN_TOKEN: Final = 16  # characters
_STOP_SECONDS: Final = 2  # for answers under way; a host's open stream is cut
_NAME: Final = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:]{2,39}\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Listen:
    """Where to listen, the token, PEM files for TLS, and further names by which hosts reach this server."""

    host: str
    port: int
    token: str = field(repr=False)
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()


def listen_from(options: argparse.Namespace) -> Listen:
    """Return what the options ask for. Raises ServeError, one line with the remedy."""
    try:
        parts = urlsplit(f"//{options.http}" if ":" in options.http else f"//127.0.0.1:{options.http}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port is None or parts.path or parts.username is not None:
        raise ServeError(f"--http {options.http!r} is no [HOST:]PORT; give for example --http 8765")
    if options.token_file is None:
        raise ServeError("--http needs a bearer token: put one into a file that only you may read, and name it")
    try:
        token = read_text(options.token_file, f"token file {options.token_file}", secret=True).strip()
    except ValueError as error:
        raise ServeError(f"--token-file: {error}") from None
    if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable() and " " not in token):
        what = f"holds no token of at least {MIN_TOKEN} characters; make one: openssl rand -hex 32"
        raise ServeError(f"--token-file: {options.token_file} {what}")
    if host not in LOOPBACK and options.tls_cert is None:
        raise ServeError(
            f"--http {options.http!r}: beyond this machine the token needs TLS; give --tls-cert, --tls-key"
        )
    if options.tls_key is not None and options.tls_cert is None:
        raise ServeError("--tls-key without --tls-cert; give the certificate, too")
    for name in options.allow_host:
        if not _NAME.fullmatch(name):
            raise ServeError(f"--allow-host {name!r} is no NAME or NAME:PORT; give one as hosts write it")
    return Listen(host, port, token, options.tls_cert, options.tls_key, tuple(options.allow_host))


def application(server: RecordedServer, listen: Listen) -> Starlette:
    """Return the ASGI application: nothing of it is reached without the token."""
    inner = server.mcp.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_BODY,
        session_idle_timeout=PAUSE,
        max_sessions=MAX_SESSIONS,
        transport_security=_security(listen),
    )
    return Starlette(
        routes=[Mount("/", RequireAuthMiddleware(inner, []))],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(_OneToken(listen.token))),
            Middleware(AuthContextMiddleware),
        ],
        lifespan=lambda _: server.mcp.session_manager.run(),
    )


def serve(server: RecordedServer, listen: Listen) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. Raises ServeError when it cannot begin."""
    context = tls_context(listen.certificate, listen.key) if listen.certificate else None
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        listener = socket.create_server((listen.host, listen.port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        where = f"{listen.host}:{listen.port}"
        raise ServeError(f"cannot listen on {where}: {os.strerror(error.errno or 0)}; give another --http") from None
    config = uvicorn.Config(
        application(server, listen),
        http=HeadInTime,
        ws="none",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    config.load()
    config.ssl = context  # made and checked here: uvicorn would take a key of any kind, and ask for a password
    port = listener.getsockname()[1]
    print(f"glasslab-mcp: {'https' if context else 'http'}://{listen.host}:{port}{PATH}", flush=True)
    # When all is closed uvicorn raises the signal that ended it once more: that is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with listener, contextlib.suppress(KeyboardInterrupt, SystemExit):
        uvicorn.Server(config).run(sockets=[listener])
    return 0


class HeadInTime(H11Protocol):
    """uvicorn's protocol; but who sends no whole head of a request in time is let go.

    uvicorn waits for ever for the first one, and for the next one as soon as a byte of it is there: MAX_CONNECTIONS
    silent clients would keep every host out, without the token.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own class narrows it in the same way
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on, from when the wait began, unless there is now a request to answer."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _OneToken:
    """Knows one token, by its hash, compared in a time that does not depend on it."""

    def __init__(self, token: str) -> None:
        self._sha256 = hashlib.sha256(token.encode()).digest()

    async def verify_token(self, token: str) -> AccessToken | None:
        given = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        if not hmac.compare_digest(given, self._sha256):
            return None
        return AccessToken(token="", client_id="host", scopes=[])  # the token itself is nobody's further business


def _security(listen: Listen) -> TransportSecuritySettings:
    scheme = "https" if listen.certificate else "http"
    own = f"[{listen.host}]" if ":" in listen.host else listen.host
    names: list[Any] = [own, *listen.names]
    if listen.host in LOOPBACK:  # whatever the port: it may be reached through a forward
        names += ["127.0.0.1", "localhost", "[::1]"]
    hosts = [entry for name in names for entry in ((name,) if re.search(r":\d+$", name) else (name, f"{name}:*"))]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"{scheme}://{host}" for host in hosts])
