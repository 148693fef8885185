"""What a person puts beside a question: a prompt of a tool server, and resources. The model cannot ask for either.

A prompt is the person's own words, kept by a server: its definition is pinned as a tool's is, and its text screened as
a question's. A resource is data, screened and marked as a tool's result. Both are read by the host, each step on record
before it is made: its name in session.start before any server is started, its request before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from glasslab import pinned, pins
from glasslab.attempts import Attempts
from glasslab.context import Call
from glasslab.endings import Ended
from glasslab.frames import Frame, frame, recordable, sha256_hex
from glasslab.inquiry import Attached
from glasslab.recorder import SessionRecorder
from glasslab.screening import Screen
from glasslab.toolset import Toolset, prompts_of
from glasslab.tooltypes import ServerInfo, ToolResult

_SHOWN: Final = 20
_NAMELESS: Final = "what is taken out of a question, and no server knows it without; give the name as it is listed"
What = Literal["prompt", "resource"]


def screened(given: Attached, screen: Screen) -> tuple[Attached, list[Frame], list[str], str | None]:
    """Return what may be asked for, frames and notices of what was found in it, and why it must not be, if so.

    All of it goes to a server and into the record, as a question does. A name that holds what is taken out of a
    question is refused: without it no server would know it, and two names could become one.
    """
    frames: list[Frame] = []
    notices: list[str] = []
    refused: list[str] = []

    def kept(what: str, text: str, is_name: bool = False) -> str:
        found = screen.question(text)
        frames.extend(found.frames)
        if found.refused or (is_name and found.text != text):
            refused.append(f"{what}: {found.notice}" if found.refused else f"{what} holds {_NAMELESS}")
        elif found.notice:
            notices.append(f"{what}: {found.notice}")
        return found.text

    name = None if given.prompt is None else kept("the prompt's name", given.prompt, is_name=True)
    arguments: dict[str, str] = {}
    for number, (key, value) in enumerate(given.arguments.items(), start=1):
        known_as = kept(f"the name of prompt argument {number}", key, is_name=True)
        arguments[known_as] = kept(f"prompt argument {known_as!r}", value)
    resources = tuple(kept(f"resource {number}", uri) for number, uri in enumerate(given.resources, start=1))
    return Attached(name, arguments, resources), frames, notices, refused[0] if refused else None


class Attachments:
    """What one session reads for its question."""

    def __init__(
        self,
        servers: Sequence[ServerInfo],
        tools: Toolset,
        lock: pins.Lock,
        log: SessionRecorder,
        screen: Screen,
        attempts: Attempts,
        meta: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`servers` are the session's, connected."""
        self._servers, self._tools, self._lock, self._log = servers, tools, lock, log
        self._screen, self._attempts, self._meta = screen, attempts, meta

    def question(self, question: str, given: Attached) -> tuple[str, list[str]]:
        """Return the question with what is attached to it, and notices for the user. Raises what ends a session."""
        parts, notices = [question] if question else [], []
        if given.prompt is not None:
            found = self._screen.question(self._prompt(given.prompt, given.arguments))
            self._log.note(*found.frames)
            if found.refused:
                raise Ended("input_refused", "guardrail", f"prompt {given.prompt!r}: {found.notice}")
            parts.insert(0, found.text)
            notices += [f"prompt: {found.notice}"] if found.notice else []
        for number, uri in enumerate(given.resources, start=1):
            text = self._resource(uri)
            call = Call(f"attached_{number}", f"resource {uri}", {})
            self._log.note(*self._screen.result(0, call, text))
            parts.append(self._screen.marked(call, text))
        return "\n\n".join(parts), notices

    def _prompt(self, given: str, arguments: Mapping[str, str]) -> str:
        server, name, listed = self._place("prompt", given)
        pinned.check_tools([prompts_of(server, listed)], self._lock, self._log, 0)
        definition = next(item for item in listed if item.get("name") == name)
        described = [item for item in definition.get("arguments") or [] if isinstance(item, Mapping)]
        known = {str(item.get("name")): item.get("required") is True for item in described}
        for key in arguments:
            if key not in known:
                raise _refused(f"prompt {given!r} has no argument {key!r}; it takes {', '.join(known) or 'none'}")
        for key, required in known.items():
            if required and key not in arguments:
                raise _refused(f"prompt {given!r} needs the argument {key!r}; give {key}=VALUE after its name")

        def get(tools: Any, meta: Mapping[str, Any]) -> ToolResult:
            result: ToolResult = tools.get_prompt(name, arguments, meta)
            return result

        return self._read("prompt", server, name, get, arguments=dict(arguments))

    def _resource(self, given: str) -> str:
        server, uri, _ = self._place("resource", given)

        def read(tools: Any, meta: Mapping[str, Any]) -> ToolResult:
            result: ToolResult = tools.read_resource(uri, meta)
            return result

        return self._read("resource", server, uri, read)

    def _read(
        self, what: What, server: ServerInfo, name: str, ask: Callable[[Any, Any], ToolResult], **more: Any
    ) -> str:
        method = "mcp.get_prompt" if what == "prompt" else "mcp.read_resource"
        where = {"server": server.pinned_as, "name": name}
        asked = partial(self._tools.ask, server, self._meta(), ask)
        request = "prompts/get" if what == "prompt" else "resources/read"
        result = self._log.act(
            partial(self._attempts.make, request, asked, server=server.pinned_as),
            frame(f"{method}.request", step=0, **where, **more),
        )
        timed = {"is_error": result.is_error, "duration_ms": result.duration_ms}
        data = str(recordable(result.text)).encode()
        self._log.note(
            frame(f"{method}.result", step=0, **where, result=result.text, characters=len(result.text), **timed),
            frame("attachment", step=0, what=what, **where, result_sha256=sha256_hex(data), bytes=len(data), **timed),
        )
        if result.is_error:
            raise _refused(f"server {server.pinned_as!r}: {result.text}")
        return result.text

    def _place(self, what: What, given: str) -> tuple[ServerInfo, str, list[dict[str, Any]]]:
        """Return the server that has it, its name there, and the server's list. Raises Ended."""
        prefix, _, rest = given.partition("/")
        having = [server for server in self._servers if f"{what}s" in server.capabilities]
        named = [server for server in having if server.pinned_as == prefix and rest]
        name = rest if named else given
        lists = [(server, self._listed(what, server)) for server in named or having]
        key = "name" if what == "prompt" else "uri"
        found = [(server, listed) for server, listed in lists if any(item.get(key) == name for item in listed)]
        if not found and named and what == "resource":
            found = lists  # a server may have resources that it does not list
        if len(found) == 1:
            return found[0][0], name, found[0][1]
        there = [f"{server.pinned_as}/{item.get(key)}" for server, listed in lists for item in listed]
        known = ", ".join(there[:_SHOWN]) or "none"
        why = "several servers have it: put its server's name and / before it" if found else "no server lists it"
        raise _refused(f"{what} {given!r}: {why}; there are: {known}")

    def _listed(self, what: What, server: ServerInfo) -> list[dict[str, Any]]:
        def ask(tools: Any, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
            listed: list[dict[str, Any]] = tools.list_prompts(meta) if what == "prompt" else tools.list_resources(meta)
            return listed

        asked = partial(self._tools.ask, server, self._meta(), ask)
        return self._attempts.make(f"{what}s/list", asked, server=server.pinned_as)


def _refused(text: str) -> Ended:
    return Ended("input_refused", "attachment", text)
