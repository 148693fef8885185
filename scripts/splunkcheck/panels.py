"""A view's visualizations: what they show, how, and where a click on one leads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from splunkcheck import studio
from splunkcheck.definition import View, objects, part

# The saved searches, or a view's data sources, each with the fields it ends with (None: not known).
Sources = Mapping[str, frozenset[str] | None]
_SERIES: Final = re.compile(r"seriesByName\(\s*[\"']([^\"']+)[\"']\s*\)")


def visualization(
    view: View, name: str, one: Any, sources: Sources, views: Mapping[str, View], saved: Sources
) -> Iterator[str]:
    """Say what is wrong with a visualization; return the data sources that it uses."""
    if not isinstance(one, dict):
        view.say(f"{name} is no object")
        return
    kind, options = str(one.get("type")), part(one, "options")
    if kind not in studio.VISUALIZATIONS:
        view.say(f"{name}: {kind} is no visualization")
    for text in [*studio.unknown("visualization", one), *studio.options(kind, options)]:
        view.say(f"{name}: {text}")
    for text in studio.missing(kind, options):
        view.say(f"{name}: {text}")
    played = {role: str(source) for role, source in part(one, "dataSources").items()}
    primary = played.get("primary")
    if not primary and kind not in studio.WITHOUT_DATA:
        view.say(f"{name} has no primary data source")
    for role, source in played.items():
        yield source
        if source not in sources:
            view.say(f"{name}: there is no data source {source}")
        if role not in ("primary", "annotation"):
            view.say(f"{name}: {role} is no part that a data source plays; it is primary or annotation")
    fields = sources.get(str(primary))
    if fields is not None:
        _columns(view, name, kind, options, fields, str(primary))
    for handler in objects(one, "eventHandlers"):
        _handler(view, name, handler, fields, views, saved)


def _columns(view: View, name: str, kind: str, options: dict[str, Any], fields: frozenset[str], primary: str) -> None:
    if kind in studio.OF_TWO and len(fields) < 2:
        view.say(f"{name}: {kind} draws one column against another, and {primary} gives only {', '.join(fields)}")
    overlay = options.get("overlayFields")
    for one in overlay if isinstance(overlay, list) else ():
        if str(one) not in fields:
            view.say(f"{name}: overlay of {one}, which {primary} does not give")
    for key, value in options.items():
        for one in _SERIES.findall(value) if isinstance(value, str) and value.startswith(">") else ():
            if one not in fields:
                view.say(f"{name}: {key} takes {one}, which {primary} does not give")
        named = (
            list(value)
            if key in ("columnFormat", "seriesColorsByField", "lineDashStylesByField") and isinstance(value, dict)
            else []
        )
        named += [value] if key in ("majorValueField", "xField", "labelField", "valueField") else []
        if kind in ("splunk.table", "splunk.singlevalue", "splunk.pie") or key == "xField":
            for one in named:
                if one not in fields and "$" not in str(one) and key != "seriesColorsByField":
                    view.say(f"{name}: {key} names {one}, which {primary} does not give")


def _handler(
    view: View,
    name: str,
    handler: dict[str, Any],
    fields: frozenset[str] | None,
    views: Mapping[str, View],
    saved: Sources,
) -> None:
    kind, options = str(handler.get("type")), part(handler, "options")
    if kind not in studio.HANDLERS:
        view.say(f"{name}: {kind} is no drilldown")
        return
    for text in [*studio.unknown("drilldown", handler), *studio.options("handler", options)]:
        view.say(f"{name}: {text}")
    for text in studio.missing(kind, options):
        view.say(f"{name}: {text}")
    for key in sorted(set(options) - set(studio.HANDLERS[kind].split())):
        if key in studio.OPTIONS["handler"]:
            view.say(f"{name}: {key} is no option of {kind}")
    target = views.get(str(options.get("dashboard")))
    if kind == "drilldown.linkToDashboard" and (options.get("app") != "glasslab" or target is None):
        view.say(f"{name} leads to view {options.get('app')}/{options.get('dashboard')}, which is not there")
    if kind == "drilldown.linkToReport" and options.get("report") not in saved:
        view.say(f"{name} leads to the saved search {options.get('report')}, which is not there")
    if kind == "drilldown.customUrl" and not re.match(r"https?://|/|\$", str(options.get("url", ""))):
        view.say(f"{name}: url {options.get('url')} is no URL")
    names = [token.get("token") for token in objects(options, "tokens")]
    for twice in sorted({str(one) for one in names if names.count(one) > 1}):
        view.say(f"{name} sets {twice} twice at one click")
    for token in objects(options, "tokens"):
        if set(token) not in ({"token", "value"}, {"token", "key"}) or not all(token.values()):
            view.say(
                f"{name}: a token of a drilldown is a token and a value (of setToken: a key), not {', '.join(token)}"
            )
        if kind == "drilldown.linkToDashboard" and target is not None and token.get("token") not in target.tokens():
            view.say(f"{name} sets {token.get('token')}, which view {target.name} has no input for")
        if kind == "drilldown.setToken" and f"${token.get('token')}" not in json.dumps(view.definition):
            view.say(f"{name} sets the token {token.get('token')}, which nothing asks for")
        _selected(view, name, str(token.get("value", token.get("key", ""))), fields)


def _selected(view: View, name: str, value: str, fields: frozenset[str] | None) -> None:
    """Say what is wrong with what a drilldown takes of the row that was clicked."""
    value = value.strip("$")
    if not value.startswith(("row.", "result.")):
        return
    found = re.fullmatch(r"(?:row|result)\.(.+?)(\.value|\.name)?", value)
    if value.startswith("row.") and found and not found[2]:
        view.say(f"{name} takes {value}; a cell is row.COLUMN.value")
    if found and fields is not None and found[1] not in fields:
        view.say(f"{name} takes {found[1]} of a row, which its data source does not give")
