"""What surrounds the views and searches: the navigation, and metadata/default.meta."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from splunkcheck import reference
from splunkcheck.conffile import read
from splunkcheck.findings import Finding
from splunkcheck.views import BUILT_IN_VIEWS

_META: Final = """
app authorize commands eventtypes fields indexes limits lookups macros nav props savedsearches tags transforms views
viewstates
"""
META: Final = frozenset(_META.split())
# What each element of a navigation may say of itself.
NAVIGATION: Final = {
    "nav": {"search_view", "color"},
    "view": {"name", "default", "source", "match"},
    "collection": {"label"},
    "saved": {"name", "source", "match", "view"},
    "a": {"href", "target"},
    "divider": set(),
}


def navigation(path: Path, file: str, views: set[str], searches: set[str]) -> list[Finding]:
    """Return what is wrong with default.xml of the navigation, and the views it leaves out."""
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # a file of this repository, and no entities
    except (ElementTree.ParseError, UnicodeDecodeError, OSError) as error:
        return [Finding(file, 0, f"no XML: {error}")]
    findings, named = [], set()
    for element in root.iter():
        if element.tag not in NAVIGATION:
            findings.append(Finding(file, 0, f"<{element.tag}> is no element of a navigation"))
            continue
        for name in sorted(set(element.keys()) - NAVIGATION[element.tag]):
            findings.append(Finding(file, 0, f"<{element.tag}> has no attribute {name}"))
        target = element.get("name", "")
        if element.tag == "view" and "name" in element.keys():  # noqa: SIM118  # an element, not a dict
            named.add(target)
            if target not in views | BUILT_IN_VIEWS:
                findings.append(Finding(file, 0, f"it leads to view {target}, which is not there"))
        if element.tag == "saved" and "name" in element.keys() and target not in searches:  # noqa: SIM118
            findings.append(Finding(file, 0, f"it leads to saved search {target}, which is not there"))
        if element.get("default", "true") not in ("true", "false"):
            findings.append(Finding(file, 0, f"default={element.get('default')} is no boolean"))
    defaults = [element for element in root.iter("view") if element.get("default") == "true"]
    if len(defaults) != 1:
        findings.append(Finding(file, 0, f"{len(defaults)} views are the default one"))
    findings += [Finding(file, 0, f"view {name} is not in the navigation") for name in sorted(views - named)]
    return findings


def metadata(path: Path, file: str, app: Path, roles: set[str]) -> list[Finding]:
    """Return what is wrong with default.meta."""
    conf, findings = read(path, file)
    for stanza in conf.stanzas.values():
        kind, _, name = stanza.name.partition("/")
        if kind and kind not in META:
            findings.append(Finding(file, stanza.line, f"[{stanza.name}]: {kind} is no kind of object"))
        if kind == "lookups" and name and not (app / "lookups" / name).is_file():
            findings.append(Finding(file, stanza.line, f"[{stanza.name}]: there is no such lookup file"))
        for key, setting in stanza.settings.items():
            if key == "export":
                fault = (
                    ""
                    if setting.value in ("none", "system")
                    else f"export = {setting.value} is neither none nor system"
                )
            elif key == "access":
                fault = _access(setting.value, roles)
            else:
                fault = "" if key in ("owner", "version", "modtime") else f"{key} is no setting of metadata"
            findings += [Finding(file, setting.line, f"[{stanza.name}] {fault}")] if fault else []
    return findings


def _access(value: str, roles: set[str]) -> str:
    found = re.fullmatch(r"(?:(?:read|write)\s*:\s*\[[^\]]*\]\s*,?\s*)+", value)
    if not found:
        return f"access = {value[:60]} is not read : [ ROLES ], write : [ ROLES ]"
    named = {name for names in re.findall(r"\[([^\]]*)\]", value) for name in re.split(r"[\s,]+", names) if name}
    unknown = sorted(named - roles - reference.BUILT_IN_ROLES)
    return f"there is no role {', '.join(unknown)}" if unknown else ""
