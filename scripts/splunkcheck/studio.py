"""What a Dashboard Studio definition may hold, written from Splunk's public reference of its options (10.x).

As with reference.py: what is missing here and right is added here. Of visualizations that this app does not use, the
options are not listed, and are not checked.
"""

from __future__ import annotations

import re
from typing import Any, Final

from splunkcheck import formats

_VISUALIZATIONS: Final = """
area bar bubble choropleth.map choropleth.svg column ellipse events fillergauge image line linkgraph map markdown
markergauge parallelcoordinates pie punchcard rectangle sankey scatter singlevalue singlevalueicon singlevalueradial
table timeline
"""
VISUALIZATIONS: Final = frozenset(f"splunk.{name}" for name in _VISUALIZATIONS.split())
WITHOUT_DATA: Final = frozenset(("splunk.markdown", "splunk.image", "splunk.rectangle", "splunk.ellipse"))
# They draw one column against another: of one column nothing is seen.
OF_TWO: Final = frozenset(
    f"splunk.{name}" for name in ["area", "bar", "bubble", "column", "line", "pie", "punchcard", "sankey", "scatter"]
)
INPUTS: Final = frozenset(
    f"input.{name}" for name in ["timerange", "text", "dropdown", "multiselect", "number", "radio", "checkbox", "link"]
)
CHOOSING: Final = frozenset(f"input.{name}" for name in ["dropdown", "multiselect", "radio", "checkbox", "link"])
HANDLERS: Final[dict[str, str]] = {
    "drilldown.linkToDashboard": "app dashboard newTab tokens tab",
    "drilldown.linkToSearch": "query earliest latest newTab type app",
    "drilldown.linkToReport": "app report newTab",
    "drilldown.customUrl": "url newTab",
    "drilldown.setToken": "tokens",
    "drilldown.linkToTab": "tabId",
}
# Of each part the keys that it may have.
KEYS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(words.split())
    for name, words in {
        "definition": """
            title description inputs defaults dataSources visualizations layout expressions applicationProperties
        """,
        "data source": "type name options meta",
        "visualization": """
            type title description options dataSources eventHandlers context containerOptions showLastUpdated
            showProgressBar hideWhenNoData encoding
        """,
        "input": "type title options dataSources context containerOptions encoding",
        "drilldown": "type options fields",
        "layout": "type options structure globalInputs tabs layoutDefinitions",
        "block": "item type position",
        "default": "options",
        "position": "x y w h",
        "ds.search": "query queryParameters refresh refreshType enableSmartSources",
        "ds.savedSearch": "ref app queryParameters refresh refreshType enableSmartSources",
        "ds.chain": "extend query enableSmartSources",
        "ds.test": "data meta",
    }.items()
}
SOURCES: Final = frozenset(name for name in KEYS if name.startswith("ds."))
NEEDS: Final[dict[str, str]] = {
    "splunk.markdown": "markdown", "splunk.image": "src", "ds.search": "query", "ds.savedSearch": "ref",
    "ds.chain": "extend query", "ds.test": "data", "drilldown.linkToDashboard": "app dashboard",
    "drilldown.linkToSearch": "query", "drilldown.linkToReport": "report", "drilldown.customUrl": "url",
    "drilldown.setToken": "tokens", "drilldown.linkToTab": "tabId",
}  # fmt: skip
_COLOR: Final = re.compile(r"#(?:[0-9A-Fa-f]{3,4}|[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})|[a-z]+|rgba?\([\d.,% ]+\)")
TIMERANGE_PARTS: Final = frozenset(("earliest", "latest"))
FILTERS: Final = "shun"

