"""Where settings come from, and what a single value has to look like. The settings themselves: settings.py."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import SplitResult, urlsplit

from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from glasslab.jsonfiles import read_bounded

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_SECRET_BYTES = 65_536
MAX_SHOWN = 300  # characters of a wrong value
ALIASES = {"OPENAI_BASE_URL": "MODEL_BASE_URL", "OPENAI_API_KEY": "MODEL_API_KEY"}


class SettingsError(ValueError):
    """Configuration that cannot be used. `lines` holds one sentence a problem: name, value, remedy."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class _TextSource(PydanticBaseSettingsSource):
    """One place that settings come from: resolves aliases and `..._FILE` before the next place overrides it."""

    def __init__(self, settings_cls: type[BaseSettings], texts: Mapping[str, str | None], where: str) -> None:
        super().__init__(settings_cls)
        self._texts = texts
        self._where = where

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Unused: this source gives all its fields at once."""
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        fields = self.settings_cls.model_fields
        given = {name: text for name, text in self._texts.items() if text is not None and text.strip()}
        for alias, name in ALIASES.items():
            if alias in given:
                given.setdefault(name, given[alias])
            if f"{alias}_FILE" in given:
                given.setdefault(f"{name}_FILE", given[f"{alias}_FILE"])
        values: dict[str, Any] = {}
        for field, info in fields.items():
            name = field.upper()
            if is_secret(info) and f"{name}_FILE" in given:
                if name in given:
                    raise SettingsError(f"{name} and {name}_FILE are both set in {self._where}; keep one of them")
                text = _read_secret(f"{name}_FILE", given[f"{name}_FILE"])
                if text:
                    values[field] = text
                elif info.is_required():  # an optional secret with an empty file is one that is not used
                    raise SettingsError(f"{name}_FILE: {given[f'{name}_FILE']} is empty; write the secret into it")
            elif name in given:
                values[field] = given[name]
        return values


def _read_secret(name: str, path: str) -> str:
    try:
        return read_bounded(expanded(path), MAX_SECRET_BYTES, secret=True).decode().strip()  # a pipe is fine here
    except OSError as error:
        raise SettingsError(f"{name}: cannot read {path} ({error.strerror}); give a readable file") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: {path} is not text; give a file that holds only the secret") from None
    except ValueError as error:
        raise SettingsError(f"{name}: {path!r} {error}") from None


def expanded(path: str) -> Path:
    """Return the path with its `~` resolved. Raises ValueError for what no file can be called."""
    if "\0" in path:
        raise ValueError("holds a NUL character; give the path of a file")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError("names a home folder that nobody knows; give the whole path") from None


def split_url(text: str) -> tuple[SplitResult, str]:
    """Return the parts of an http(s) URL, and its host. Raises ValueError for what no library could take or reach."""
    parts = urlsplit(text)
    host, _ = parts.hostname or "", parts.port
    if parts.scheme not in ("https", "http") or not host or not text.isprintable() or " " in text:
        raise ValueError(text)
    if "[" in parts.netloc:
        ipaddress.IPv6Address(host.partition("%")[0])
    else:
        host.encode("idna")  # labels that are empty or too long
    return parts, host


def url(*, plain_http: Literal["loopback", "any"]) -> BeforeValidator:
    def check(value: object) -> str:
        text = str(value).strip().rstrip("/")
        try:
            parts, host = split_url(text)
        except ValueError:
            raise ValueError("is no http(s) URL; give https://HOST:PORT") from None
        port = parts.port
        if parts.username is not None or parts.query or parts.fragment or port == 0:
            raise ValueError("holds a user, a query, a fragment or port 0; give https://HOST:PORT and no more")
        if parts.path.endswith("/services/collector"):
            raise ValueError("is longer than the base URL; leave /services/collector away")
        if parts.scheme == "http" and plain_http == "loopback" and host not in LOOPBACK:
            raise ValueError("is plain http to another machine; use https (plain http is for loopback only)")
        return text

    return BeforeValidator(check)


def path_to(kind: Literal["file", "folder", "any"]) -> BeforeValidator:
    def check(value: object) -> Path:
        try:
            path = expanded(str(value)).absolute()
            if kind == "folder" and not path.is_dir():
                raise ValueError("is no folder; create it or name another one")
            if kind == "file":
                mode = path.stat().st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening it might wait, reading it never end
                    raise ValueError("is no regular file; give a readable file")
                with path.open("rb") as file:
                    file.read(1)
        except OSError as error:
            raise ValueError(f"cannot be read ({error.strerror}); give a readable file") from None
        return path

    return BeforeValidator(check)


def _header_safe(value: object) -> object:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and not (text.isascii() and text.isprintable() and " " not in text.strip()):
        raise ValueError("holds characters that no token has (blank, control or non-ASCII); check it")
    return text.strip() if isinstance(text, str) else value


HecUrl = Annotated[str, url(plain_http="loopback")]
Token = Annotated[SecretStr, BeforeValidator(_header_safe)]


def is_secret(field: FieldInfo) -> bool:
    """Whether the field holds a secret, also one that may be absent (`Token | None` keeps its annotation inside)."""
    parts = [field.annotation, *get_args(field.annotation)]
    return any(part is SecretStr or SecretStr in get_args(part) for part in parts)


def ca_file(path: Path) -> Path:
    """Return the path of a file of CAs. Raises OSError, and ValueError for one that holds none."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError("holds no certificate; give a CA in PEM form") from None
    return path


