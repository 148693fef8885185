"""Where settings come from, and what a single value has to look like. The settings themselves: settings.py."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

LOOPBACK = ("127.0.0.1", "::1", "localhost")
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
        text = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"{name}: cannot read {path} ({error.strerror}); give a readable file") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: {path} is not text; give a file that holds only the secret") from None
    return text


def url(*, plain_http: Literal["loopback", "any"]) -> BeforeValidator:
    def check(value: object) -> str:
        text = str(value).strip().rstrip("/")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("is no URL; give https://HOST:PORT") from None
        if parts.scheme not in ("https", "http") or not host:
            raise ValueError("is no http(s) URL; give https://HOST:PORT")
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
        path = Path(str(value)).expanduser().absolute()
        try:
            if kind == "folder" and not path.is_dir():
                raise ValueError("is no folder; create it or name another one")
            if kind == "file":
                path.read_bytes()
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


def _ca_file(path: Path) -> Path:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError("holds no certificate; give a CA in PEM form") from None
    return path


CaFile = Annotated[Path, path_to("file"), AfterValidator(_ca_file)]
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
            for path in (Path(".env"), Path("~/lab/.env").expanduser()):
                sources.append(_TextSource(cls, _read_env_file(path), str(path)))
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


def _read_env_file(path: Path) -> Mapping[str, str | None]:
    try:
        return dotenv_values(path, interpolate=False) if path.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SettingsError(f"settings file {path}: {reason}; make it readable or remove it") from None


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
        shown = "the value" if secret else repr(item["input"])
        text = item["msg"].removeprefix("Value error, ")
        lines.append(
            f"{name}: {shown} {text}" if item["type"] == "value_error" else f"{name}: {shown}: {text}; see env.example"
        )
    return lines
