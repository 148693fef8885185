"""The saved searches: when they run, over which time, and what happens then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from splunkcheck import reference, values
from splunkcheck.conffile import Conf, Stanza
from splunkcheck.findings import Finding

_ALERTS: Final = ("counttype", "alert_condition", "alert.suppress", "actions")
# Where an action's results go, and what is wrong with a place that is none.
_PLACES: Final = {
    "summary_index._name": "is no index that is there",
    "script.filename": "is not in bin/",
    "lookup.filename": "is no file of lookups/: NAME.csv",
}
# What each of Splunk's actions cannot do without.
_NEEDS: Final = {
    "email": ("to",), "script": ("filename",), "webhook": ("param.url",), "lookup": ("filename",),
    "summary_index": ("_name",),
    "populate_lookup": ("dest",),
}  # fmt: skip


def on(stanza: Stanza, key: str) -> bool:
    """Return whether a stanza's setting is true."""
    return values.true(stanza.get(key))


def check(conf: Conf) -> Iterator[Finding]:
    """Return what is wrong with savedsearches.conf beyond its single settings."""
    for stanza in conf.stanzas.values():
        for key, fault in (*_times(stanza), *_alert(stanza), *_actions(stanza)):
            line = stanza.settings[key].line if key in stanza.settings else stanza.line
            yield Finding(conf.file, line, f"[{stanza.name}] {fault}")


def _times(stanza: Stanza) -> Iterator[tuple[str, str]]:
    if on(stanza, "enableSched") != ("cron_schedule" in stanza.settings):
        yield "cron_schedule", "enableSched and cron_schedule go together"
    if on(stanza, "enableSched") and on(stanza, "disabled"):
        yield "disabled", "is scheduled and disabled: it never runs"
    for key in ("dispatch.earliest_time", "dispatch.latest_time"):
        if key not in stanza.settings:
            yield key, f"has no {key}: it would search all of time"
    for first, last in (("earliest_time", "latest_time"), ("index_earliest", "index_latest")):
        if fault := values.between(stanza.get(f"dispatch.{first}"), stanza.get(f"dispatch.{last}")):
            yield f"dispatch.{first}", fault


def _alert(stanza: Stanza) -> Iterator[tuple[str, str]]:
    has = stanza.settings.keys()
    if on(stanza, "alert.suppress") and "alert.suppress.period" not in has:
        yield "alert.suppress", "alert.suppress without alert.suppress.period: for how long?"
    counted = stanza.get("counttype", "always").startswith("number")
    if counted != ("relation" in has) or counted != ("quantity" in has):
        yield "counttype", 'counttype = "number of ...", relation and quantity go together'
    if stanza.get("counttype") == "custom" and "alert_condition" not in has:
        yield "counttype", "counttype = custom without alert_condition"
    if "alert_condition" in has and stanza.get("counttype", "custom") != "custom":
        yield "alert_condition", "alert_condition counts only where counttype is custom, or is not there"
    idle = [
        key
        for key in (*_ALERTS, *(f"action.{name}" for name in reference.ACTIONS))
        if key in has and stanza.get(key) not in ("0", "false")
    ]
    if idle and not on(stanza, "enableSched"):
        yield idle[0], f"{idle[0]} never happens: the search is not scheduled (enableSched, cron_schedule)"


def _actions(stanza: Stanza) -> Iterator[tuple[str, str]]:
    named = [name for name in stanza.get("actions").replace(",", " ").split() if name]
    for name in named:
        if name not in reference.ACTIONS:
            yield "actions", f"actions: there is no {name}; there is {', '.join(reference.ACTIONS)}"
    for name in reference.ACTIONS:
        if name in named or on(stanza, f"action.{name}"):
            for key in _NEEDS.get(name, ()):
                if not stanza.get(f"action.{name}.{key}"):
                    yield f"action.{name}", f"action.{name} without action.{name}.{key}"


def led_to(conf: Conf, app: str, views: set[str], indexes: frozenset[str], scripts: set[str]) -> Iterator[Finding]:
    """Return what is wrong with where a saved search's results are opened, and where they go."""
    for stanza in conf.stanzas.values():
        goes = {key: stanza.settings[f"action.{key}"] for key in _PLACES if f"action.{key}" in stanza.settings}
        for key, setting in goes.items():
            value = setting.value
            there = {"summary_index._name": value in indexes, "script.filename": value in scripts}
            if not there.get(key, "/" not in value and value.endswith(".csv")):
                yield Finding(conf.file, setting.line, f"[{stanza.name}] action.{key} = {value} {_PLACES[key]}")
        own = stanza.get("request.ui_dispatch_app", app)
        for key, known in (
            ("request.ui_dispatch_app", {app, "search"}),
            ("request.ui_dispatch_view", views if own == app else set()),
        ):
            opened = stanza.settings.get(key)
            if opened and opened.value not in known | ({"search"} if known or own == "search" else set()):
                yield Finding(conf.file, opened.line, f"[{stanza.name}] {key}: there is no {opened.value}")