CaFile = Annotated[Path, path_to("file"), AfterValidator(ca_file)]
AnyPath = Annotated[Path, path_to("any")]


class LabSettings(BaseSettings):
    """What the readers share: the order of sources, and errors as one line each."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)
    reads_files: ClassVar[bool] = True

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment first, then `./.env`, then `~/lab/.env` (highest priority first)."""
        sources: list[PydanticBaseSettingsSource] = [init_settings, _TextSource(cls, os.environ, "the environment")]
        if cls.reads_files:
            for name in (".env", "~/lab/.env"):
                sources.append(_TextSource(cls, _read_env_file(name), name))
        return tuple(sources)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings. `overrides` (by field name) win over every source. Raises SettingsError."""
        try:
            settings = cls(**overrides)
        except ValidationError as error:
            raise SettingsError(*_lines(cls, error)) from None
        problems = settings.problems()
        if problems:
            raise SettingsError(*problems)
        return settings

    def problems(self) -> list[str]:
        """Return what is wrong between settings that are each right alone, one line each."""
        return []


def _read_env_file(name: str) -> Mapping[str, str | None]:
    try:
        path = expanded(name)
    except ValueError:
        return {}  # no home folder, so none with settings in it
    try:
        if not path.is_file():
            return {}
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise SettingsError(f"settings file {path}: anybody may write it, and name a model; chmod o-w it")
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SettingsError(f"settings file {path}: {reason}; make it readable or remove it") from None
    wrong = [binding.original.line for binding in bindings if binding.error]
    if wrong:  # the line itself is not shown: it may hold a secret
        raise SettingsError(f"settings file {path}: line {wrong[0]} is no NAME=value; correct it, or put # before it")
    return {binding.key: binding.value for binding in bindings if binding.key is not None}


def _lines(cls: type[BaseSettings], error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        field = str(item["loc"][0])
        name, info = field.upper(), cls.model_fields.get(field)
        if item["type"] == "missing":
            hint = info.description if info and info.description else "see env.example"
            also = f" (or {name}_FILE)" if info and is_secret(info) else ""
            lines.append(f"{name} is not set; set it in the environment or in ~/lab/.env{also}: {hint}")
            continue
        secret = info is not None and is_secret(info)
        shown = "the value" if secret else _shown(item["input"])
        text = item["msg"].removeprefix("Value error, ")
        lines.append(
            f"{name}: {shown} {text}" if item["type"] == "value_error" else f"{name}: {shown}: {text}; see env.example"
        )
    return lines


def _shown(value: object) -> str:
    """Return a wrong value for a message, without what a URL may hold of secrets: user, password, query."""
    text = repr(str(value) if isinstance(value, Path) else value)
    if "://" in text:  # before it is cut: what ends a password may lie beyond the cut
        text = re.sub(r"[?#][^'\"]*", "?...", re.sub(r"//.*@", "//...@", text))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
