"""MCP host: start or reach a tool server, learn its tools, call them, end it. Plain calls outside, the SDK inside.

Nothing here decides anything: what may be called, and whether the definitions are the pinned ones, is the agent's.
The module is cheap to import; the SDK is loaded by `connect`, so that a server's process already starts meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, Self

from glasslab.sensitive import redacted
from glasslab.tooltypes import (
    MAX_RESULT_BYTES,
    LogFailedAtServer,
    ServerCommand,
    ServerInfo,
    ServerUrl,
    ToolResult,
    ToolServerError,
)
from glasslab.waiting import end_child

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from anyio.from_thread import BlockingPortal

    from glasslab.mcp_session import HostSession

REQUEST_TIMEOUT: Final = 30.0  # seconds; more than the server's own deadline towards its log
_CLOSE_GRACE: Final = 2.0  # seconds for a server to leave after its connection ended, and again after SIGTERM
_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TZ", "USER")
_STDERR_TAIL: Final = 2_000


def lab_server(name: str, env: Mapping[str, str]) -> ServerCommand:
    """Return the command of one of the lab's own servers (files, notes, outbox, weather), run by this very Python."""
    return ServerCommand(sys.executable, ("-I", "-m", "glasslab.servers", name, "--stdio"), env, ("HEC_TOKEN_MCP",))


def files_server(env: Mapping[str, str]) -> ServerCommand:
    """Return the command of the lab's own files server."""
    return lab_server("files", env)


