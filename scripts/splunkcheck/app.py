"""The app as a whole: every file of it, and what they say of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from splunkcheck import (
    access,
    definition,
    folder,
    parsing,
    patterns,
    reference,
    roles,
    scheduling,
    searches,
    settings,
    tables,
    views,
)
from splunkcheck.conffile import Conf, Stanza, read
from splunkcheck.findings import FaultError, Finding
from splunkcheck.pipeline import Macro, balanced, expand
from splunkcheck.searches import World


@dataclass(slots=True)
class App:
    """An app's folder with its .conf files by name, and what was found."""

    root: Path
    confs: dict[str, Conf] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def conf(self, name: str) -> Conf:
        """Return a .conf file; an empty one where there is none."""
        return self.confs.get(name, Conf(name, f"default/{name}"))

    def stanzas(self, name: str) -> set[str]:
        """Return the names of a .conf file's stanzas."""
        return set(self.conf(name).stanzas)


def load(root: Path) -> App:
    """Read an app's .conf files."""
    app = App(root)
    for path in sorted((root / "default").glob("*.conf")):
        app.confs[path.name], found = read(path, f"default/{path.name}")
        app.findings += found
    return app


def world(app: App, columns: dict[str, tuple[str, ...]]) -> World:
    """Return what this app's searches may name."""
    macros = {}
    for stanza in app.conf("macros.conf").stanzas.values():
        names = tuple(name.strip() for name in stanza.get("args").split(",") if name.strip())
        count = int(found[1]) if (found := re.search(r"\((\d+)\)$", stanza.name)) else 0
        if len(names) == count:  # what is wrong with the others is said where the macros are checked
            macros[stanza.name] = Macro(names, stanza.get("definition"))
    calculated: dict[str, frozenset[str]] = {}
    for stanza in app.conf("props.conf").stanzas.values():
        plain = "::" not in stanza.name and stanza.name != "default"
        made = {key.removeprefix("EVAL-") for key in stanza.settings if key.startswith("EVAL-")}
        made |= {
            found for key in stanza.settings if key.startswith("EXTRACT-") for found in patterns.names(stanza.get(key))
        }
        where = stanza.name if plain else ""
        calculated[where] = calculated.get(where, frozenset()) | made
    indexes = reference.BUILT_IN_INDEXES | app.stanzas("indexes.conf")
    enabled = {
        stanza.name
        for stanza in app.conf("savedsearches.conf").stanzas.values()
        if not scheduling.on(stanza, "disabled")
    }
    types = {
        stanza.name for stanza in app.conf("eventtypes.conf").stanzas.values() if not scheduling.on(stanza, "disabled")
    }
    return World(macros, columns, frozenset(indexes), calculated, frozenset(enabled), frozenset(types))


def check(root: Path) -> list[Finding]:
    """Return every finding of an app's folder, sorted."""
    app = load(root)
    app.findings += folder.check(root)
    for name in ("app.conf", "props.conf", "savedsearches.conf"):
        if name not in app.confs:
            app.findings.append(Finding(f"default/{name}", 0, "is not there"))
    for conf in app.confs.values():
        app.findings += settings.check(conf)
    columns, rows, found = tables.check(app.conf("transforms.conf"), root)
    app.findings += found + tables.related(rows, app.stanzas("savedsearches.conf"))
    around = world(app, columns)
    app.findings += parsing.props(app.conf("props.conf"), app.conf("transforms.conf"), columns, around.used_lookups)
    scripts = {path.name for path in (root / "bin").glob("*")}
    app.findings += parsing.transforms(app.conf("transforms.conf"), columns, app.stanzas("collections.conf"), scripts)
    saved = _searches(app, around)
    _views(app, around, saved)
    _unused(app, around)
    _tagged(app, around)
    app.findings += roles.allowed(app.conf("authorize.conf"), around.indexes, app.conf("indexes.conf"))
    return sorted(set(app.findings))


