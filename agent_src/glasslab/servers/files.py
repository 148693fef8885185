"""MCP server `lab-files`: list the documents, read one. Every step is on record before it has any effect.

What it does and when (recorded.py has what a failing log means):

    first request        -> open the folder, commit server.start          -> answer
    list_files           -> list, commit server.list_files                -> return the names
    read_file            -> check, commit server.path_check               -> open
                            read, commit server.read_file                 -> return the content
    a refused path       -> server.path_check and toolcall.refused in one commit, nothing is opened
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, ToolAnnotations

from glasslab.frames import Frame, frame
from glasslab.servers.recorded import Parameters, RecordedServer, Request, SessionLog
from glasslab.servers.sandbox import RefusedError, Sandbox, SandboxError
from glasslab.wire import RequestMeta

NAME: Final = "lab-files"
LIST_DESCRIPTION: Final = "List the text files of the lab's documents, one path a line."
READ_DESCRIPTION: Final = (
    "Read one text file of the lab's documents and return its text. The path must be one that list_files returned."
)
PATH_DESCRIPTION: Final = "Path of the file, as returned by list_files."


class FilesServer(RecordedServer):
    """The server of a folder."""

    name: ClassVar[str] = NAME
    parameters: ClassVar[Parameters] = {"list_files": {}, "read_file": {"path": str}}

    def __init__(
        self,
        documents: Path,
        open_log: Callable[[str], SessionLog],
        *,
        assume: RequestMeta | None = None,
        standalone: bool = False,
    ) -> None:
        """Serve what is in `documents`; see RecordedServer for the rest."""
        self._documents = documents
        self._sandbox: Sandbox | None = None
        super().__init__(open_log, assume=assume, standalone=standalone)

    def tools(self) -> Sequence[Tool]:
        """list_files and read_file."""
        return [self._list_tool(), self._read_tool()]

    def begin(self, step: int) -> Frame:
        """Open the folder; server.start."""
        if self._sandbox is not None:
            self._sandbox.close()
        try:
            self._sandbox = Sandbox(self._documents)
        except SandboxError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        return frame("server.start", step=step, sandbox=str(self._sandbox.root), pid=os.getpid())

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

    # --- the tools; plain blocking code: a session has one caller, who waits for the answer

    async def _list_files(self) -> str:
        sandbox, request = self._opened()
        try:
            listing = sandbox.list_files()
        except SandboxError as error:
            raise ToolError(str(error)) from None
        self.commit(
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
            self.commit(checked, _refusal(request, check.requested, check.reason))
            raise ToolError(f"'{check.requested}' is refused: {check.reason}")
        self.commit(checked)
        try:
            document = sandbox.read(path)
        except RefusedError as error:
            if error.reason:
                request.refused = error.reason
                self.commit(_refusal(request, check.requested, error.reason))
            raise ToolError(str(error)) from None
        self.commit(
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

    def _opened(self) -> tuple[Sandbox, Request]:
        if self._sandbox is None:
            raise MCPError(INTERNAL_ERROR, "the session is not open")
        return self._sandbox, self.request()


def _refusal(request: Request, requested: str, reason: str) -> Frame:
    return frame(
        "toolcall.refused",
        step=request.step,
        tool="read_file",
        requested_path=requested,
        reason=reason,
        tool_call_id=request.tool_call_id,
    )
