"""MCP server `lab-files`: list the documents, read one. Every step is on record before it has any effect.

`FilesServer` serves one session. What it does and when:

    first request        -> open the folder, commit server.start          -> answer
    list_files           -> list, commit server.list_files                -> return the names
    read_file            -> check, commit server.path_check               -> open
                            read, commit server.read_file                 -> return the content
    a refused path       -> server.path_check and toolcall.refused in one commit, nothing is opened

When a commit fails, what it would have released does not happen: the caller gets a JSON-RPC error with the cause, and
so does every later request of the session, because a gap in the record cannot be closed afterwards.
"""

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ToolAnnotations
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from glasslab import __version__
from glasslab.frames import Frame, frame
from glasslab.recorder import LoggingError
from glasslab.servers.sandbox import RefusedError, Sandbox, SandboxError, printable
from glasslab.wire import LOG_FAILED, META_CLOCK, META_REFUSED, RequestMeta, WireError, parse_meta

NAME: Final = "lab-files"
LIST_DESCRIPTION: Final = "List the text files of the lab's documents, one path a line."
READ_DESCRIPTION: Final = (
    "Read one text file of the lab's documents and return its text. The path must be one that list_files returned."
)
PATH_DESCRIPTION: Final = "Path of the file, as returned by list_files."
_PARAMETERS: Final[Mapping[str, Mapping[str, type]]] = {"list_files": {}, "read_file": {"path": str}}


class SessionLog(Protocol):
    """What the server needs of its recorder, for one session."""

    @property
    def clock(self) -> int:
        """The Lamport clock after what was recorded or heard last."""

    def merge(self, remote: object) -> None:
        """Lift the clock to the caller's."""

    def commit(self, *frames: Frame) -> None:
        """Return when the log has acknowledged the frames; raises LoggingError."""


@dataclass
class _Request:
    """The request being served, and the rule by which it was refused, if it was."""

    step: int
    tool_call_id: str | None
    refused: str = ""


_request: ContextVar[_Request] = ContextVar("glasslab_request")


