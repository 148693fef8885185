"""What surrounds the views and searches: the navigation, and metadata/default.meta."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from splunkcheck import reference
from splunkcheck.conffile import read
from splunkcheck.findings import Finding

_META: Final = """
app authorize commands eventtypes fields indexes limits lookups macros nav props savedsearches tags transforms views
viewstates
"""
BUILT_IN_VIEWS: Final = frozenset(("search", "datasets", "reports", "alerts", "dashboards"))
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
_CHOICES: Final = {"source": ("all", "unclassified"), "default": ("true", "false"), "target": ("_blank", "_self")}


def navigation(path: Path, file: str, views: set[str], searches: set[str]) -> list[Finding]:
    """Return what is wrong with default.xml of the navigation, and the views it leaves out."""
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # a file of this repository, and no entities
    except (ElementTree.ParseError, UnicodeDecodeError, OSError) as error:
        return [Finding(file, 0, f"no XML: {error}")]
    findings, named = [], set()
    if root.tag != "nav":
        findings.append(Finding(file, 0, f"its root is <{root.tag}>, not <nav>"))
    for parent in root.iter():
        if parent.tag not in ("nav", "collection") and len(parent):
            findings.append(Finding(file, 0, f"<{parent.tag}> has elements inside; only nav and collection have"))
    for element in root.iter():
        if element.tag not in NAVIGATION:
            findings.append(Finding(file, 0, f"<{element.tag}> is no element of a navigation"))
            continue
        for name in sorted(set(element.keys()) - NAVIGATION[element.tag]):
            findings.append(Finding(file, 0, f"<{element.tag}> has no attribute {name}"))
        target = element.get("name", "")
        findings += [Finding(file, 0, fault) for fault in _element(element, views)]
        if element.tag == "view" and "name" in element.keys():  # noqa: SIM118  # an element, not a dict
            named.add(target)
            if target not in views | BUILT_IN_VIEWS:
                findings.append(Finding(file, 0, f"it leads to view {target}, which is not there"))
        if element.tag == "saved" and "name" in element.keys() and target not in searches:  # noqa: SIM118
            findings.append(Finding(file, 0, f"it leads to saved search {target}, which is not there"))
    shown = [element.get("name") for element in root.iter("view") if element.get("name")]
    findings += [
        Finding(file, 0, f"view {name} is there twice")
        for name in sorted({n for n in shown if n and shown.count(n) > 1})
    ]
    defaults = [element for element in root.iter("view") if element.get("default") == "true"]
    if len(defaults) != 1:
        findings.append(Finding(file, 0, f"{len(defaults)} views are the default one"))
    findings += [Finding(file, 0, f"view {name} is not in the navigation") for name in sorted(views - named)]
    return findings


def _element(element: ElementTree.Element, views: set[str]) -> Iterator[str]:
    """Say what is wrong with the values of one element's attributes."""
    view = element.get("search_view", element.get("view", ""))
    if view and view not in views | BUILT_IN_VIEWS:
        yield f"<{element.tag}> names view {view}, which is not there"
    if element.tag == "collection" and not element.get("label", "").strip():
        yield "<collection> has no label"
    if element.tag == "collection" and not len(element):
        yield f"<collection> {element.get('label')} is empty"
    if element.tag == "a" and not re.match(r"[\w/.#?]", element.get("href", "")):
        yield "<a> has no href"
    if "color" in element.keys() and not re.fullmatch(r"#?[0-9A-Fa-f]{6}", element.get("color", "")):  # noqa: SIM118  # an element, not a dict
        yield f"color={element.get('color')} is no color; give six hexadecimal digits"
    for name, words in _CHOICES.items():
        if element.get(name, words[0]) not in words:
            yield f"<{element.tag}> {name}={element.get(name)} is none of {', '.join(words)}"
    if element.tag in ("view", "saved") and not {"name", "source"} & set(element.keys()):
        yield f"<{element.tag}> has neither name nor source"


def metadata(path: Path, file: str, objects: Mapping[str, set[str]], roles: set[str]) -> list[Finding]:
    """Return what is wrong with default.meta; `objects`: by kind, the names of what it may speak of."""
    conf, findings = read(path, file)
    for stanza in conf.stanzas.values():
        kind, _, name = stanza.name.partition("/")
        name = unquote(name)
        if kind and kind not in META:
            findings.append(Finding(file, stanza.line, f"[{stanza.name}]: {kind} is no kind of object"))
        elif name and name.split("/")[0] not in objects.get(kind, {name.split("/")[0]}):
            findings.append(Finding(file, stanza.line, f"[{stanza.name}]: there is no {name} among the app's {kind}"))
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
                known = key in ("owner", "version", "modtime")
                fault = "" if known and setting.value else f"{key} is {'empty' if known else 'no setting of metadata'}"
            findings += [Finding(file, setting.line, f"[{stanza.name}] {fault}")] if fault else []
    return findings


def _access(value: str, roles: set[str]) -> str:
    found = re.fullmatch(r"(?:read|write)\s*:\s*\[[^\]]*\](?:\s*,\s*(?:read|write)\s*:\s*\[[^\]]*\])?", value)
    if not found:
        return f"access = {value[:60]} is not read : [ ROLES ], write : [ ROLES ]"
    named = {name for names in re.findall(r"\[([^\]]*)\]", value) for name in re.split(r"[\s,]+", names) if name}
    if re.search(r"\[\s*\]", value):
        return "an empty list of roles: then nobody may; leave the line out, or name roles"
    unknown = sorted(named - roles - reference.BUILT_IN_ROLES)
    return f"there is no role {', '.join(unknown)}" if unknown else ""
