"""Splunk's .conf files, read as Splunk layers them, and what the collector takes from them. It never writes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Stanzas = dict[str, dict[str, str]]

BUILT_IN_INDEXES: Final = frozenset({"main", "history", "summary"})
DEFAULT_STANZA: Final = "default"
TRUE: Final = frozenset({"1", "true", "t", "yes", "y"})
FALSE: Final = frozenset({"0", "false", "f", "no", "n"})
# Splunk Enterprise takes 800 MB in one POST. The collector holds a body in memory, so its own limit is lower.
CONTENT_LIMIT: Final = 10 * 1024 * 1024


class ConfError(Exception):
    """The configuration cannot be used; the text is one line naming file, setting, value and remedy."""


def parse(text: str) -> Stanzas:
    """Return the stanzas of one .conf file.

    As Splunk reads them: `#` begins a comment only at the start of a line, a backslash at the end of a line continues
    the value on the next one, a stanza or key given twice is merged and the later value wins, settings above the first
    stanza belong to [default].
    """
    stanzas: Stanzas = {}
    current = stanzas.setdefault(DEFAULT_STANZA, {})
    lines = iter(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines())
    for line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            current = stanzas.setdefault(stripped[1:-1].strip(), {})
            continue
        name, equals, value = line.partition("=")
        while value.rstrip().endswith("\\"):
            following = next(lines, None)
            value = value.rstrip()[:-1] + ("" if following is None else "\n" + following)
            if following is None:
                break
        if equals and name.strip():
            current[name.strip()] = value.strip()
    return stanzas


def layers(home: Path, name: str) -> list[Path]:
    """Return the existing files called `name` under a SPLUNK_HOME, the strongest first.

    etc/system/local, then every app's local, then every app's default (apps in ASCII order), then etc/system/default.
    Raises OSError: a folder that cannot be looked into is not one without settings.
    """
    etc = home / "etc"
    found = (etc / "apps").iterdir() if (etc / "apps").is_dir() else ()
    apps = sorted((path for path in found if path.is_dir()), key=lambda path: path.name)
    places = [
        etc / "system" / "local",
        *(app / "local" for app in apps),
        *(app / "default" for app in apps),
        etc / "system" / "default",
    ]
    return [place / name for place in places if (place / name).is_file()]


def _unreadable(error: OSError, path: Path) -> ConfError:
    return ConfError(f"cannot read {error.filename or path}: {error.strerror}; let the collector's user read it")


def load(home: Path, name: str) -> Stanzas:
    """Return one configuration with its layers merged, and [default] under every stanza. Raises ConfError."""
    merged: Stanzas = {}
    try:
        files = layers(home, name)
    except OSError as error:
        raise _unreadable(error, home) from None
    for file in reversed(files):
        try:
            stanzas = parse(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise _unreadable(error, file) from None
        except UnicodeDecodeError:
            raise ConfError(f"cannot read {file}: not UTF-8; save it as UTF-8") from None
        for stanza, settings in stanzas.items():
            merged.setdefault(stanza, {}).update(settings)
    default = merged.pop(DEFAULT_STANZA, {})
    return {stanza: {**default, **settings} for stanza, settings in merged.items()}


@dataclass(frozen=True, slots=True)
class Token:
    """One HEC token: its stanza's name, and what the events that come with it may and get."""

    name: str
    value: str
    disabled: bool
    index: str
    indexes: frozenset[str]
    use_ack: bool
    host: str
    source: str
    sourcetype: str


@dataclass(frozen=True, slots=True)
class Config:
    """All that the collector takes from the .conf files. A certificate is None where TLS is switched off."""

    home: Path
    port: int
    certificate: Path | None
    management_host: str
    management_port: int
    management_certificate: Path | None
    tokens: Mapping[str, Token]
    indexes: frozenset[str]
    content_limit: int


def boolean(value: str, where: str) -> bool:
    """Return Splunk's boolean. Raises ConfError naming `where`."""
    if value.lower() in TRUE:
        return True
    if value.lower() in FALSE:
        return False
    raise ConfError(f"{where} = {value}: not a boolean; give 0 or 1")


def number(value: str, where: str, highest: int) -> int:
    """Return a whole number from 0 to `highest`. Raises ConfError naming `where`."""
    if value.isascii() and value.isdigit() and len(value) < 16 and int(value) <= highest:
        return int(value)
    raise ConfError(f"{where} = {value}: give a whole number from 0 to {highest}")


def _path(home: Path, value: str) -> Path:
    return home / Path(value.replace("$SPLUNK_HOME", str(home)))


def _names(value: str) -> frozenset[str]:
    return frozenset(name for name in re.split(r"[,\s]+", value) if name)


