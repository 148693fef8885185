"""The asynchronous half of the toolbox: one MCP session over one socket. Imported when a server is there to talk to."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import mcp_types as types
from anyio.abc import UNIXSocketStream
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from glasslab import __version__
from glasslab.results import as_text, cap, prompt_text, resource_text
from glasslab.tooltypes import LogFailedAtServer, ServerInfo, ServerUrl, ToolResult, ToolServerError
from glasslab.transports import Wire
from glasslab.wire import ANSWER_UNUSABLE, LOG_FAILED

if TYPE_CHECKING:
    from glasslab.transports_http import HttpWire

REVISIONS: Final = ("auto", LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
Listed = Literal["tools", "prompts", "resources"]
_MAX_PAGES: Final = 100
_SEND_GRACE: Final = 1.0  # seconds beyond a call's own time-out, which says more
# Not a verdict on the revision, so no reason to try the older one.
_FATAL: Final = (
    LOG_FAILED,
    ANSWER_UNUSABLE,
    types.CONNECTION_CLOSED,
    types.REQUEST_TIMEOUT,
    types.INTERNAL_ERROR,  # it knows the request and cannot serve: its own words say more than the next answer would
)


def translate(error: MCPError, doing: str) -> ToolServerError | LogFailedAtServer:
    """Return the toolbox's exception for an error answer of the server."""
    data = error.data if isinstance(error.data, dict) else {}
    if error.code == LOG_FAILED:
        return LogFailedAtServer(
            status=str(data.get("status") or "log_unreachable"),
            url=str(data.get("url", "")),
            cause=str(data.get("cause") or error.message),
            remedy=str(data.get("remedy", "")),
        )
    if error.code == types.CONNECTION_CLOSED:
        return ToolServerError(f"{doing}: the tool server closed the connection")
    if error.code == types.REQUEST_TIMEOUT:
        return ToolServerError(f"{doing}: the tool server did not answer in time", again=True)
    return ToolServerError(f"{doing}: {error.message}")


