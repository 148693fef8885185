"""MCP server `lab-outbox`: `send_message` puts a message into a folder, as a mail program's outbox does.

It has what the invoice assistant of the sample documents lacked: a list of who may be written to. Nobody is on it by
default. It is the last of three locks; the others are the agent's: the same list as a rule, and a person's approval.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTPUTF8
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from glasslab import allowlist
from glasslab.servers.plain import PlainServer, text_tool
from glasslab.servers.sandbox import printable

NAME: Final = "lab-outbox"
SENDER: Final = "agent@glasslab.invalid"
MAX_SUBJECT: Final = 200
MAX_BODY: Final = 20_000
MAX_MESSAGES: Final = 1_000  # in the folder: a model that cannot stop must not fill a disk
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")
_DESCRIPTION: Final = "Send one message to one recipient. It is written into the lab's outbox and counts as sent."
_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "to": {"description": "The recipient's address, one and nothing else."},
    "subject": {"description": "The subject, one line.", "maxLength": MAX_SUBJECT},
    "body": {"description": "The text of the message.", "maxLength": MAX_BODY},
}


class Outbox(PlainServer):
    """The server. Messages are files NUMBER.eml, written whole or not at all."""

    def __init__(self, folder: Path, recipients: str) -> None:
        """`folder` has to exist; `recipients` is the allow-list, as in allowlist.split."""
        self._folder, self._recipients = folder, allowlist.split(recipients)
        acts = ToolAnnotations(read_only_hint=False, open_world_hint=True)
        super().__init__(NAME, [text_tool(self.send_message, _DESCRIPTION, _ARGUMENTS, acts)])

    def send_message(self, to: str, subject: str, body: str) -> str:
        """Write one message; return where it is. Raises ToolError: not on the list, not an address, no room."""
        if not _ADDRESS.fullmatch(to):
            raise ToolError(f"'{printable(to)}' is no address; give one recipient's address and nothing else")
        if not allowlist.allows(self._recipients, to):
            raise ToolError(f"'{printable(to)}' is refused: the recipient is not on the allow-list")
        if not subject.isprintable():
            raise ToolError("the subject has to be one line of printable text")
        message = EmailMessage(policy=SMTPUTF8.clone(cte_type="8bit"))
        message["From"], message["To"], message["Subject"] = SENDER, to, subject
        message["Date"] = formatdate(usegmt=True)
        message.set_content(body, cte="8bit")
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}.eml"
        data = message.as_bytes()
        try:
            if sum(1 for _ in self._folder.iterdir()) >= MAX_MESSAGES:
                raise ToolError(f"the outbox holds {MAX_MESSAGES} messages; nothing was sent")
            self._write(name, data)
        except OSError as error:
            raise ToolError(f"the message could not be written ({error.strerror}); nothing was sent") from None
        return f"Sent to {to}: {name}, {len(data)} bytes."

    def _write(self, name: str, data: bytes) -> None:
        part = self._folder / f".{name}.part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.rename(self._folder / name)
        finally:
            part.unlink(missing_ok=True)