def _certificate(home: Path, inputs: Mapping[str, str], ssl: Mapping[str, str]) -> Path | None:
    if not boolean(inputs.get("enableSSL", "1"), "inputs.conf [http] enableSSL"):
        return None
    value = inputs.get("serverCert") or ssl.get("serverCert")
    if not value:
        raise ConfError("inputs.conf [http] has no serverCert; name a PEM file with certificate and private key")
    return _path(home, value)


def _management_certificate(home: Path, ssl: Mapping[str, str]) -> Path | None:
    if not boolean(ssl.get("enableSplunkdSSL", "1"), "server.conf [sslConfig] enableSplunkdSSL"):
        return None
    if not ssl.get("serverCert"):
        raise ConfError("server.conf [sslConfig] has no serverCert; name a PEM file with certificate and private key")
    return _path(home, ssl["serverCert"])


def _indexes(home: Path) -> frozenset[str]:
    found = set(BUILT_IN_INDEXES)
    for stanza, settings in load(home, "indexes.conf").items():
        if ":" not in stanza and not boolean(settings.get("disabled", "0"), f"indexes.conf [{stanza}] disabled"):
            found.add(stanza)
    return frozenset(found)


def _token(stanza: str, settings: Mapping[str, str], indexes: frozenset[str]) -> Token:
    where = f"inputs.conf [{stanza}]"
    if not settings.get("token"):
        raise ConfError(f"{where} has no token; give it one (a GUID)")
    token = Token(
        name=stanza.removeprefix("http://"),
        value=settings["token"],
        disabled=boolean(settings.get("disabled", "0"), f"{where} disabled"),
        index=settings.get("index") or "main",
        indexes=_names(settings.get("indexes", "")),
        use_ack=boolean(settings.get("useACK", "0"), f"{where} useACK"),
        host=settings.get("host", ""),
        source=settings.get("source") or stanza.replace("http://", "http:", 1),
        sourcetype=settings.get("sourcetype") or "httpevent",
    )
    unknown = sorted(({token.index} | token.indexes) - indexes)
    if unknown:
        raise ConfError(f"{where} names index {', '.join(unknown)}, which no indexes.conf defines; define it there")
    if token.indexes and token.index not in token.indexes:
        raise ConfError(f"{where} index = {token.index} is not among its indexes; add it there")
    return token


def _tokens(inputs: Stanzas, indexes: frozenset[str]) -> dict[str, Token]:
    tokens: dict[str, Token] = {}
    http = inputs.get("http", {})
    for stanza, settings in inputs.items():
        if stanza.startswith("http://"):
            # Only a few of [http]'s settings are also defaults of a token; its disabled and port are not.
            inherited: dict[str, str] = {
                key: http[key] for key in ("host", "index", "source", "sourcetype") if key in http
            }
            token = _token(stanza, {**inherited, **settings}, indexes)
            if token.value in tokens:
                raise ConfError(
                    f"inputs.conf [{stanza}] has the token of [http://{tokens[token.value].name}]; change it"
                )
            tokens[token.value] = token
    if not tokens:
        raise ConfError("no HEC token: inputs.conf has no [http://NAME] stanza; add one with token and index")
    return tokens


def load_config(home: Path) -> Config:
    """Return what the .conf files under a SPLUNK_HOME say. Raises ConfError."""
    try:
        there = (home / "etc").is_dir()
    except OSError as error:
        raise _unreadable(error, home) from None
    if not there:
        raise ConfError(f"--splunk-home {home}: there is no {home}/etc; give the folder that holds etc/apps")
    home = home.resolve()
    inputs = load(home, "inputs.conf")
    http = inputs.get("http", {})
    if boolean(http.get("disabled", "1"), "inputs.conf [http] disabled"):
        raise ConfError(f"HEC is off under {home}: set disabled = 0 in inputs.conf [http]")
    ssl = load(home, "server.conf").get("sslConfig", {})
    management = load(home, "web.conf").get("settings", {}).get("mgmtHostPort", "127.0.0.1:8089")
    host, colon, port = management.rpartition(":")
    if not colon:
        raise ConfError(f"web.conf [settings] mgmtHostPort = {management}: give ADDRESS:PORT")
    limits = load(home, "limits.conf").get("http_input", {})
    limit = limits.get("max_content_length", str(CONTENT_LIMIT))
    indexes = _indexes(home)
    return Config(
        home=home,
        port=number(http.get("port", "8088"), "inputs.conf [http] port", 65535),
        certificate=_certificate(home, http, ssl),
        management_host=host.strip("[]"),
        management_port=number(port, "web.conf [settings] mgmtHostPort: port", 65535),
        management_certificate=_management_certificate(home, ssl),
        tokens=_tokens(inputs, indexes),
        indexes=indexes,
        content_limit=min(number(limit, "limits.conf [http_input] max_content_length", 10**12), CONTENT_LIMIT),
    )
