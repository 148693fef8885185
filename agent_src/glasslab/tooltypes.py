"""What the toolbox gives back: results, what a server said of itself, and the two ways in which it fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from glasslab.guardrails import visible_line

MAX_RESULT_BYTES: Final = 100_000  # 20,000 characters of four bytes each pass uncut
_SHOWN: Final = 500


class ToolServerError(Exception):
    """The tool server cannot be started or reached, ended, or does not answer. One line, fit for the user.

    `again` tells whether the same request may work later, `retry_after` when the server said so (seconds).
    """

    status = "tool_server_unreachable"

    def __init__(self, text: str, *, again: bool = False, retry_after: float | None = None) -> None:
        """`text` may quote what the server sent."""
        super().__init__(visible_line(text)[:_SHOWN])
        self.again, self.retry_after = again, retry_after


class LogFailedAtServer(Exception):
    """The tool server's own log did not acknowledge: what it was about to do has not happened."""

    def __init__(self, status: str, url: str, cause: str, remedy: str = "") -> None:
        """`status` is log_unreachable or log_rejected."""
        self.status = status if status in ("log_unreachable", "log_rejected") else "log_unreachable"
        self.url, self.cause, self.remedy = (visible_line(text)[:_SHOWN] for text in (url, cause, remedy))
        super().__init__(f"the tool server's log failed: {self.cause}")


@dataclass(frozen=True)
class OAuthClient:
    """What gets a token by OAuth's client credentials: from this issuer and no other, whatever the server names."""

    client_id: str
    client_secret: str = field(repr=False)
    issuer: str
    tokens: list[str] = field(default_factory=list, repr=False, compare=False)  # those that it got, as they come


@dataclass(frozen=True)
class ServerCommand:
    """A tool server to start as a child. `env` is all it gets beside a few harmless variables; no model key in it.

    `secret` names those of `env` that no message may quote; None are all of them.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Sequence[str] | None = None

    @property
    def secrets(self) -> list[str]:
        """What no message may quote."""
        return [value for name, value in self.env.items() if self.secret is None or name in self.secret]


@dataclass(frozen=True)
class ServerUrl:
    """A tool server over HTTP: its address, the headers of each request, how it authorizes, its certificate's CA."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient | None = None
    ca: Path | None = None

    @property
    def secrets(self) -> list[str]:
        """What no message may quote: the headers' values, with and without what stands before a token, and OAuth's."""
        values = [part for value in self.headers.values() for part in (value, value.rpartition(" ")[2])]
        return [*values, *([self.oauth.client_secret, *self.oauth.tokens] if self.oauth else [])]


@dataclass(frozen=True)
class ServerInfo:
    """What a server said of itself. `definitions` are its tools as sent; `agreed_by` is initialize or discover.

    `key` is its name in the file of servers: the lock goes by that, and not by what a server calls itself.
    """

    protocol_version: str
    name: str
    version: str
    capabilities: dict[str, Any]
    instructions: str | None
    definitions: list[dict[str, Any]]
    agreed_by: str
    meta: dict[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def pinned_as(self) -> str:
        """The name that the lock knows it by."""
        return self.key or self.name


@dataclass(frozen=True)
class ToolResult:
    """What a call gave, as text, capped. `meta` is the result's `_meta`, with the server's clock."""

    text: str
    is_error: bool
    duration_ms: float = 0.0
    meta: dict[str, Any] = field(default_factory=dict)
