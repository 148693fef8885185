"""What the collector takes from Splunk's .conf files: tokens, indexes, certificates, ports, bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from glasslab.collector.conf import ConfError, Stanzas, boolean, load, number, unreadable

BUILT_IN_INDEXES: Final = frozenset({"main", "history", "summary"})
# Splunk Enterprise takes 800 MB in one POST. The collector holds a body in memory, so its own limit is lower.
CONTENT_LIMIT: Final = 10 * 1024 * 1024
# Splunk's own: six years, and 500 GB an index.
FROZEN_SECONDS: Final = "188697600"
TOTAL_MB: Final = "500000"


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
class Retention:
    """How long events stay: seconds by index, and bytes that all of them together may take."""

    seconds: Mapping[str, int]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Web:
    """Where the page is served, and with what; `key` is None where the certificate's file holds it."""

    host: str
    port: int
    certificate: Path
    key: Path | None


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
    retention: Retention
    content_limit: int
    web: Web | None


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


def _indexes(home: Path) -> tuple[frozenset[str], Retention]:
    """Return the indexes there are, and how long their events stay."""
    seconds, megabytes = dict.fromkeys(BUILT_IN_INDEXES, int(FROZEN_SECONDS)), 0
    for stanza, settings in load(home, "indexes.conf").items():
        where = f"indexes.conf [{stanza}]"
        if ":" not in stanza and not boolean(settings.get("disabled", "0"), f"{where} disabled"):
            kept = settings.get("frozenTimePeriodInSecs", FROZEN_SECONDS)
            seconds[stanza] = number(kept, f"{where} frozenTimePeriodInSecs", 2**32 - 1, lowest=1)
            size = settings.get("maxTotalDataSizeMB", TOTAL_MB)
            megabytes += number(size, f"{where} maxTotalDataSizeMB", 2**32 - 1, lowest=1)
    return frozenset(seconds), Retention(seconds, (megabytes or int(TOTAL_MB)) * 1024 * 1024)


def _web(home: Path, settings: Mapping[str, str]) -> Web | None:
    """Return where Splunk Web would be; None unless startwebserver asks for it (in Splunk it is on when left out)."""
    where = "web.conf [settings]"
    if not boolean(settings.get("startwebserver", "0"), f"{where} startwebserver"):
        return None
    if not boolean(settings.get("enableSplunkWebSSL", "0"), f"{where} enableSplunkWebSSL"):
        raise ConfError(f"{where} enableSplunkWebSSL is off: the page takes a token, so set it to 1")
    if not settings.get("serverCert"):
        raise ConfError(f"{where} has no serverCert; name a PEM file with certificate and private key")
    key = settings.get("privKeyPath")
    return Web(
        host=settings.get("server.socket_host", "0.0.0.0").strip("[]"),  # noqa: S104  Splunk's own default; the lab's rules say who reaches it
        port=number(settings.get("httpport", "8000"), f"{where} httpport", 65535),
        certificate=_path(home, settings["serverCert"]),
        key=_path(home, key) if key else None,
    )


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
        raise unreadable(error, home) from None
    if not there:
        raise ConfError(f"--splunk-home {home}: there is no {home}/etc; give the folder that holds etc/apps")
    home = home.resolve()
    inputs = load(home, "inputs.conf")
    http = inputs.get("http", {})
    if boolean(http.get("disabled", "1"), "inputs.conf [http] disabled"):
        raise ConfError(f"HEC is off under {home}: set disabled = 0 in inputs.conf [http]")
    ssl = load(home, "server.conf").get("sslConfig", {})
    web = load(home, "web.conf").get("settings", {})
    management = web.get("mgmtHostPort", "127.0.0.1:8089")
    host, colon, port = management.rpartition(":")
    if not colon:
        raise ConfError(f"web.conf [settings] mgmtHostPort = {management}: give ADDRESS:PORT")
    limits = load(home, "limits.conf").get("http_input", {})
    limit = limits.get("max_content_length", str(CONTENT_LIMIT))
    indexes, retention = _indexes(home)
    return Config(
        home=home,
        port=number(http.get("port", "8088"), "inputs.conf [http] port", 65535),
        certificate=_certificate(home, http, ssl),
        management_host=host.strip("[]"),
        management_port=number(port, "web.conf [settings] mgmtHostPort: port", 65535),
        management_certificate=_management_certificate(home, ssl),
        tokens=_tokens(inputs, indexes),
        indexes=indexes,
        retention=retention,
        web=_web(home, web),
        content_limit=min(number(limit, "limits.conf [http_input] max_content_length", 10**12), CONTENT_LIMIT),
    )
