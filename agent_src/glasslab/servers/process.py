"""What a server's process does around the server: serve one session on stdin and stdout, leave with its parent."""

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
from mcp import Client
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp_types.version import LATEST_MODERN_VERSION

from glasslab.frames import Chain, Frame
from glasslab.protection import prctl
from glasslab.servers.files import FilesServer
from glasslab.servers.plain import PlainServer
from glasslab.servers.recorded import RecordedServer
from glasslab.wire import RequestMeta

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, however that happens."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the line above took effect
        os._exit(0)


def serve_stdio(server: RecordedServer | PlainServer, *, idle: int) -> NoReturn:
    """Serve one session on stdin and stdout, then end the process: at end of input, or `idle` seconds without any."""
    status = 0
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # its default ends the process, whatever it is waiting for
        signal.alarm(idle)
        server.mcp.middleware.append(_idle_limit(idle))
        server.mcp.run("stdio")
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException as error:
        print(f"glasslab-mcp: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    finally:
        sys.stderr.flush()
        # Not sys.exit: taking the interpreter down costs 150 ms that the caller waits for, and nothing is left to do.
        os._exit(status)


def _idle_limit(idle: int) -> ServerMiddleware[Any]:
    async def restart(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        signal.alarm(idle)
        return await call_next(ctx)

    return restart


class _NoLog:
    """A record for warming up: nothing is sent anywhere, since no session exists yet."""

    def __init__(self, session_id: str) -> None:
        self._chain = Chain(session_id, "mcp")

    @property
    def clock(self) -> int:
        return self._chain.clock

    def merge(self, remote: object) -> None:
        pass

    def commit(self, *frames: Frame) -> None:
        self._chain.seal(frames)

    def close(self) -> None:
        pass


def warm_up(documents: Path) -> None:
    """Run one session a protocol era inside this process, so that what it loads and builds is there in every fork."""
    assumed = RequestMeta("warm-up", 0, 0, None)

    async def sessions() -> None:
        for mode in ("legacy", LATEST_MODERN_VERSION):
            server = FilesServer(documents, _NoLog, assume=assumed)
            async with Client(server.mcp, mode=mode, read_timeout_seconds=10, cache=None) as client:
                await client.list_tools()
                await client.call_tool("list_files", {})
                await client.call_tool("read_file", {"path": "no-such-file"})

    anyio.run(sessions)