class Toolbox:
    """One connection to one tool server, for one session. `start` is optional before `connect`; always `close`."""

    def __init__(
        self,
        server: ServerCommand | ServerUrl | str,
        *,
        revision: str = "auto",
        timeout: float = REQUEST_TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        """`server` is a command, an address, or `unix:PATH`; `revision` auto or MCP's; `timeout` seconds a request."""
        if isinstance(server, str) and not server.startswith("unix:/"):
            raise ToolServerError(f"MCP_SERVER {server!r} is not understood: use stdio or unix:/PATH/OF/SOCKET")
        self._server = server.of_one_connection() if isinstance(server, ServerUrl) else server
        self._revision = revision
        self._timeout = timeout
        self._max_result_bytes = max_result_bytes
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._closed = False  # for good: a wait that was given up may still be on its way
        self._socket: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._portal: BlockingPortal | None = None
        self._session: HostSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child, when this toolbox started one."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child or reach the socket, and return at once. Raises ToolServerError."""
        if self._socket is not None or self._session is not None:
            return
        if isinstance(self._server, ServerUrl):
            return  # the first request reaches it
        if isinstance(self._server, str):
            self._reach(self._server.removeprefix("unix:"))
        else:
            with self._lock:
                self._still_open()
                self._spawn(self._server)

    def _still_open(self) -> None:
        if self._closed:
            raise ToolServerError("the connection to the tool server was closed meanwhile")

    def _reach(self, path: str) -> None:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(self._timeout)
        try:
            client.connect(path)
        except OSError as error:
            client.close()
            raise ToolServerError(f"tool server socket {path} cannot be reached: {error.strerror or error}") from error
        self._socket = client

    def _spawn(self, server: ServerCommand) -> None:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(server.env)
        try:
            self._socket, theirs = socket.socketpair()
            with theirs:
                self._stderr = os.fdopen(os.memfd_create("tool-server-stderr", os.MFD_CLOEXEC), "w+b")
                self._child = subprocess.Popen(
                    [server.command, *server.args],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._stderr,
                    env=environment,
                    start_new_session=True,  # Ctrl-C goes to the agent, which records the end before it ends the server
                )
        except (OSError, ValueError) as error:
            self._let_go()
            raise self._told(ToolServerError(f"tool server {server.command} cannot be started: {error}")) from error

    def connect(self, meta: Mapping[str, Any]) -> ServerInfo:
        """Agree on the protocol and list the tools. `meta` travels with every request of it, the first included.

        Raises ToolServerError, or LogFailedAtServer when the server could not record its start.
        """
        self.start()
        from anyio.from_thread import start_blocking_portal

        from glasslab.exchange import carrying
        from glasslab.mcp_session import REVISIONS

        if self._revision not in REVISIONS:
            raise ToolServerError(f"MCP_REVISION {self._revision!r} is not one of {', '.join(REVISIONS)}")
        try:
            self._portal = self._entered(start_blocking_portal())
            self._session = self._entered(self._portal.wrap_async_context_manager(self._open()))
            server: ServerInfo = self._portal.call(carrying, dict(meta), self._session.connect, self._revision)
            return server
        except (OSError, RuntimeError) as error:  # no descriptor, no thread to be had
            raise self._told(ToolServerError(f"no connection to the tool server can be opened: {error}")) from error
        except (ToolServerError, LogFailedAtServer) as error:
            raise self._told(error) from None

    def _entered[T](self, context: AbstractContextManager[T]) -> T:
        """Enter what `close` leaves; what is there only after it is left at once."""
        entered = context.__enter__()
        with self._lock:
            if not self._closed:
                self._stack.push(context)
                return entered
        context.__exit__(None, None, None)
        self._still_open()
        return entered

    def _open(self) -> AbstractAsyncContextManager[HostSession]:
        from glasslab.mcp_session import open_session

        connection: socket.socket | ServerUrl
        if isinstance(self._server, ServerUrl):
            connection = self._server
        elif self._socket is None:
            raise ToolServerError("the tool server is not started")
        else:
            connection, self._socket = self._socket, None  # the session closes it from here on
        return open_session(connection, timeout=self._timeout, max_result_bytes=self._max_result_bytes)

    def list_tools(self, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the tools anew. Raises ToolServerError, or LogFailedAtServer when the server's log failed."""
        return self._ask(meta, lambda session: session.listed("tools"))

    def list_prompts(self, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the prompts. Raises as `list_tools` does."""
        return self._ask(meta, lambda session: session.listed("prompts"))

    def list_resources(self, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the resources. Raises as `list_tools` does."""
        return self._ask(meta, lambda session: session.listed("resources"))

    def get_prompt(self, name: str, arguments: Mapping[str, str], meta: Mapping[str, Any]) -> ToolResult:
        """Get a prompt as text; a refusal by the server is a result with `is_error`. Raises as `list_tools` does."""
        return self._timed(meta, lambda session: session.get_prompt(name, dict(arguments)))

    def read_resource(self, uri: str, meta: Mapping[str, Any]) -> ToolResult:
        """Read a resource as text; a refusal by the server is a result with `is_error`. Raises as `list_tools` does."""
        return self._timed(meta, lambda session: session.read_resource(uri))

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Call a tool; several threads may at once. A refusal by the server is a result with `is_error`.

        Raises as `list_tools` does.
        """
        try:
            json.dumps([name, arguments, meta], ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (ValueError, TypeError, RecursionError) as error:
            # The SDK would end the whole connection over a value that JSON in UTF-8 cannot carry.
            return ToolResult(
                f"Error executing tool: its arguments cannot be sent as JSON ({type(error).__name__})", True
            )
        return self._timed(meta, lambda session: session.call(name, dict(arguments)))

    def _timed(self, meta: Mapping[str, Any], ask: Callable[[HostSession], Awaitable[ToolResult]]) -> ToolResult:
        began = time.monotonic()
        result = self._ask(meta, ask)
        text = redacted(result.text, self.secrets) if result.is_error else result.text
        return replace(result, text=text, duration_ms=round((time.monotonic() - began) * 1000, 3))

    def _ask[T](self, meta: Mapping[str, Any], ask: Callable[[HostSession], Awaitable[T]]) -> T:
        portal, session = self._portal, self._session  # a close in another thread takes them away meanwhile
        if portal is None or session is None:
            raise ToolServerError("the tool server is not connected")
        from glasslab.exchange import carrying

        try:
            answer: T = portal.call(carrying, dict(meta), ask, session)
            return answer
        except (ToolServerError, LogFailedAtServer) as error:
            raise self._told(error) from None

    def close(self) -> None:
        """End the connection and the child: by itself within _CLOSE_GRACE, or by SIGTERM or SIGKILL. Idempotent."""
        with self._lock:
            self._closed = True
            stack, self._stack = self._stack, ExitStack()
        self._session = None
        self._portal = None
        with suppress(Exception):  # a connection that broke is closed all the same
            stack.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is not None:
            end_child(self._child, _CLOSE_GRACE)
            self._child = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    @property
    def secrets(self) -> list[str]:
        """What no message may quote: what the server was given, tokens that were got for it included."""
        return [] if isinstance(self._server, str) else self._server.secrets

    def _told(self, error: ToolServerError | LogFailedAtServer) -> ToolServerError | LogFailedAtServer:
        """Return the error as it may be shown and recorded: servers quote what they were given, in errors above all."""
        if isinstance(error, LogFailedAtServer):
            texts = (redacted(text, self.secrets) for text in (error.url, error.cause, error.remedy))
            return LogFailedAtServer(error.status, *texts)
        said = self._with_last_words(error)
        return ToolServerError(redacted(str(said), self.secrets), again=said.again, retry_after=said.retry_after)

    def _with_last_words(self, error: ToolServerError) -> ToolServerError:
        """Add the last line a dead child wrote: it names the cause, which "connection closed" does not."""
        child, stderr = self._child, self._stderr  # a close in another thread takes them away meanwhile
        if child is None or stderr is None:
            return error
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        if child.poll() is None:
            return error
        try:
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_TAIL))
            lines = stderr.read().decode("utf-8", "replace").strip().splitlines()
        except ValueError:  # closed meanwhile
            return error
        return ToolServerError(
            f"tool server ended with exit status {child.returncode}: {lines[-1] if lines else error}"
        )