class FilesServer:
    """The server of one session. `open_log` opens its record; `assume` stands in for `_meta` while warming up."""

    def __init__(
        self, documents: Path, open_log: Callable[[str], SessionLog], *, assume: RequestMeta | None = None
    ) -> None:
        self._documents = documents
        self._open_log = open_log
        self._assume = assume
        self._session_id: str | None = None
        self._log: SessionLog | None = None
        self._sandbox: Sandbox | None = None
        self._failed: LoggingError | None = None
        self.mcp: MCPServer[Any] = MCPServer(
            NAME,
            version=__version__,
            tools=[self._list_tool(), self._read_tool()],
            middleware=[self._on_message],
            log_level="WARNING",
            subscriptions=False,  # the tools never change while a session runs: listChanged is false
        )

    def _list_tool(self) -> Tool:
        tool = Tool.from_function(
            self._list_files,
            name="list_files",
            description=LIST_DESCRIPTION,
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            structured_output=False,  # structured output would send every text twice
        )
        tool.parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        return tool

    def _read_tool(self) -> Tool:
        tool = Tool.from_function(
            self._read_file,
            name="read_file",
            description=READ_DESCRIPTION,
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            structured_output=False,
        )
        tool.parameters = {
            "type": "object",
            "properties": {"path": {"type": "string", "description": PATH_DESCRIPTION}},
            "required": ["path"],
            "additionalProperties": False,
        }
        return tool

    # --- every message passes here before the SDK looks at it

    async def _on_message(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:  # a notification: nothing is answered, so nothing is recorded
            return await call_next(ctx)
        params = ctx.params or {}
        try:
            meta = self._assume or parse_meta(params.get("_meta"))
        except WireError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        log = self._begin(meta)
        request = _Request(meta.step, meta.tool_call_id)
        _request.set(request)
        problem = _argument_problem(params) if ctx.method == "tools/call" else None
        if problem is None:
            result = await call_next(ctx)
        else:
            result = {"content": [{"type": "text", "text": problem}], "isError": True}
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                result["resultType"] = "complete"
        if isinstance(result, dict):
            refused = {META_REFUSED: request.refused} if request.refused else {}
            result["_meta"] = {**(result.get("_meta") or {}), META_CLOCK: log.clock, **refused}
        return result

    def _begin(self, meta: RequestMeta) -> SessionLog:
        """Return the session's log; on the first request open the folder and record the start before anything else."""
        if self._failed is not None:
            raise _log_failed(self._failed)
        if self._log is not None:
            if meta.session_id != self._session_id:
                raise MCPError(INVALID_PARAMS, "this connection serves another session; open a new one")
            self._log.merge(meta.clock)
            return self._log
        try:
            self._sandbox = Sandbox(self._documents)
        except SandboxError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        self._session_id = meta.session_id
        self._log = self._open_log(meta.session_id)
        self._log.merge(meta.clock)
        self._commit(frame("server.start", step=meta.step, sandbox=str(self._sandbox.root), pid=os.getpid()))
        return self._log

    def _commit(self, *frames: Frame) -> None:
        """Record, or raise the error that tells the caller that the log failed."""
        if self._log is None or self._failed is not None:  # cannot be reached without _begin; fails closed all the same
            raise MCPError(INTERNAL_ERROR, "the session's record is not open")
        try:
            self._log.commit(*frames)
        except LoggingError as error:
            self._failed = error
            raise _log_failed(error) from None

    # --- the tools; plain blocking code: a session has one caller, who waits for the answer

    async def _list_files(self) -> str:
        sandbox, request = self._opened()
        try:
            listing = sandbox.list_files()
        except SandboxError as error:
            raise ToolError(str(error)) from None
        self._commit(
            frame("server.list_files", step=request.step, files=listing.files, tool_call_id=request.tool_call_id)
        )
        lines = listing.files or ["There are no files."]
        note = [f"({listing.left_out} more cannot be shown)"] if listing.left_out else []
        return "\n".join(lines + note)

    async def _read_file(self, path: str) -> str:
        sandbox, request = self._opened()
        check = sandbox.check(path)
        checked = frame(
            "server.path_check",
            step=request.step,
            requested_path=check.requested,
            resolved_path=check.resolved,
            inside_sandbox=check.inside,
            tool_call_id=request.tool_call_id,
            reason=check.reason,
        )
        if not check.inside:
            request.refused = check.reason
            self._commit(checked, _refusal(request, check.requested, check.reason))
            raise ToolError(f"'{check.requested}' is refused: {check.reason}")
        self._commit(checked)
        try:
            document = sandbox.read(path)
        except RefusedError as error:
            if error.reason:
                request.refused = error.reason
                self._commit(_refusal(request, check.requested, error.reason))
            raise ToolError(str(error)) from None
        self._commit(
            frame(
                "server.read_file",
                step=request.step,
                path=document.path,
                bytes_read=document.bytes_read,
                bytes_total=document.bytes_total,
                tool_call_id=request.tool_call_id,
            )
        )
        return document.text

    def _opened(self) -> tuple[Sandbox, _Request]:
        if self._sandbox is None:
            raise MCPError(INTERNAL_ERROR, "the session is not open")
        return self._sandbox, _request.get()


def _refusal(request: _Request, requested: str, reason: str) -> Frame:
    return frame(
        "toolcall.refused",
        step=request.step,
        tool="read_file",
        requested_path=requested,
        reason=reason,
        tool_call_id=request.tool_call_id,
    )


def _log_failed(error: LoggingError) -> MCPError:
    data = {"status": error.status, "url": error.url, "cause": error.cause, "remedy": error.remedy}
    return MCPError(LOG_FAILED, "the tool server's log did not acknowledge", data)


def _argument_problem(params: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a call's arguments, or None. The SDK drops unknown ones without a word."""
    name = params.get("name")
    expected = _PARAMETERS.get(name) if isinstance(name, str) else None
    if expected is None:
        return f"Unknown tool '{printable(str(name))}': there are list_files and read_file"
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
