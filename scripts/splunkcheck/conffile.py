"""Read one .conf file with its line numbers, and say what in it is no line of a .conf file.

The collector's own reader (glasslab.collector.conf) takes what Splunk takes; this one also tells what Splunk would pass
over in silence: a line that sets nothing, a stanza or a key given twice, a backslash with a blank behind it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from splunkcheck.findings import Finding


@dataclass(slots=True)
class Setting:
    """One key of a stanza: its value as Splunk sees it (lines joined by a newline), and the line it begins on."""

    value: str
    line: int


@dataclass(slots=True)
class Stanza:
    """One stanza: its name, the line of its header, its settings by key."""

    name: str
    line: int
    settings: dict[str, Setting] = field(default_factory=dict)

    def get(self, key: str, default: str = "") -> str:
        """Return a key's value, or the default."""
        found = self.settings.get(key)
        return found.value if found else default


@dataclass(slots=True)
class Conf:
    """One .conf file: its name (savedsearches.conf), its place in the app, its stanzas by name."""

    name: str
    file: str
    stanzas: dict[str, Stanza] = field(default_factory=dict)


def read(path: Path, file: str, name: str = "") -> tuple[Conf, list[Finding]]:
    """Return a .conf file and what is wrong with its form; `file` is how findings name it."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return Conf(name or path.name, file), [Finding(file, 0, "not UTF-8")]
    return parse(text, file, name or path.name)


def parse(text: str, file: str, name: str) -> tuple[Conf, list[Finding]]:
    """The same for a text."""
    conf, findings = Conf(name, file), []
    if text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        findings.append(Finding(file, 1, "begins with a byte order mark; save it without"))
        text = text[1:]
    if "\r" in text:
        number = text[: text.index("\r")].count("\n") + 1
        findings.append(
            Finding(
                file,
                number,
                "a carriage return; end lines with a line feed alone: behind a backslash it ends the value",
            )
        )
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    current: Stanza | None = None
    lines = iter(enumerate(text.split("\n"), start=1))
    for number, line in lines:
        stripped = line.strip()
        if line != line.rstrip() and stripped.endswith("\\"):
            findings.append(Finding(file, number, "a blank behind a backslash: the value ends here"))
        if odd := _odd(line):
            findings.append(Finding(file, number, odd))
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("["):
            current, fault = _header(conf, stripped, number)
            findings += [Finding(file, number, fault)] if fault else []
            continue
        key, equals, value = line.partition("=")
        key, value = key.strip(), _continued(value, lines, file, findings)
        if not equals or not key:
            findings.append(Finding(file, number, f"{stripped[:60]!r} sets nothing: no `key = value`"))
        elif current is None:
            findings.append(Finding(file, number, f"{key} stands before the first stanza"))
        elif key in current.settings:
            findings.append(Finding(file, number, f"[{current.name}] has {key} twice; the later one wins"))
        else:
            current.settings[key] = Setting(value, number)
    return conf, findings


def _odd(line: str) -> str:
    """Say which letter of a line nobody sees: a control character, or one without a width."""
    plain = line.partition("=")[0] + line[-1:]
    if found := [letter for letter in plain if not letter.isascii() and letter.isspace()]:
        name = unicodedata.name(found[0], "without a name")
        return f"U+{ord(found[0]):04X} ({name}) is no blank to Splunk: it belongs to the key or the value"
    for letter in "" if line.isascii() and line.replace("\t", " ").isprintable() else line:
        if letter != "\t" and unicodedata.category(letter) in ("Cc", "Cf"):
            return (
                f"U+{ord(letter):04X} ({unicodedata.name(letter, 'a control character')}) is in it, which nobody sees"
            )
    return ""


def _header(conf: Conf, stripped: str, number: int) -> tuple[Stanza, str]:
    name = stripped[1:-1] if stripped.endswith("]") else stripped[1:]
    fault = "" if stripped.endswith("]") else f"{stripped[:60]!r}: the stanza's bracket is not closed"
    if name != name.strip():
        fault = fault or f"[{name}]: blanks inside the brackets belong to the name"
    if name in conf.stanzas:
        fault = fault or f"[{name}] is there twice; the two are merged"
    return conf.stanzas.setdefault(name, Stanza(name, number)), fault


def _continued(value: str, lines: Iterator[tuple[int, str]], file: str, findings: list[Finding]) -> str:
    parts = [value]
    while parts[-1].endswith("\\"):
        parts[-1] = parts[-1][:-1]
        following = next(lines, None)
        if following is None:
            break
        number, line = following
        if line != line.rstrip() and line.rstrip().endswith("\\"):
            findings.append(Finding(file, number, "a blank behind a backslash: the value ends here"))
        if line.lstrip().startswith("#"):
            findings.append(Finding(file, number, "a comment within a continued value is a part of it"))
        if odd := _odd(line):
            findings.append(Finding(file, number, odd))
        parts.append(line)
    return "\n".join(parts).strip()