_SHOW: Final = "auto/show/hide"
_AXES: Final[dict[str, str]] = {
    f"{axis}Axis{name}": kind
    for axis in ("x", "y", "y2")
    for name, kind in {
        "TitleText": "text", "TitleVisibility": "show/hide", "LabelRotation": "number", "LabelVisibility": _SHOW,
        "LineVisibility": "show/hide", "MajorTickInterval": "number", "MajorTickSize": "number",
        "MajorTickVisibility": _SHOW, "MinorTickSize": "number", "MinorTickVisibility": _SHOW,
        "MaxLabelParts": "number",
        "Abbreviation": "auto/off", "Scale": "linear/log", "Min": "any", "Max": "any", "ExtendRange": "bool",
    }.items()
} | {f"show{axis}{size}GridLines": "bool" for axis in ("X", "Y", "Y2") for size in ("Major", "Minor")}  # fmt: skip
_CHART: Final[dict[str, str]] = _AXES | {
    "backgroundColor": "color", "seriesColors": "colors", "seriesColorsByField": "object", "resultLimit": "number",
    "legendDisplay": "right/left/top/bottom/off", "legendMode": "standard/seriesCompare", "legendLabels": "texts",
    "legendTruncation": "ellipsisFront/ellipsisMiddle/ellipsisEnd/ellipsisOff", "showYAxisWithZero": "bool",
    "showY2AxisWithZero": "bool", "showRoundedY2AxisLabels": "bool", "annotationX": "any", "annotationLabel": "any",
    "annotationColor": "any", "x": "any", "y": "any", "y2": "any", "xField": "text", "yFields": "any",
    "y2Fields": "any",
}  # fmt: skip
_SERIES: Final[dict[str, str]] = _CHART | {
    "stackMode": "auto/stacked/stacked100", "dataValuesDisplay": "all/off/minmax", "overlayFields": "texts",
    "nullValueDisplay": "gaps/zero/connect", "showOverlayY2Axis": "bool", "showIndependentYRanges": "bool",
    "showSplitSeries": "bool", "areaOpacity": "number", "markerDisplay": "off/filled/outlined", "lineWidth": "number",
    "columnSpacing": "number", "barSpacing": "number", "seriesSpacing": "number", "columnGrouping": "overlay/side",
    "lineDashStyle": "text", "lineDashStylesByField": "object", "showLines": "bool", "isSeriesStacked": "bool",
}  # fmt: skip
_SINGLE: Final[dict[str, str]] = {
    "backgroundColor": "color", "majorValue": "any", "majorValueField": "text", "majorColor": "color",
    "majorFontSize": "number", "numberPrecision": "number", "unit": "text", "unitPosition": "before/after",
    "underLabel": "text", "underLabelFontSize": "number", "trendValue": "any", "trendColor": "color",
    "trendDisplay": "absolute/percent/off", "trendFontSize": "number", "shouldAbbreviateTrendValue": "bool",
    "shouldUseThousandSeparators": "bool", "showValue": "bool", "sparklineValues": "any",
    "sparklineDisplay": "before/after/above/below/off", "sparklineStrokeColor": "color", "sparklineAreaColor": "color",
    "showSparklineAreaGraph": "bool", "showSparklineTooltip": "bool", "sparklineHighlightDots": "number",
    "sparklineHighlightSegments": "number", "shouldSparklineAcceptNullData": "bool",
}  # fmt: skip
OPTIONS: Final[dict[str, dict[str, str]]] = {
    **{f"splunk.{name}": _SERIES for name in ("area", "bar", "column", "line")},
    "splunk.scatter": _CHART | {"category": "any", "markerSize": "number", "markerOpacity": "number", "size": "any"},
    "splunk.pie": {
        "backgroundColor": "color", "collapseThreshold": "number", "collapsedLabel": "text", "label": "any",
        "labelDisplay": "values/valuesAndPercentage/off", "labelField": "text", "value": "any", "valueField": "text",
        "resultLimit": "number", "seriesColors": "colors", "seriesColorsByField": "object", "showDonutHole": "bool",
    },
    "splunk.table": {
        "count": "number", "backgroundColor": "color", "columnFormat": "object", "tableFormat": "object",
        "table": "any",
        "dataOverlayMode": "none/heatmap/highlow", "font": "monospace/proportional", "showInternalFields": "bool",
        "fontSize": "extraSmall/small/default/large", "headerVisibility": "fixed/inline/none", "showRowNumbers": "bool",
        "paginateDataSourceKey": "text", "headers": "any",
    },
    "splunk.singlevalue": _SINGLE,
    "splunk.markdown": {
        "markdown": "text", "fontColor": "color", "backgroundColor": "color", "fontFamily": "text",
        "customFontSize": "number",
        "fontSize": "extraSmall/small/default/large/extraLarge/custom", "rotation": "number",
    },
    **{f"input.{name}": kinds for name, kinds in {
        "timerange": {"token": "token", "defaultValue": "text", "hidePresets": "bool", "hideRealTime": "bool"},
        "text": {"token": "token", "defaultValue": "text", "placeholder": "text"},
        "number": {"token": "token", "defaultValue": "number", "min": "number", "max": "number", "step": "number"},
    }.items()},
    **{name: {
        "token": "token", "defaultValue": "any", "items": "any", "label": "any", "value": "any", "placeholder": "text",
        "selectFirstSearchResult": "bool", "clearDefaultOnSelection": "bool", "prefix": "text", "suffix": "text",
        "delimiter": "text", "menuSortOrder": "text",
    } for name in CHOOSING},
    "layout": {
        "width": "size", "height": "size", "display": "auto/auto-scale/actual-size/fit-to-width",
        "backgroundColor": "color",
        "backgroundImage": "object", "showTitleAndDescription": "bool", "submitButton": "bool",
        "submitOnDashboardLoad": "bool", "gutterSize": "number",
    },
    "source": {
        "query": "text", "queryParameters": "object", "refresh": "span", "refreshType": "delay/interval",
        "enableSmartSources": "bool", "ref": "text", "app": "text", "extend": "text", "data": "object",
        "meta": "object",
    },
    "handler": {
        "app": "text", "dashboard": "text", "newTab": "bool", "tokens": "list", "tab": "text", "query": "text",
        "earliest": "text", "latest": "text", "type": "text", "report": "text", "url": "text", "tabId": "text",
    },
}  # fmt: skip
_PYTHON: Final[dict[str, tuple[str, type | tuple[type, ...]]]] = {
    "text": ("text", str), "number": ("number", (int, float)), "bool": ("boolean", bool), "list": ("list", list),
    "object": ("object", dict), "size": ("whole number", int), "token": ("text", str),
    "color": ("text", str), "colors": ("list", list), "texts": ("list", list), "span": ("text", str),
}  # fmt: skip


