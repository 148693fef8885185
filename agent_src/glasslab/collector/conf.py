"""Splunk's .conf files, read as Splunk layers them. Nothing here ever writes one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

Stanzas = dict[str, dict[str, str]]

DEFAULT_STANZA: Final = "default"
TRUE: Final = frozenset({"1", "true", "t", "yes", "y"})
FALSE: Final = frozenset({"0", "false", "f", "no", "n"})


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


def unreadable(error: OSError, path: Path) -> ConfError:
    """Return the error for a file or folder that cannot be read."""
    return ConfError(f"cannot read {error.filename or path}: {error.strerror}; let the collector's user read it")


def load(home: Path, name: str) -> Stanzas:
    """Return one configuration with its layers merged, and [default] under every stanza. Raises ConfError."""
    merged: Stanzas = {}
    try:
        files = layers(home, name)
    except OSError as error:
        raise unreadable(error, home) from None
    for file in reversed(files):
        try:
            stanzas = parse(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise unreadable(error, file) from None
        except UnicodeDecodeError:
            raise ConfError(f"cannot read {file}: not UTF-8; save it as UTF-8") from None
        for stanza, settings in stanzas.items():
            merged.setdefault(stanza, {}).update(settings)
    default = merged.pop(DEFAULT_STANZA, {})
    return {stanza: {**default, **settings} for stanza, settings in merged.items()}


def boolean(value: str, where: str) -> bool:
    """Return Splunk's boolean. Raises ConfError naming `where`."""
    if value.lower() in TRUE:
        return True
    if value.lower() in FALSE:
        return False
    raise ConfError(f"{where} = {value}: not a boolean; give 0 or 1")


def number(value: str, where: str, highest: int, *, lowest: int = 0) -> int:
    """Return a whole number from `lowest` to `highest`. Raises ConfError naming `where`."""
    if value.isascii() and value.isdigit() and len(value) < 16 and lowest <= int(value) <= highest:
        return int(value)
    raise ConfError(f"{where} = {value}: give a whole number from {lowest} to {highest}")
