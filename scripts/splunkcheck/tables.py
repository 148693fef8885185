"""The lookups: transforms.conf and the CSV files it names."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from splunkcheck.conffile import Conf
from splunkcheck.findings import Finding

Rows = list[dict[str, str]]


def read(path: Path, file: str) -> tuple[tuple[str, ...], Rows, list[Finding]]:
    """Return a CSV file's columns and rows, and what is wrong with its form."""
    try:
        text = path.read_bytes().decode("utf-8")
        if "\r" in text.replace("\r\n", "\n"):
            return (
                (),
                [],
                [Finding(file, 0, "its lines end with a carriage return alone; Splunk takes them for one line")],
            )
        if "\0" in text:
            return (), [], [Finding(file, text[: text.index("\0")].count("\n") + 1, "a NUL byte is in it")]
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        return (), [], [Finding(file, 0, f"no CSV in UTF-8: {error}")]
    if not lines or not all(name.strip() == name and name for name in lines[0]):
        return (), [], [Finding(file, 1, "no header, or a column without a name")]
    columns, findings, rows = tuple(lines[0]), [], []
    if len(lines) == 1:
        findings.append(Finding(file, 1, "has a header and no row"))
    if len(set(columns)) < len(columns):
        findings.append(Finding(file, 1, "a column's name is there twice"))
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(columns):
            findings.append(Finding(file, number, f"{len(line)} values under {len(columns)} columns"))
        elif any('"' in value and value in text and f'"{value}' not in text for value in line):
            findings.append(
                Finding(file, number, 'a quote within a value: put the value in quotes, and write its own as ""')
            )
        elif any(value != value.strip() for value in line):
            findings.append(Finding(file, number, "a value begins or ends with a blank"))
        elif tuple(line) in seen:
            findings.append(Finding(file, number, f"the same as line {seen[tuple(line)]}"))
        else:
            rows.append(dict(zip(columns, line, strict=True)))
        seen.setdefault(tuple(line), number)
    return columns, rows, findings


def check(transforms: Conf, app: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, Rows], list[Finding]]:
    """Return each lookup's columns and rows, and what is wrong with the lookups."""
    columns: dict[str, tuple[str, ...]] = {}
    rows: dict[str, Rows] = {}
    findings: list[Finding] = []
    named = set()
    for stanza in transforms.stanzas.values():
        setting = stanza.settings.get("filename")
        if setting is None:
            continue
        named.add(setting.value)
        path = app / "lookups" / setting.value
        if "/" in setting.value or not path.is_file():
            findings.append(
                Finding(transforms.file, setting.line, f"[{stanza.name}] there is no lookups/{setting.value}")
            )
            continue
        columns[stanza.name], rows[stanza.name], found = read(path, f"lookups/{setting.value}")
        findings += found
    for path in sorted((app / "lookups").glob("*")):
        if path.name not in named:
            findings.append(Finding(f"lookups/{path.name}", 0, "no stanza of transforms.conf names it"))
    return columns, rows, findings


def related(rows: dict[str, Rows], searches: set[str]) -> list[Finding]:
    """Return what is wrong between the tables: a detection is a saved search, and its ids are known techniques."""
    findings, file = [], "lookups/glasslab_detections.csv"
    techniques = {row["id"] for row in rows.get("glasslab_techniques", []) if "id" in row}
    if len(techniques) < len(rows.get("glasslab_techniques", [])):
        findings.append(Finding("lookups/glasslab_techniques.csv", 0, "an id is there twice"))
    for number, row in enumerate(rows.get("glasslab_detections", []), start=2):
        if row.get("detection") not in searches:
            findings.append(Finding(file, number, f"{row.get('detection')} is no saved search"))
        if row.get("id") not in techniques:
            findings.append(
                Finding(
                    "lookups/glasslab_detections.csv", number, f"{row.get('id')} is no technique of glasslab_techniques"
                )
            )
    return findings