def unknown(part: str, found: dict[str, Any]) -> list[str]:
    """Say which keys a part may not have."""
    known = KEYS[part]
    return [f"{key} is no key of a {part}{_like(key, known)}" for key in sorted(set(found) - known)]


def missing(kind: str, found: dict[str, Any]) -> list[str]:
    """Say which options a part has to have and has not."""
    return [f"{kind} has no {key}" for key in NEEDS.get(kind, "").split() if not found.get(key)]


def options(name: str, found: dict[str, Any]) -> list[str]:
    """Say what is wrong with the options of a visualization, an input, the layout: an unknown one, a wrong value."""
    known = OPTIONS.get(name)
    if known is None:
        return []
    said = [f"{key} is no option of {name}{_like(key, known)}" for key in sorted(set(found) - set(known))]
    return said + [
        f"{key} = {value!r} {fault}"
        for key, value in found.items()
        if key in known and (fault := _fault(known[key], value))
    ]


def _fault(kind: str, value: Any) -> str:
    if kind == "any" or (isinstance(value, str) and (value.startswith(">") or "$" in value) and kind != "token"):
        return ""  # worked out from the data, or from a token, when the view is shown
    if "/" in kind:
        return "" if value in kind.split("/") else f"is none of {', '.join(kind.split('/'))}"
    called, types = _PYTHON[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        return f"is no {called}"
    if kind == "token" and not re.fullmatch(r"[A-Za-z_]\w*", str(value)):
        return "is no name of a token: letters, digits and _"
    for one in value if isinstance(value, list) else [value]:
        if kind in ("color", "colors") and not _COLOR.fullmatch(str(one)):
            return f"has {one!r}, which is no color: #RRGGBB"
        if kind == "texts" and not isinstance(one, str):
            return f"has {one!r}, which is no text"
    return formats.duration(str(value)) if kind == "span" else ""


def _like(key: str, known: Any) -> str:
    near = sorted(
        one
        for one in known
        if one.lower() == key.lower() or (len(set(one) ^ set(key)) <= 2 and abs(len(one) - len(key)) <= 2)
    )
    return f"; there is {', '.join(near[:3])}" if near else ""
