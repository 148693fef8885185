"""MCP server `lab-notes`: one file, NOTES.md, that the model reads and replaces. It lies outside the documents.

The file is opened beneath its folder's descriptor, without following a link, and replaced whole: a reader sees the old
notes or the new ones, and what a link of that name points to is never read or written. Notes are bounded, in bytes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from glasslab.guardrails import smuggled_characters
from glasslab.servers.plain import PlainServer, text_tool
from glasslab.servers.sandbox import RefusedError, Sandbox

NAME: Final = "lab-notes"
FILE: Final = "NOTES.md"
MAX_BYTES: Final = 16_000  # less than the sandbox reads, and than a context has to hold whole
_READ: Final = "Return the notes that were kept for this work, as one text."
_WRITE: Final = "Keep notes for this work: the text takes the place of all notes that were kept before."
_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"description": f"All notes that are to be kept, at most {MAX_BYTES} bytes.", "maxLength": MAX_BYTES}
}


class Notes(PlainServer):
    """The server, on one folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder. Raises SandboxError."""
        self._sandbox = Sandbox(folder)
        self._folder = os.open(self._sandbox.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        acts = ToolAnnotations(read_only_hint=False, open_world_hint=False)
        tools = [
            text_tool(self.read_notes, _READ, {}, reads),
            text_tool(self.write_notes, _WRITE, _ARGUMENTS, acts),
        ]
        super().__init__(NAME, tools)

    def read_notes(self) -> str:
        """Return the notes. Raises ToolError when the file is not one of ours."""
        try:
            os.stat(FILE, dir_fd=self._folder, follow_symlinks=False)
            return self._sandbox.read(FILE).text
        except FileNotFoundError:
            return "There are no notes yet."
        except RefusedError as error:
            raise ToolError(str(error)) from None

    def write_notes(self, text: str) -> str:
        """Replace the notes; return how many there are. Raises ToolError: too many, hidden characters, no room."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ToolError("the notes are not valid Unicode; nothing was kept") from None
        if len(data) > MAX_BYTES:
            raise ToolError(f"the notes have {len(data)} bytes, at most {MAX_BYTES}; shorten them, nothing was kept")
        hidden = smuggled_characters(text)
        if hidden:
            raise ToolError(f"the notes hold hidden characters ({', '.join(hidden[:5])}); nothing was kept")
        try:
            self._replace(data)
        except OSError as error:
            raise ToolError(f"the notes could not be written ({error.strerror}); nothing was kept") from None
        return f"Kept {len(data)} bytes."

    def _replace(self, data: bytes) -> None:
        part, made = f".{FILE}.{secrets.token_hex(8)}", False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(part, flags, 0o640, dir_fd=self._folder), "wb") as file:
                made = True
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, FILE, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            made = False
        finally:
            if made:
                os.unlink(part, dir_fd=self._folder)
