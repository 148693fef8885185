"""All the tool servers of one session as one: the lab's own first, then those of the file, names made unique.

The lab's own server records in the same session, so it is told the session, the turn and the clock. Any other gets a
call's name and arguments, nothing else; what it says about the lab's clock or rules in `_meta` is not heard.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self

from glasslab.models import ToolDefinition
from glasslab.pins import definition_sha256, name_of
from glasslab.tooltypes import LogFailedAtServer, ServerInfo, ToolResult, ToolServerError
from glasslab.waiting import waited

PROMPTS: Final = "@prompts"  # no server can be called so
_MAX_NAME: Final = 64


class Connection(Protocol):
    """What is needed of a toolbox."""

    def start(self) -> None:
        """Start the server, or reach it."""

    def connect(self, meta: Mapping[str, Any]) -> ServerInfo:
        """Agree and list the tools."""

    def list_tools(self, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the tools anew."""

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Call a tool."""

    def close(self) -> None:
        """End the connection."""


@dataclass(frozen=True)
class Member:
    """One server: its connection; for any but the lab's files, its name, its files, and the setting it comes from."""

    tools: Connection
    key: str = ""
    files: list[Path] = field(default_factory=list)
    setting: str = "MCP_SERVERS"


class Toolset:
    """The servers of one session. Used like a toolbox; a tool is called by the name that it is offered by."""

    def __init__(self, members: Sequence[Member]) -> None:
        """The lab's own server, if there is one, has no key."""
        self.members = list(members)
        # Called while a server is waited for, and raises when it is not to be waited for any longer.
        self.look: Callable[[], None] = lambda: None
        self._routes: dict[str, tuple[Member, str]] = {}
        self.origins: dict[str, tuple[str, str, dict[str, Any]]] = {}  # by offered name: server, name there, definition

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def secrets(self) -> list[str]:
        """What the servers were given and nobody else is to see."""
        return [secret for member in self.members for secret in getattr(member.tools, "secrets", ())]

    def start(self) -> None:
        """Start all that have to be started. Raises ToolServerError."""
        for member in self.members:
            with _named(member):
                member.tools.start()

    def started_from(self, lock: Mapping[str, Any]) -> dict[str, list[Path]]:
        """Return the files to compare with the lock, by server: of each that has any, or had when it was pinned."""
        pinned = {key for key, entry in lock.items() if entry.get("files")}
        return {m.key: m.files for m in self.members if m.key and (m.files or m.key in pinned)}

    def connect(self, meta: Mapping[str, Any]) -> list[ServerInfo]:
        """Agree with each server and list its tools. Raises ToolServerError, or LogFailedAtServer."""
        servers = []
        for member in self.members:
            with _named(member):
                member.tools.start()  # here: a child may end with the thread that started it (PR_SET_PDEATHSIG)
                server = waited(partial(member.tools.connect, {} if member.key else meta), self.look)
            servers.append(replace(server, key=member.key, meta={}) if member.key else server)
        return servers

    def list_again(self, servers: Sequence[ServerInfo], meta: Mapping[str, Any]) -> list[ServerInfo]:
        """Return the servers with the tools that they list now. Raises ToolServerError, or LogFailedAtServer."""
        again = []
        for member, server in zip(self.members, servers, strict=True):
            with _named(member):
                listed = waited(partial(member.tools.list_tools, {} if member.key else meta), self.look)
            again.append(replace(server, definitions=listed))
        return again

    def offer(self, servers: Sequence[ServerInfo], taken: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
        """Return the tools by the names that they are offered by; from here on `call` knows these.

        A name that several servers have, or that is `taken`, gets its server's name in front, at each of them.
        """
        count = Counter(name for server in servers for name in {name_of(item) for item in server.definitions})
        count.update(taken)
        self._routes, self.origins, offered = {}, {}, {}
        for member, server in zip(self.members, servers, strict=True):
            for definition in server.definitions:
                name = name_of(definition)
                shown = name if count[name] == 1 else prefixed(server.pinned_as, name)
                number = 2
                while shown in offered or (shown != name and shown in count):
                    shown = f"{shown[: _MAX_NAME - 4]}_{number}"
                    number += 1
                self._routes[shown], offered[shown] = (member, name), definition
                self.origins[shown] = (server.pinned_as, name, definition)
        return offered

    def ask[T](self, server: ServerInfo, meta: Mapping[str, Any], ask: Callable[[Any, Mapping[str, Any]], T]) -> T:
        """Ask one server something else, of its connection. Raises ToolServerError, or LogFailedAtServer."""
        member = next(member for member in self.members if member.key == server.key)
        with _named(member):
            return waited(partial(ask, member.tools, {} if member.key else meta), self.look)

    def prompts(self, servers: Sequence[ServerInfo], meta: Mapping[str, Any]) -> list[ServerInfo]:
        """Return the servers' prompts as the lock knows them, of each that has any. Raises as `ask` does."""
        listed = [
            prompts_of(server, self.ask(server, meta, lambda tools, meta: tools.list_prompts(meta)))
            for server in servers
            if "prompts" in server.capabilities
        ]
        return [found for found in listed if found.definitions]

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Call a tool by the name that it was offered by. Raises ToolServerError, or LogFailedAtServer."""
        if name not in self._routes:
            raise ToolServerError(f"tool {name!r} was not offered")
        member, real = self._routes[name]
        with _named(member):
            result = waited(partial(member.tools.call, real, arguments, {} if member.key else meta), self.look)
        return replace(result, meta={}) if member.key else result

    def close(self) -> None:
        """End all connections, the last first."""
        for member in reversed(self.members):
            member.tools.close()


def prompts_of(server: ServerInfo, listed: Sequence[dict[str, Any]]) -> ServerInfo:
    """Return a server's prompts as what the lock knows: an entry of its own, of the same form as that of its tools."""
    return replace(server, key=f"{server.pinned_as}{PROMPTS}", definitions=list(listed), instructions=None)


def as_toolset(tools: Toolset | Connection) -> Toolset:
    """Return a toolset: the one that is given, or one of the lab's own server alone."""
    return tools if isinstance(tools, Toolset) else Toolset([Member(tools)])


def offered(tools: Mapping[str, Mapping[str, Any]]) -> tuple[list[ToolDefinition], dict[str, Any], dict[str, str]]:
    """Return the pinned tools as the model is offered them, their schemas, and the hashes of their definitions."""
    made, schemas, hashes = [], {}, {}
    for name, definition in tools.items():
        schema = definition["inputSchema"]
        function = {"name": name, "description": definition.get("description", ""), "parameters": schema}
        made.append({"type": "function", "function": function})
        schemas[name], hashes[name] = schema, definition_sha256(definition)
    return made, schemas, hashes


@contextmanager
def _named(member: Member) -> Iterator[None]:
    """Put its name before what a server of the file fails with. Its log is not the lab's: that is a failure, too."""
    try:
        yield
    except (ToolServerError, LogFailedAtServer) as error:
        if not member.key:
            raise
        text = f"server {member.key!r} of {member.setting}: {error}"
        if isinstance(error, LogFailedAtServer):
            raise ToolServerError(text) from error
        raise ToolServerError(text, again=error.again, retry_after=error.retry_after) from error


def prefixed(server: str, tool: str) -> str:
    """Return the name that a tool is offered by where several servers have one of its name."""
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', server)[:32]}_{tool}"[:_MAX_NAME]
