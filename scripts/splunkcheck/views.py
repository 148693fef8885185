"""Dashboard Studio's views: the JSON inside the XML, what it names, and where its panels stand."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from splunkcheck import searches, values
from splunkcheck.findings import Finding
from splunkcheck.searches import World

_VISUALIZATIONS: Final = """
area bar bubble choropleth.map choropleth.svg column ellipse events fillergauge image line linkgraph map markdown
markergauge parallelcoordinates pie punchcard rectangle sankey scatter singlevalue singlevalueicon singlevalueradial
table timeline
"""
VISUALIZATIONS: Final = frozenset(f"splunk.{name}" for name in _VISUALIZATIONS.split())
WITHOUT_DATA: Final = frozenset(("splunk.markdown", "splunk.image", "splunk.rectangle", "splunk.ellipse"))
_INPUTS: Final = "timerange text dropdown multiselect number radio checkbox link"
INPUTS: Final = frozenset(f"input.{name}" for name in _INPUTS.split())
SOURCES: Final = frozenset(("ds.search", "ds.savedSearch", "ds.chain", "ds.test"))
HANDLERS: Final = frozenset(
    f"drilldown.{name}" for name in ("linkToDashboard", "linkToSearch", "linkToReport", "customUrl", "setToken")
)
_SECTIONS: Final = """
title description inputs defaults dataSources visualizations layout expressions applicationProperties
"""
SECTIONS: Final = frozenset(_SECTIONS.split())
# The saved searches, each with the fields it ends with (None: not known).
Saved = Mapping[str, frozenset[str] | None]
BUILT_IN_VIEWS: Final = frozenset(("search", "datasets", "reports", "alerts", "dashboards"))
_TOKEN: Final = re.compile(r"\$([A-Za-z_]\w*(?:\.\w+)*)(?:\|\w)?\$")


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

    def tokens(self) -> set[str]:
        """Return the tokens that the view's inputs and defaults set."""
        found = {part(one, "options").get("token") for one in part(self.definition, "inputs").values()}
        return {str(name) for name in found | set(part(part(part(self.definition, "defaults"), "tokens"), "default"))}


def part(value: Any, name: str) -> dict[str, Any]:
    """Return an object inside an object; an empty one where there is none."""
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def read(path: Path, file: str) -> View:
    """Return a view, with what is wrong with its form."""
    view = View(path.stem, file, {})
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # a file of this repository, and no entities
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        view.say(f"no XML: {error}")
        return view
    if (root.tag, root.get("version")) != ("dashboard", "2"):
        view.say('its root is not <dashboard version="2">')
    if root.get("theme", "light") not in ("light", "dark"):
        view.say(f"theme {root.get('theme')} is neither light nor dark")
    if not (root.findtext("label") or "").strip():
        view.say("it has no label")
    try:
        words = root.findtext("definition") or ""
        view.definition = json.loads(words, object_pairs_hook=_once, parse_constant=_no_number)
    except ValueError as error:
        view.say(f"its definition is no JSON: {error}")
    if not isinstance(view.definition, dict):
        view.say("its definition is no object")
        view.definition = {}
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


def check(view: View, world: World, saved: Saved, views: Mapping[str, View]) -> list[Finding]:
    """Return what is wrong with a view. `saved`: the saved searches with the fields they end with."""
    if not view.definition:
        return view.findings
    for section in sorted(set(view.definition) - SECTIONS):
        view.say(f"{section} is no section of a definition")
    sources = part(view.definition, "dataSources")
    fields = {name: _source(view, name, source, world, saved) for name, source in sources.items()}
    used: set[str] = set()
    for name, one in part(view.definition, "visualizations").items():
        used |= set(_visualization(view, name, one, fields, views))
    for source in sources.values():
        used |= {part(source, "options").get("extend", "")}
    for name in sorted(set(fields) - used):
        view.say(f"data source {name} feeds nothing")
    for name, one in part(view.definition, "inputs").items():
        if one.get("type") not in INPUTS:
            view.say(f"input {name}: {one.get('type')} is no input")
        if not part(one, "options").get("token"):
            view.say(f"input {name} sets no token")
        if one.get("type") == "input.timerange":
            parts = str(part(one, "options").get("defaultValue", "")).split(",")
            if len(parts) != 2 or any(values.time(each.strip()) for each in parts):
                view.say(f"input {name}: defaultValue {','.join(parts)!r} is not EARLIEST,LATEST")
    _layout(view)
    known = view.tokens()
    for token in sorted(set(_TOKEN.findall(json.dumps(view.definition)))):
        if token.split(".")[0] not in known and not token.startswith(("row.", "click.", "result.", "name", "value")):
            view.say(f"${token}$ is set by no input")
    return view.findings


