"""A Dashboard Studio view as it stands in its file: XML around JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splunkcheck.findings import Finding


@dataclass(slots=True)
class View:
    """One view: its name, its file, its definition."""

    name: str
    file: str
    definition: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(self.file, 0, text))

    def inputs(self) -> dict[str, dict[str, Any]]:
        """Return the view's inputs by the tokens that they set."""
        return {str(part(one, "options").get("token")): one for one in part(self.definition, "inputs").values()}

    def tokens(self) -> set[str]:
        """Return the tokens that the view's inputs, defaults and drilldowns set."""
        found = set(self.inputs()) | set(part(part(part(self.definition, "defaults"), "tokens"), "default"))
        for one in part(self.definition, "visualizations").values():
            for handler in objects(one, "eventHandlers"):
                if handler.get("type") == "drilldown.setToken":
                    found |= {str(token.get("token")) for token in objects(part(handler, "options"), "tokens")}
        return found


def part(value: Any, name: str) -> dict[str, Any]:
    """Return an object inside an object; an empty one where there is none."""
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def objects(value: Any, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list inside an object; none where there is no list."""
    inner = value.get(name) if isinstance(value, dict) else None
    return [one for one in inner if isinstance(one, dict)] if isinstance(inner, list) else []


def read(path: Path, file: str) -> View:
    """Return a view, with what is wrong with its form."""
    view = View(path.stem, file, {})
    text = path.read_bytes()
    if text.startswith(b"\xef\xbb\xbf"):
        view.say("begins with a byte order mark; save it without")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  # a file of this repository, and no entities
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        view.say(f"no XML: {error}")
        return view
    if (root.tag, root.get("version")) != ("dashboard", "2"):
        view.say('its root is not <dashboard version="2">')
    if root.get("theme", "light") not in ("light", "dark"):
        view.say(f"theme {root.get('theme')} is neither light nor dark")
    if not (root.findtext("label") or "").strip():
        view.say("it has no label")
    for name in sorted({child.tag for child in root} - {"label", "description", "definition", "meta", "assets"}):
        view.say(f"<{name}> is no element of a dashboard")
    for name in sorted(
        set(root.keys()) - {"version", "theme", "hideTitle", "hideEdit", "hideExport", "hideOpenInSearch", "isVisible"}
    ):
        view.say(f"<dashboard> has no attribute {name}")
    for name in sorted({child.tag for child in root if len(root.findall(child.tag)) > 1}):
        view.say(f"<{name}> is there twice")
    try:
        words = root.findtext("definition") or ""
        view.definition = json.loads(words, object_pairs_hook=_once, parse_constant=_no_number)
    except ValueError as error:
        view.say(f"its definition is no JSON: {error}")
    if not isinstance(view.definition, dict):
        view.say("its definition is no object")
        view.definition = {}
    said, told = (root.findtext("description") or "").strip(), view.definition.get("description", "")
    if said and told and said != told and "$" not in str(told):
        view.say(f"its description, {said[:40]!r}, is not that of its definition, {str(told)[:40]!r}")
    label, title = (root.findtext("label") or "").strip(), view.definition.get("title", "")
    if label and title and label != title and "$" not in str(title):
        view.say(f"its label, {label!r}, is not its title, {title!r}: the navigation shows the one, the page the other")
    return view


def _no_number(word: str) -> None:
    """Python's JSON takes NaN and Infinity, a browser's does not."""
    raise ValueError(f"{word} is no number there")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is there twice")
    return dict(pairs)