def _searches(app: App, around: World) -> dict[str, frozenset[str] | None]:
    saved = {}
    for conf in (app.conf("savedsearches.conf"), app.conf("eventtypes.conf")):
        for stanza in conf.stanzas.values():
            setting = stanza.settings.get("search")
            if setting is None:
                continue
            # An event type is a part of a search: the search it is in names the index.
            text = setting.value if conf.name != "eventtypes.conf" else f"index=main ({setting.value})"
            outcome = searches.check(text, around)
            said = set(re.findall(r'\b(\w+)="', stanza.get("description")))
            faults = outcome.faults + [
                f"${name}$ is not told of in its description" for name in sorted(outcome.tokens - said)
            ]
            told = set(re.findall(r'\b(\w+)="\.\.\."', stanza.get("description")))
            faults += [
                f"its description tells of {name}, which it does not ask for" for name in sorted(told - outcome.tokens)
            ]
            app.findings += [Finding(conf.file, setting.line, f"[{stanza.name}] {fault}") for fault in faults]
            if conf.name == "savedsearches.conf":
                saved[stanza.name] = outcome.fields
                around.asked |= {stanza.name: outcome.tokens} if outcome.tokens else {}
                app.findings += _alerts(conf.file, stanza, around, outcome.fields)
    return saved


def _alerts(file: str, stanza: Stanza, around: World, fields: frozenset[str] | None) -> Iterator[Finding]:
    """What an alert looks at in its search's results."""
    condition, kept = stanza.settings.get("alert_condition"), stanza.settings.get("alert.suppress.fields")
    if condition:
        for fault in searches.check(condition.value, around, fields, chained=True).faults:
            yield Finding(file, condition.line, f"[{stanza.name}] alert_condition: {fault}")
    if kept and fields is not None:
        for name in sorted(set(kept.value.replace(",", " ").split()) - fields):
            text = f"[{stanza.name}] alert.suppress.fields: its search does not end with {name}"
            yield Finding(file, kept.line, text)


def _views(app: App, around: World, saved: dict[str, frozenset[str] | None]) -> None:
    place = app.root / "default" / "data" / "ui"
    found = {
        path.stem: definition.read(path, str(path.relative_to(app.root)))
        for path in sorted((place / "views").glob("*.xml"))
    }
    for view in found.values():
        app.findings += views.check(view, around, saved, found)
    setup = app.conf("app.conf").stanzas.get("ui", Stanza("ui", 0)).settings.get("setup_view")
    if setup and setup.value not in found:
        app.findings.append(Finding("default/app.conf", setup.line, f"[ui] setup_view: there is no view {setup.value}"))
    scripts = {path.name for path in (app.root / "bin").glob("*")}
    app.findings += scheduling.led_to(app.conf("savedsearches.conf"), "glasslab", set(found), around.indexes, scripts)
    own = {name.removeprefix("role_") for name in app.stanzas("authorize.conf")}
    app.findings += access.navigation(
        place / "nav" / "default.xml", "default/data/ui/nav/default.xml", set(found), set(saved)
    )
    if (app.root / "metadata" / "default.meta").is_file():
        objects = {name.removesuffix(".conf"): set(conf.stanzas) for name, conf in app.confs.items()}
        objects["authorize"] = objects.get("authorize", set()) | own
        objects |= {"views": set(found), "nav": {path.stem for path in (place / "nav").glob("*.xml")}}
        objects["lookups"] = {path.name for path in (app.root / "lookups").glob("*")}
        app.findings += access.metadata(app.root / "metadata/default.meta", "metadata/default.meta", objects, own)


def _tagged(app: App, around: World) -> None:
    for stanza in app.conf("tags.conf").stanzas.values():
        kind, _, value = stanza.name.partition("=")
        if kind == "eventtype" and unquote(value) not in around.eventtypes:
            app.findings.append(
                Finding("default/tags.conf", stanza.line, f"[{stanza.name}] there is no such event type")
            )


def _unused(app: App, around: World) -> None:
    for name, macro in around.macros.items():
        try:
            balanced(expand(macro.definition, around.macros, around.used_macros))
        except FaultError as error:
            app.findings.append(
                Finding("default/macros.conf", app.conf("macros.conf").stanzas[name].line, f"[{name}] {error}")
            )
    for name, stanza in app.conf("macros.conf").stanzas.items():
        if name not in around.used_macros:
            app.findings.append(Finding("default/macros.conf", stanza.line, f"[{name}] no search uses it"))
    for name in sorted(set(around.lookups) - around.used_lookups):
        app.findings.append(
            Finding(
                "default/transforms.conf", app.conf("transforms.conf").stanzas[name].line, f"[{name}] no search uses it"
            )
        )
