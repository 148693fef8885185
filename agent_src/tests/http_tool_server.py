"""A tool server over HTTP by the SDK, to be run: PORT, then a bearer token when it wants one."""

import sys

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

port = int(sys.argv[1])
token = sys.argv[2] if len(sys.argv) > 2 else None


class Verifier:
    async def verify_token(self, given: str) -> AccessToken | None:
        return AccessToken(token=given, client_id="c", scopes=[]) if given == token else None


address = AnyHttpUrl(f"http://127.0.0.1:{port}")
protected = {
    "token_verifier": Verifier(),
    "auth": AuthSettings(issuer_url=address, resource_server_url=address, required_scopes=[]),
}
mcp = MCPServer("http-tools", **(protected if token else {}))


@mcp.tool(structured_output=False)
def list_files(folder: str = "/") -> str:
    """List the files of a folder far away, in alphabetical order."""
    return f"far away in {folder}"


@mcp.tool(structured_output=False)
def big() -> str:
    """Give more text than anybody could want to read."""
    return "x" * 3_000_000


mcp.run("streamable-http", host="127.0.0.1", port=port)
