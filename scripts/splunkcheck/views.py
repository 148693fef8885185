"""Dashboard Studio's views: their data sources and tokens, and all that their parts say of each other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from splunkcheck import layout, panels, searches, shapes, studio, values
from splunkcheck.definition import View, part
from splunkcheck.findings import Finding
from splunkcheck.panels import Sources
from splunkcheck.searches import World

_TOKEN: Final = re.compile(r"\$([A-Za-z_][\w:]*(?:\.[\w ]+)*)(?:\|(\w+))?\$")
_ENVIRONMENT: Final = re.compile(
    r"env:(?:user|user_realname|user_email|user_timezone|app|locale|page|product|instance_type|is_cloud|is_enterprise|is_lite_free|is_free|version)"
)


def check(view: View, world: World, saved: Sources, views: Mapping[str, View]) -> list[Finding]:
    """Return what is wrong with a view. `saved`: the saved searches with the fields they end with."""
    if not view.definition:
        return view.findings
    misshapen = list(shapes.faults(view.definition))
    for text in misshapen:
        view.say(text)
    if misshapen:  # what its parts say of each other cannot be read
        return view.findings
    for text in studio.unknown("definition", view.definition):
        view.say(text)
    if not str(view.definition.get("title", "")).strip():
        view.say("its definition has no title")
    _defaults(view)
    sources = part(view.definition, "dataSources")
    fields: dict[str, frozenset[str] | None] = {}
    for name in sources:
        _source(view, name, fields, world, saved)
    used = {str(part(source, "options").get("extend", "")) for source in sources.values()}
    for name, one in part(view.definition, "visualizations").items():
        used |= set(panels.visualization(view, name, one, fields, views, saved))
    for one in part(view.definition, "inputs").values():
        used |= {str(source) for source in part(one, "dataSources").values()}
    for name in sorted(set(fields) - used):
        view.say(f"data source {name} feeds nothing")
    layout.inputs(view)
    layout.layout(view)
    _tokens(view)
    return view.findings


def _defaults(view: View) -> None:
    defaults = part(view.definition, "defaults")
    for name in sorted(set(defaults) - {"dataSources", "visualizations", "tokens"}):
        view.say(f"defaults: {name} is no section of them")
    for name in sorted(set(part(defaults, "dataSources")) - studio.SOURCES - {"global"}):
        view.say(f"defaults: {name} is no kind of data source")
    for name in sorted(set(part(defaults, "visualizations")) - studio.VISUALIZATIONS - {"global"}):
        view.say(f"defaults: {name} is no visualization")
    whole = json.dumps(view.definition)
    for name in part(part(defaults, "tokens"), "default"):
        if f"${name}$" not in whole and f"${name}." not in whole and f"${name}|" not in whole:
            view.say(f"defaults: nothing asks for the token {name}")
    for name, one in {**part(defaults, "dataSources"), **part(defaults, "visualizations")}.items():
        for text in studio.unknown("default", one):
            view.say(f"defaults of {name}: {text}")
    for name, one in part(defaults, "dataSources").items():
        for text in studio.options("source", part(one, "options")):
            view.say(f"defaults of {name}: {text}")
        _times(view, f"defaults of {name}", part(part(one, "options"), "queryParameters"))


def _times(view: View, name: str, given: dict[str, Any]) -> None:
    for key, value in given.items():
        open_end = value in (None, "") or "$" in str(value)  # all of time, now, or what an input says
        if key not in ("earliest", "latest") or (not open_end and values.time(str(value))):
            view.say(f"{name}: {key} = {value} is no time")
        if f".{'latest' if key == 'earliest' else 'earliest'}$" in str(value):
            view.say(f"{name}: {key} = {value}: the two are swapped")
    if fault := values.between(str(given.get("earliest", "")), str(given.get("latest", ""))):
        view.say(f"{name}: {fault}")


def _source(
    view: View,
    name: str,
    known: dict[str, frozenset[str] | None],
    world: World,
    saved: Sources,
    chain: tuple[str, ...] = (),
) -> None:
    """Check a data source, and note the fields that it gives; of a chain the one before it comes first."""
    if name in known:
        return
    source = part(view.definition, "dataSources")[name]
    options, kind = part(source, "options"), source.get("type") if isinstance(source, dict) else None
    known[name] = None
    if kind not in studio.SOURCES:
        view.say(f"data source {name}: {kind} is no kind of data source")
        return
    said = [
        *studio.unknown("data source", source),
        *studio.unknown(str(kind), options),
        *studio.missing(str(kind), options),
        *studio.options("source", options),
    ]
    for text in said:
        if "is no option of" not in text:  # said by its kind
            view.say(f"data source {name}: {text}")
    _times(view, f"data source {name}", part(options, "queryParameters"))
    before: frozenset[str] | None = None
    if kind == "ds.savedSearch":
        ref = str(options.get("ref"))
        if ref not in saved:
            view.say(f"data source {name}: there is no saved search {options.get('ref')!r}")
        elif ref not in world.searches:
            view.say(f"data source {name}: the saved search {ref!r} is disabled")
        for asked in sorted(world.asked.get(ref, ())):
            view.say(
                f"data source {name}: the saved search {ref!r} asks for {asked}, which no view gives it: write it here"
            )
        if options.get("app", "glasslab") != "glasslab":
            view.say(f"data source {name}: app {options.get('app')} is not this one")
        known[name] = saved.get(ref)
        return
    if kind == "ds.chain":
        extended = str(options.get("extend"))
        if extended not in part(view.definition, "dataSources"):
            view.say(f"data source {name} extends {options.get('extend')!r}, which is not there")
        elif extended in (*chain, name):
            view.say(f"data source {name} extends {extended}, which extends it: a chain begins with a search")
        else:
            _source(view, extended, known, world, saved, (*chain, name))
            before = known.get(extended)
    if kind != "ds.test":
        outcome = searches.check(str(options.get("query", "")), world, before, chained=kind == "ds.chain")
        for fault in outcome.faults:
            view.say(f"data source {name}: {fault}")
        known[name] = outcome.fields


def _tokens(view: View) -> None:
    """Say which tokens nothing sets, and which are written in a way that is none."""
    clicked = {token for token, _ in _TOKEN.findall(json.dumps(_without_handlers(view.definition)))}
    known, inputs, sources = view.tokens(), view.inputs(), part(view.definition, "dataSources")
    for token, filtered in sorted(set(_TOKEN.findall(json.dumps(view.definition)))):
        name, _, inner = token.partition(".")
        own = name.split(":")[0]
        if filtered and (len(filtered) > 1 or filtered not in studio.FILTERS):
            view.say(f"${token}|{filtered}$: {filtered} is no filter; it is one of {', '.join(studio.FILTERS)}")
        if own in sources and ":" in name:
            continue
        if own == "env":
            if not _ENVIRONMENT.fullmatch(token):
                view.say(f"${token}$ is no token of the environment")
        elif name not in known:
            of_a_click = token.startswith(("row.", "click.", "result.", "name", "value", "trellis."))
            if not of_a_click:
                view.say(f"${token}$ is set by no input")
            elif token in clicked:
                view.say(f"${token}$ is there in a drilldown only; set a token of the view by drilldown.setToken")
        elif name in inputs and (inputs[name].get("type") == "input.timerange") != bool(inner):
            view.say(f"${token}$: a time range is $TOKEN.earliest$ and $TOKEN.latest$, and no other input has parts")
        elif name in inputs and inner and inner not in studio.TIMERANGE_PARTS:
            view.say(f"${token}$: a time range has earliest and latest, and no {inner}")


def _without_handlers(value: Any) -> Any:
    """Return a definition without what happens at a click."""
    if isinstance(value, dict):
        return {key: _without_handlers(inner) for key, inner in value.items() if key != "eventHandlers"}
    return [_without_handlers(inner) for inner in value] if isinstance(value, list) else value
