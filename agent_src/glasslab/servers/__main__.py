"""`glasslab-mcp files`: the files server, for one session over stdio or for many over a unix socket."""

import argparse
import os
import pwd
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from glasslab.keys import KeyFileError
from glasslab.protection import protect
from glasslab.recorder import Recorder
from glasslab.servers.sandbox import Sandbox, SandboxError
from glasslab.settings import ServerSettings, SettingsError

DEFAULT_SPARES = 2
DEFAULT_CHILDREN = 24  # four tasks each at most
DEFAULT_IDLE = 900


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return the exit status: 0 when its work ended, 2 when the configuration cannot be used."""
    options = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glasslab-mcp", description="MCP server of the lab's documents. Its settings come from the environment."
    )
    parser.add_argument("server", choices=["files"], help="which server to run")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--stdio", action="store_true", help="serve one session on stdin and stdout")
    where.add_argument("--socket", type=Path, metavar="PATH", help="serve on this unix socket (default: systemd's)")
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
