"""`glasslab-mcp files` over stdio, for many over a unix socket, or over HTTP; the lab's other servers over stdio."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glasslab.keys import KeyFileError
from glasslab.protection import protect
from glasslab.recorder import Recorder
from glasslab.servers.sandbox import Sandbox, SandboxError
from glasslab.settings import ServerSettings, SettingsError
from glasslab.settings_approvals import OutboxSettings
from glasslab.settings_context import NotesSettings

if TYPE_CHECKING:
    from glasslab.servers.recorded import RecordedServer

DEFAULT_SPARES = 2
DEFAULT_CHILDREN = 24  # four tasks each at most
DEFAULT_IDLE = 900


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return the exit status: 0 when its work ended, 2 when the configuration cannot be used."""
    options = _parser().parse_args(arguments)
    if options.server != "files":
        return _plain(options)
    try:
        settings = ServerSettings.load()
        Sandbox(settings.lab_documents).close()
        recorder = Recorder(settings.hec(), "mcp", settings.key(), trace=settings.trace)
    except (SettingsError, KeyFileError, SandboxError) as error:
        print(f"glasslab-mcp: {error}", file=sys.stderr)
        return 2
    from glasslab.servers import process
    from glasslab.servers.files import FilesServer

    protect()
    if options.http:
        return _serve_http(options, FilesServer(settings.lab_documents, recorder.open, standalone=True))
    if options.stdio:
        server = FilesServer(settings.lab_documents, recorder.open, standalone=options.standalone)
        process.serve_stdio(server, idle=options.idle)
    from glasslab.servers.parent import Parent, SocketError, listening_socket

    try:
        allowed = {0, os.geteuid(), *map(_uid, options.allow_uid)}
        listener = listening_socket(options.socket)
        parent = Parent(
            listener,
            settings.lab_documents,
            recorder,
            allowed=allowed,
            spares=options.spares,
            children=options.children,
            idle=options.idle,
        )
    except (SocketError, ValueError) as error:
        print(f"glasslab-mcp: {error}", file=sys.stderr)
        return 2
    try:
        return parent.run()
    finally:
        if options.socket:
            options.socket.unlink(missing_ok=True)


def _serve_http(options: argparse.Namespace, server: RecordedServer) -> int:
    from glasslab.httpserver import ServeError
    from glasslab.servers import http

    try:
        return http.serve(server, http.listen_from(options))
    except ServeError as error:
        print(f"glasslab-mcp: {error}", file=sys.stderr)
        return 2


def _plain(options: argparse.Namespace) -> int:
    """Serve one session of a server that keeps no record of its own, on stdin and stdout."""
    from glasslab.servers import process
    from glasslab.servers.notes import Notes
    from glasslab.servers.outbox import Outbox
    from glasslab.servers.weather import Weather

    if not options.stdio:
        print(f"glasslab-mcp: {options.server} serves stdin and stdout only: give --stdio", file=sys.stderr)
        return 2
    try:
        if options.server == "notes":
            process.serve_stdio(Notes(NotesSettings.load().lab_notes), idle=options.idle)
        if options.server == "outbox":
            settings = OutboxSettings.load()
            process.serve_stdio(Outbox(settings.lab_outbox, settings.outbox_recipients), idle=options.idle)
        process.serve_stdio(Weather(), idle=options.idle)
    except (SettingsError, SandboxError) as error:
        print(f"glasslab-mcp: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glasslab-mcp",
        description="An MCP server of the lab's: its documents, notes, an outbox, the weather. "
        "Its settings come from the environment.",
    )
    parser.add_argument("server", choices=["files", "notes", "outbox", "weather"], help="which server to run")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--stdio", action="store_true", help="serve one session on stdin and stdout")
    where.add_argument("--socket", type=Path, metavar="PATH", help="serve on this unix socket (default: systemd's)")
    where.add_argument("--http", metavar="[HOST:]PORT", help="serve any MCP host over streamable HTTP (--standalone)")
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="serve a host that is not this lab's agent: the server names the sessions of the record itself",
    )
    parser.add_argument(
        "--allow-uid",
        action="append",
        default=[],
        metavar="USER",
        help="user, by name or number, that may connect beside root and the server's own (repeatable)",
    )
    parser.add_argument("--spares", type=_whole_number(1, 64), default=DEFAULT_SPARES, help="children forked ahead")
    parser.add_argument(
        "--children",
        type=_whole_number(1, 1024),
        default=DEFAULT_CHILDREN,
        help="most children at once; others wait",
    )
    parser.add_argument(
        "--idle",
        type=_whole_number(1, 86400),
        default=DEFAULT_IDLE,
        help="seconds without a request that end it",
    )
    http = parser.add_argument_group("with --http")
    http.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token (required)")
    http.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM certificate; required beyond loopback")
    http.add_argument("--tls-key", type=Path, metavar="FILE", help="its PEM key, where that is another file")
    http.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME[:PORT]",
        help="a further name that hosts reach this server by (repeatable)",
    )
    return parser


def _whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not lowest <= number <= highest:
            raise ValueError(text)
        return number

    parse.__name__ = f"whole number from {lowest} to {highest}"  # argparse puts it into its message
    return parse


def _uid(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"--allow-uid {user!r}: there is no such user on this machine") from None


if __name__ == "__main__":
    sys.exit(main())
