"""Tool servers beside the lab's own, from a file of the usual `mcpServers` shape: what is in it, checked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from glasslab.guardrails import visible_line
from glasslab.jsonfiles import read_object, read_text
from glasslab.settings_sources import LOOPBACK, SettingsError, ca_file, expanded, split_url
from glasslab.tooltypes import OAuthClient, ServerCommand, ServerUrl

RESERVED: Final = ("lab-files", "lab-notes", "lab-outbox", "weather")  # the lab's own: their classes are known
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_STDIO: Final = {"type", "command", "args", "env", "files", "disabled"}
_HTTP: Final = {"type", "url", "headers", "bearerTokenFile", "oauth", "caFile", "disabled"}
_OAUTH: Final = {"credentialsFile", "issuer"}


@dataclass(frozen=True)
class NamedServer:
    """A tool server, the name that the lock and a prefix know it by, and the files it is started from.

    `secrets` tells whether its entry itself holds what looks like one.
    """

    name: str
    server: ServerCommand | ServerUrl
    files: list[Path] = field(default_factory=list)
    secrets: bool = False


def read_servers(path: Path) -> list[NamedServer]:
    """Return the servers that a file names, in its order. Raises SettingsError, one line for the first problem."""
    try:
        found = _servers(read_object(path, "the file"))
        if any(item.secrets for item in found):
            read_text(path, "the file, which holds secrets,", secret=True)
        return found
    except (OSError, ValueError) as error:
        raise SettingsError(f"MCP_SERVERS: {path}: {visible_line(str(error))}") from None


def _servers(whole: Mapping[str, Any]) -> list[NamedServer]:
    given = whole.get("mcpServers")
    if not isinstance(given, dict):
        raise ValueError('has no "mcpServers" object; give {"mcpServers": {NAME: {"command": ...} or {"url": ...}}}')
    found = []
    for name, entry in given.items():
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise ValueError(f"{name[:60]!r} cannot be a server's name; use 1 to 32 letters, digits, _ and -")
        try:
            if not isinstance(entry, dict):
                raise ValueError("is no object")
            if entry.get("disabled") is not True:
                found.append(_stdio(name, entry) if "command" in entry else _http(name, entry))
        except ValueError as error:
            raise ValueError(f"server {name!r} {error}") from None
    return found


def _stdio(name: str, entry: Mapping[str, Any]) -> NamedServer:
    _known(entry, _STDIO, "stdio")
    command, args = _text(entry, "command"), entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
        raise ValueError('has "args" that are no list of texts')
    listed = entry.get("files", [])
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ValueError('has "files" that are no list of paths')
    program = shutil.which(command)
    if program is None:
        raise ValueError(f"has the command {command[:200]!r}, which is not found; install it, or give its whole path")
    files = [Path(program).resolve(), *(Path(arg).absolute() for arg in args if _is_file(arg))]
    files += [expanded(item).absolute() for item in listed]
    server = ServerCommand(program, tuple(args), _texts(entry, "env"))
    return NamedServer(name, server, list(dict.fromkeys(files)), bool(server.secrets))


def _http(name: str, entry: Mapping[str, Any]) -> NamedServer:
    if "url" not in entry:
        raise ValueError('has neither "command" nor "url"; give one of them')
    _known(entry, _HTTP, "http", "streamable-http", "streamableHttp")
    url, headers = _url(entry, "url"), _texts(entry, "headers")
    for header, value in headers.items():
        if not _HEADER.fullmatch(header) or not (value.isascii() and value.isprintable()):
            raise ValueError(f"has a header {header[:60]!r} that no request can carry")
    secrets = bool(ServerUrl(url, headers).secrets)
    if "bearerTokenFile" in entry:
        if "oauth" in entry or any(header.lower() == "authorization" for header in headers):
            raise ValueError('has two ways to authorize; keep one of "bearerTokenFile", "oauth" and the header')
        headers = headers | {"Authorization": f"Bearer {_token(_path(entry, 'bearerTokenFile'))}"}
    oauth = _oauth(entry["oauth"]) if "oauth" in entry else None
    ca = _ca_file(entry) if "caFile" in entry else None
    return NamedServer(name, ServerUrl(url, headers, oauth, ca), secrets=secrets)


def _oauth(entry: object) -> OAuthClient:
    if not isinstance(entry, dict):
        raise ValueError('has an "oauth" that is no object')
    unknown = sorted(entry.keys() - _OAUTH)
    if unknown:
        raise ValueError(f"has an unknown oauth key {unknown[0][:60]!r}; known: {', '.join(sorted(_OAUTH))}")
    path = _path(entry, "credentialsFile")
    given = read_object(path, f"credential file {path}", secret=True)
    return OAuthClient(_text(given, "client_id"), _text(given, "client_secret"), _url(entry, "issuer"))


def _known(entry: Mapping[str, Any], keys: set[str], *types: str) -> None:
    unknown = sorted(entry.keys() - keys)
    if unknown:
        raise ValueError(f"has an unknown key {unknown[0][:60]!r}; known: {', '.join(sorted(keys))}")
    if entry.get("type", types[0]) not in types:
        raise ValueError(f"has the type {str(entry['type'])[:60]!r}; use {types[0]}")


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f"needs {key!r} as a text")
    return value


def _texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(text, str) and "\0" not in text for text in value.values()):
        raise ValueError(f"has {key!r} that is no object of texts")
    return dict(value)


def _url(entry: Mapping[str, Any], key: str) -> str:
    url = _text(entry, key)
    try:
        parts, host = split_url(url)
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or parts.username is not None or parts.fragment:
        raise ValueError(f"has {key!r} that is no http(s) address without a user in it; give https://HOST/PATH")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise ValueError(f"has {key!r} in plain http to another machine; use https (plain http is for loopback only)")
    return url


def _path(entry: Mapping[str, Any], key: str) -> Path:
    try:
        return expanded(_text(entry, key))
    except ValueError as error:
        raise ValueError(f"has {key!r} that {error}") from None


def _ca_file(entry: Mapping[str, Any]) -> Path:
    path = _path(entry, "caFile")
    if not _is_file(str(path)):
        raise ValueError(f"has the CA file {str(path)!r}, which cannot be read; name a PEM file")
    try:
        return ca_file(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"has the CA file {str(path)!r}, which {error}") from None


def _token(path: Path) -> str:
    text = read_text(path, f"token file {path}", secret=True).strip()
    if not text or not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(f"has the token file {path}, which holds no token; write the token alone into it")
    return text


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
