"""A tool server without a record of its own: what it does is in the frames of the agent that calls it.

Arguments are checked here too: a host that is not this lab's may check nothing, and the SDK drops unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from glasslab import __version__
from glasslab.arguments import ArgumentError
from glasslab.schemas import validate

TEXT: Final = "string"


class PlainServer:
    """A server of some tools."""

    def __init__(self, name: str, tools: Sequence[Tool]) -> None:
        """`name` is what it calls itself; `tools` as `text_tool` makes them."""
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self.mcp: MCPServer[Any] = MCPServer(
            name,
            version=__version__,
            tools=list(tools),
            middleware=[self._on_message],
            log_level="WARNING",
            subscriptions=False,  # the tools never change: listChanged is false
        )

    async def _on_message(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        problem = self._problem(ctx.params or {}) if ctx.method == "tools/call" else None
        if problem is None:
            return await call_next(ctx)
        result: dict[str, Any] = {"content": [{"type": "text", "text": problem}], "isError": True}
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            result["resultType"] = "complete"
        return result

    def _problem(self, params: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a call, or None."""
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or name not in self._schemas:
            return f"Unknown tool: there are {', '.join(self._schemas)}"
        if not isinstance(arguments, dict | None):
            return f"{name}: the arguments must be a JSON object"
        try:
            validate(arguments or {}, self._schemas[name])
        except ArgumentError as error:
            return f"{name}: {error}"
        return None


def text_tool(
    run: Callable[..., str], description: str, arguments: Mapping[str, Mapping[str, Any]], annotations: ToolAnnotations
) -> Tool:
    """Return a tool named as its function, which takes texts, all required, and returns one.

    `arguments` are its arguments' schemas without their type.
    """
    tool = Tool.from_function(
        run,
        name=run.__name__.lstrip("_"),
        description=description,
        annotations=annotations,
        structured_output=False,  # structured output would send every text twice
    )
    properties = {name: {"type": TEXT, **schema} for name, schema in arguments.items()}
    tool.parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return tool