class HostSession:
    """A connected session; use `open_session`."""

    def __init__(self, session: ClientSession, wire: "Wire | HttpWire", timeout: float, max_result_bytes: int) -> None:
        self._session = session
        self._wire = wire
        self._timeout = timeout
        self._max_result_bytes = max_result_bytes

    async def connect(self, revision: str) -> ServerInfo:
        """Agree on a revision and list the tools; raises ToolServerError or LogFailedAtServer."""
        async with self._bounded("connecting to the tool server"):
            agreed = await self._agree(revision)
            definitions = await self._all("tools")
        raw = self._wire.raw.get("server/discover" if agreed == "discover" else "initialize", {})
        server = self._session.server_info
        meta = dict(raw.get("_meta") or {}) | dict(self._wire.raw.get("tools/list", {}).get("_meta") or {})
        return ServerInfo(
            protocol_version=self._session.protocol_version or "",
            name=server.name if server else "",
            version=server.version if server else "",
            capabilities=dict(raw.get("capabilities") or {}),
            instructions=raw.get("instructions"),
            definitions=definitions,
            agreed_by=agreed,
            meta=meta,
        )

    async def listed(self, what: Listed) -> list[dict[str, Any]]:
        """List the tools, prompts or resources anew; raises ToolServerError or LogFailedAtServer."""
        async with self._bounded(f"listing its {what}"):
            return await self._all(what)

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> ToolResult:
        """Get a prompt as text; raises ToolServerError or LogFailedAtServer. What the server refuses is an error."""
        return await self._read(f"prompt {name}", lambda: self._session.get_prompt(name, arguments), prompt_text)

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource as text; raises ToolServerError or LogFailedAtServer. What the server refuses is an error."""
        return await self._read(f"resource {uri}", lambda: self._session.read_resource(uri), resource_text)

    async def _read[T](self, doing: str, ask: Callable[[], Awaitable[T]], text: Callable[[T], str]) -> ToolResult:
        try:
            async with self._bounded(doing):
                return ToolResult(cap(text(await ask()), self._max_result_bytes), False)
        except ToolServerError as error:
            cause = error.__cause__
            answered = isinstance(cause, MCPError) and (cause.code == ANSWER_UNUSABLE or cause.code not in _FATAL)
            if answered and not self._wire.problem:
                return ToolResult(str(error), True)
            raise

    def _told[E: Exception](self, error: E) -> E | ToolServerError:
        """Add what went wrong below the protocol, which an answer that never came does not say."""
        wire = self._wire
        if not wire.problem:
            return error
        return ToolServerError(f"{error}: {wire.problem}", again=wire.again, retry_after=wire.retry_after)

    @asynccontextmanager
    async def _bounded(self, doing: str) -> AsyncIterator[None]:
        """Give what happens inside its time, and its errors their words."""
        try:
            with anyio.fail_after(self._timeout):
                yield
        except MCPError as error:
            raise self._told(translate(error, doing)) from error
        except TimeoutError as error:
            text = f"{doing}: the tool server did not answer within {self._timeout:g} s"
            raise ToolServerError(text, again=True) from error
        except (RuntimeError, ValueError) as error:
            raise ToolServerError(f"the tool server's answer cannot be used: {error}") from error

    async def _agree(self, revision: str) -> str:
        if revision != LATEST_HANDSHAKE_VERSION:
            try:
                await self._discover()
                return "discover"
            except MCPError as error:
                if revision != "auto" or error.code in _FATAL:
                    raise
        await self._session.initialize()
        return "initialize"

    async def _discover(self) -> None:
        if not isinstance(self._wire, Wire):  # over HTTP its headers name the revision, too
            raw = await self._session.send_discover(LATEST_MODERN_VERSION)
            self._session.adopt(types.DiscoverResult.model_validate(raw))
            return
        # Not the SDK's own discover(): it waits ten seconds at most, whatever the timeout of the session is, and the
        # server may rightly take as long as its log's deadline before it answers.
        envelope = {
            types.PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
            types.CLIENT_INFO_META_KEY: {"name": "glasslab", "version": __version__},
            types.CLIENT_CAPABILITIES_META_KEY: {},
        }
        request = types.DiscoverRequest(params=types.RequestParams(_meta=envelope))
        self._session.adopt(await self._session.send_request(request, types.DiscoverResult))

    async def _all(self, what: Listed) -> list[dict[str, Any]]:
        """Return a list as the server sent it: what the SDK's types do not know must reach the pinning too."""
        ask = {
            "tools": self._session.list_tools,
            "prompts": self._session.list_prompts,
            "resources": self._session.list_resources,
        }[what]
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            await ask(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            page = self._wire.raw[f"{what}/list"]
            found += page.get(what) or []
            cursor = page.get("nextCursor")
            if not cursor:
                return found
        raise ValueError(f"its list of {what} has more than {_MAX_PAGES} pages")

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call one tool; raises ToolServerError or LogFailedAtServer. `duration_ms` is left to the caller."""
        try:
            # The SDK's time-out begins when all is sent: a server that does not read would be waited for for ever.
            with anyio.fail_after(self._timeout + _SEND_GRACE):
                result = await self._session.call_tool(name, arguments, read_timeout_seconds=self._timeout)
        except TimeoutError as error:
            raise ToolServerError(f"tool {name}: the tool server did not answer in time", again=True) from error
        except MCPError as error:
            if error.code == ANSWER_UNUSABLE:
                return ToolResult(f"Error executing tool {name}: {error.message}", True)
            if error.code in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND):
                return ToolResult(f"Error executing tool {name}: {error.message}", True)
            raise self._told(translate(error, f"tool {name}")) from error
        except (RuntimeError, ValueError) as error:
            return ToolResult(f"Error executing tool {name}: the server's result cannot be used: {error}", True)
        return ToolResult(as_text(result, self._max_result_bytes), bool(result.is_error), meta=dict(result.meta or {}))


@asynccontextmanager
async def open_session(
    connection: socket.socket | ServerUrl,
    *,
    timeout: float,
    max_result_bytes: int,
) -> AsyncIterator[HostSession]:
    """Run a session on a connected unix socket, which it closes, or over HTTP."""
    # JSON may take six bytes for one character; beyond that the answer would be cut down to nothing useful anyway.
    most = max(6 * max_result_bytes, 1_000_000)
    info = types.Implementation(name="glasslab", version=__version__)
    async with AsyncExitStack() as stack:
        wire: Wire | HttpWire
        if isinstance(connection, ServerUrl):
            from glasslab.transports_http import http_wire  # HTTP and OAuth: loaded where they are used

            wire = await stack.enter_async_context(http_wire(connection, timeout=timeout, max_bytes=most))
        else:
            stream = await stack.enter_async_context(await UNIXSocketStream.from_socket(connection))
            wire = Wire(stream, max_line_bytes=most)
        session = ClientSession(wire.reader, wire.writer, read_timeout_seconds=timeout, client_info=info)
        yield HostSession(await stack.enter_async_context(session), wire, timeout, max_result_bytes)
