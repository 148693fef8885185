"""What the lab's MCP servers have in common: every request belongs to a session, and every step is on record first.

A server is a subclass with its tools. Before its first answer it opens what it needs and records its start. When a
commit fails, what it would have released does not happen: the caller gets a JSON-RPC error with the cause, and so does
every later request of the session, because a gap in the record cannot be closed afterwards.

The lab's agent names the session in `_meta`. For any other host a server is `standalone`: it names its sessions itself
and hears nothing else of `_meta`. There a session ends with a pause, or with its log; the next request begins another.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from glasslab import __version__
from glasslab.frames import HOST_PREFIX, Frame
from glasslab.recorder import LoggingError
from glasslab.servers.sandbox import printable
from glasslab.wire import LOG_FAILED, META_CLOCK, META_REFUSED, RequestMeta, WireError, parse_meta

PAUSE: Final = 900.0  # seconds without a request after which a standalone server begins another session
Parameters = Mapping[str, Mapping[str, type]]  # a tool's name -> its arguments, all of them required


class SessionLog(Protocol):
    """What a server needs of its recorder, for one session."""

    @property
    def clock(self) -> int:
        """The Lamport clock after what was recorded or heard last."""

    def merge(self, remote: object) -> None:
        """Lift the clock to the caller's."""

    def commit(self, *frames: Frame) -> None:
        """Return when the log has acknowledged the frames; raises LoggingError."""

    def close(self) -> None:
        """Give the connection back."""


@dataclass
class Request:
    """The request being served, and the rule by which it was refused, if it was."""

    step: int
    tool_call_id: str | None
    refused: str = ""


_request: ContextVar[Request] = ContextVar("glasslab_request")


class RecordedServer:
    """An MCP server that serves one session, or in `standalone` one after the other."""

    name: ClassVar[str]
    parameters: ClassVar[Parameters]

    def __init__(
        self, open_log: Callable[[str], SessionLog], *, assume: RequestMeta | None = None, standalone: bool = False
    ) -> None:
        """`open_log` opens a session's record; `assume` stands in for `_meta` while warming up."""
        self._open_log = open_log
        self._assume = assume
        self._standalone = standalone
        self._session_id: str | None = None
        self._log: SessionLog | None = None
        self._failed: LoggingError | None = None
        self._last_used = 0.0
        self.mcp: MCPServer[Any] = MCPServer(
            self.name,
            version=__version__,
            tools=list(self.tools()),
            middleware=[self._on_message],
            log_level="WARNING",
            subscriptions=False,  # the tools never change while a session runs: listChanged is false
        )

    def tools(self) -> Sequence[Tool]:
        """Return the server's tools."""
        raise NotImplementedError

    def begin(self, step: int) -> Frame:
        """Open what a session needs, and return the frame that says so. Raises MCPError."""
        raise NotImplementedError

    # --- every message passes here before the SDK looks at it

    async def _on_message(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:  # a notification: nothing is answered, so nothing is recorded
            return await call_next(ctx)
        params = ctx.params or {}
        meta = self._meta(params)
        log = self._session(meta)
        request = Request(meta.step, meta.tool_call_id)
        _request.set(request)
        problem = _argument_problem(params, self.parameters) if ctx.method == "tools/call" else None
        if problem is None:
            result = await call_next(ctx)
        else:
            result = {"content": [{"type": "text", "text": problem}], "isError": True}
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                result["resultType"] = "complete"
        if isinstance(result, dict) and not self._standalone:
            refused = {META_REFUSED: request.refused} if request.refused else {}
            result["_meta"] = {**(result.get("_meta") or {}), META_CLOCK: log.clock, **refused}
        return result

    def _meta(self, params: Mapping[str, Any]) -> RequestMeta:
        """Return which session a request belongs to. Raises MCPError."""
        if self._assume is not None:
            return self._assume
        if self._standalone:
            now = time.monotonic()
            if self._session_id is None or self._failed is not None or now - self._last_used > PAUSE:
                self._end()
            self._last_used = now
            return RequestMeta(self._session_id or f"{HOST_PREFIX}{uuid.uuid4().hex}", 0, 0, None)
        try:
            return parse_meta(params.get("_meta"))
        except WireError as error:
            raise MCPError(INVALID_PARAMS, f"{error}; for a host other than glasslab, run it --standalone") from None

    def _session(self, meta: RequestMeta) -> SessionLog:
        """Return the session's log; on the first request record the start before anything else."""
        if self._failed is not None:
            raise _log_failed(self._failed)
        if self._log is not None:
            if meta.session_id != self._session_id:
                raise MCPError(INVALID_PARAMS, "this connection serves another session; open a new one")
            self._log.merge(meta.clock)
            return self._log
        start = self.begin(meta.step)
        self._session_id = meta.session_id
        self._log = self._open_log(meta.session_id)
        self._log.merge(meta.clock)
        self.commit(start)
        return self._log

    def _end(self) -> None:
        if self._log is not None:
            self._log.close()
        self._session_id, self._log, self._failed = None, None, None

    # --- for the tools

    def request(self) -> Request:
        """Return the request being served. Raises MCPError when no session is open."""
        if self._log is None:  # cannot be reached without a session; fails closed all the same
            raise MCPError(INTERNAL_ERROR, "the session is not open")
        return _request.get()

    def commit(self, *frames: Frame) -> None:
        """Record, or raise the error that tells the caller that the log failed."""
        if self._log is None or self._failed is not None:
            raise MCPError(INTERNAL_ERROR, "the session's record is not open")
        try:
            self._log.commit(*frames)
        except LoggingError as error:
            self._failed = error
            raise _log_failed(error) from None


def _log_failed(error: LoggingError) -> MCPError:
    data = {"status": error.status, "url": error.url, "cause": error.cause, "remedy": error.remedy}
    return MCPError(LOG_FAILED, "the tool server's log did not acknowledge", data)


def _argument_problem(params: Mapping[str, Any], parameters: Parameters) -> str | None:
    """Return what is wrong with a call's arguments, or None. The SDK drops unknown ones without a word."""
    name = params.get("name")
    expected = parameters.get(name) if isinstance(name, str) else None
    if expected is None:
        return f"Unknown tool '{printable(str(name))}': there are {' and '.join(parameters)}"
    arguments = params.get("arguments")
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        return f"{name}: the arguments must be a JSON object"
    for key in arguments:
        if key not in expected:
            return f"{name}: unknown argument '{printable(str(key))}'; it takes {', '.join(expected) or 'none'}"
    for key, kind in expected.items():
        if key not in arguments:
            return f"{name}: the argument '{key}' is missing"
        if not isinstance(arguments[key], kind):
            return f"{name}: the argument '{key}' must be a string, not {type(arguments[key]).__name__}"
    return None