def _source(view: View, name: str, source: Any, world: World, saved: Saved) -> frozenset[str] | None:
    options, kind = part(source, "options"), source.get("type") if isinstance(source, dict) else None
    if kind not in SOURCES:
        view.say(f"data source {name}: {kind} is no kind of data source")
    elif kind == "ds.savedSearch":
        if options.get("ref") not in saved:
            view.say(f"data source {name}: there is no saved search {options.get('ref')!r}")
        return saved.get(str(options.get("ref")))
    elif kind == "ds.chain":
        if options.get("extend") not in part(view.definition, "dataSources"):
            view.say(f"data source {name} extends {options.get('extend')!r}, which is not there")
    elif kind == "ds.search":
        outcome = searches.check(str(options.get("query", "")), world)
        for fault in outcome.faults:
            view.say(f"data source {name}: {fault}")
        for key, value in part(options, "queryParameters").items():
            if key not in ("earliest", "latest") or ("$" not in str(value) and values.time(str(value))):
                view.say(f"data source {name}: {key} = {value} is no time")
        return outcome.fields
    return None


def _visualization(view: View, name: str, one: Any, sources: Saved, views: Mapping[str, View]) -> Iterator[str]:
    kind = one.get("type") if isinstance(one, dict) else None
    if kind not in VISUALIZATIONS:
        view.say(f"{name}: {kind} is no visualization")
    primary = part(one, "dataSources").get("primary")
    if not primary and kind not in WITHOUT_DATA:
        view.say(f"{name} has no primary data source")
    for source in part(one, "dataSources").values():
        yield str(source)
        if source not in sources:
            view.say(f"{name}: there is no data source {source}")
    fields = sources.get(str(primary))
    for field_name in part(one, "options").get("overlayFields") or ():
        if fields is not None and field_name not in fields:
            view.say(f"{name}: overlay of {field_name}, which {primary} does not give")
    for handler in one.get("eventHandlers") or () if isinstance(one, dict) else ():
        _handler(view, name, handler, fields, views)


def _handler(view: View, name: str, handler: Any, fields: frozenset[str] | None, views: Mapping[str, View]) -> None:
    options = part(handler, "options")
    if handler.get("type") not in HANDLERS:
        view.say(f"{name}: {handler.get('type')} is no drilldown")
    if handler.get("type") == "drilldown.linkToDashboard":
        target = views.get(str(options.get("dashboard")))
        if options.get("app") != "glasslab" or target is None:
            view.say(f"{name} leads to view {options.get('app')}/{options.get('dashboard')}, which is not there")
        for token in options.get("tokens") or ():
            if target is not None and token.get("token") not in target.tokens():
                view.say(f"{name} sets {token.get('token')}, which view {target.name} has no input for")
            row = re.fullmatch(r"row\.(.+)\.value", str(token.get("value", "")))
            if row and fields is not None and row[1] not in fields:
                view.say(f"{name} takes {row[1]} of a row, which its data source does not give")


def _layout(view: View) -> None:
    layout = part(view.definition, "layout")
    if layout.get("type") not in ("absolute", "grid"):
        view.say(f"layout type {layout.get('type')} is neither absolute nor grid")
    for name in layout.get("globalInputs") or ():
        if name not in part(view.definition, "inputs"):
            view.say(f"globalInputs: there is no input {name}")
    width, height = part(layout, "options").get("width", 1200), part(layout, "options").get("height", 10**6)
    if not isinstance(width, int) or not isinstance(height, int):
        view.say(f"layout: its width {width} and height {height} are no whole numbers")
        width, height = 1200, 10**6
    boxes: list[tuple[str, int, int, int, int]] = []
    for block in layout.get("structure") or ():
        name, place = block.get("item"), part(block, "position")
        if name not in part(view.definition, "visualizations") and name not in part(view.definition, "inputs"):
            view.say(f"layout: there is no visualization {name}")
        if not all(isinstance(place.get(side), int) for side in "xywh"):
            view.say(f"layout: {name} has no x, y, w and h")
            continue
        x, y, w, h = (place[side] for side in "xywh")
        if x < 0 or y < 0 or w < 1 or h < 1 or x + w > width or y + h > height:
            view.say(f"layout: {name} stands outside of {width} x {height}")
        for other, ox, oy, ow, oh in boxes:
            if x < ox + ow and ox < x + w and y < oy + oh and oy < y + h:
                view.say(f"layout: {name} covers {other}")
        boxes.append((str(name), x, y, w, h))
    for name in sorted(set(part(view.definition, "visualizations")) - {box[0] for box in boxes}):
        view.say(f"visualization {name} has no place in the layout")
