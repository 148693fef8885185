"""What the toolbox gives back: results, what a server said of itself, and the two ways in which it fails."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, quote_plus, urlsplit

from glasslab.guardrails import visible_line
from glasslab.sensitive import looks_secret

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

    @property
    def secrets(self) -> list[str]:
        """The secret, as it is and as a header carries it, and the tokens."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        return [self.client_secret, base64.b64encode(pair.encode()).decode(), *self.tokens]


@dataclass(frozen=True)
class ServerCommand:
    """A tool server to start as a child. `env` is all it gets beside a few harmless variables; no model key in it.

    `secret` names those of `env` that no message may quote; None: those of `env` and `args` that look like secrets.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Sequence[str] | None = None

    @property
    def secrets(self) -> list[str]:
        """What no message may quote."""
        if self.secret is not None:
            return [self.env[name] for name in self.secret if name in self.env]
        given = [*self.env.items(), *(_option(*pair) for pair in pairwise(["", *self.args]))]
        return [value for name, value in given if value and looks_secret(name, value)]


def _option(before: str, arg: str) -> tuple[str, str]:
    """Return an argument's name and value, `--name=value` or `--name value`; without a name of its own an empty one."""
    name, equals, value = arg.partition("=")
    if equals and name.strip("-").replace("-", "_").isidentifier():
        return name, value
    return before if before.startswith("-") and "=" not in before else "", arg


@dataclass(frozen=True)
class ServerUrl:
    """A tool server over HTTP: its address, the headers of each request, how it authorizes, its certificate's CA."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient | None = None
    ca: Path | None = None

    @property
    def secrets(self) -> list[str]:
        """What no message may quote: of headers and query what looks like a secret, without a scheme too; OAuth's."""
        given = [*self.headers.items(), *parse_qsl(urlsplit(self.url).query)]
        found = [value for name, value in given if looks_secret(name, value)]
        return [*found, *(value.rpartition(" ")[2] for value in found), *(self.oauth.secrets if self.oauth else [])]

    def of_one_connection(self) -> Self:
        """Return the same with tokens of its own: a service would gather those of all its sessions."""
        return replace(self, oauth=replace(self.oauth, tokens=[])) if self.oauth else self


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
