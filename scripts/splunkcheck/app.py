"""The app as a whole: every file of it, and what they say of each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from splunkcheck import access, reference, searches, settings, tables, views
from splunkcheck.conffile import Conf, read
from splunkcheck.findings import FaultError, Finding
from splunkcheck.pipeline import Macro, expand
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
    calculated = {
        key.removeprefix("EVAL-")
        for stanza in app.conf("props.conf").stanzas.values()
        for key in stanza.settings
        if key.startswith("EVAL-")
    }
    indexes = reference.BUILT_IN_INDEXES | app.stanzas("indexes.conf")
    return World(macros, columns, frozenset(indexes), frozenset(calculated))


def check(root: Path) -> list[Finding]:
    """Return every finding of an app's folder, sorted."""
    app = load(root)
    for name in ("app.conf", "props.conf", "savedsearches.conf"):
        if name not in app.confs:
            app.findings.append(Finding(f"default/{name}", 0, "is not there"))
    for conf in app.confs.values():
        app.findings += settings.check(conf)
    columns, rows, found = tables.check(app.conf("transforms.conf"), root)
    app.findings += found + tables.related(rows, app.stanzas("savedsearches.conf"))
    around = world(app, columns)
    saved = _searches(app, around)
    _views(app, around, saved)
    _unused(app, around)
    _allowed(app, around.indexes)
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
            app.findings += [Finding(conf.file, setting.line, f"[{stanza.name}] {fault}") for fault in faults]
            if conf.name == "savedsearches.conf":
                saved[stanza.name] = outcome.fields
    return saved


def _views(app: App, around: World, saved: dict[str, frozenset[str] | None]) -> None:
    folder = app.root / "default" / "data" / "ui"
    found = {
        path.stem: views.read(path, str(path.relative_to(app.root)))
        for path in sorted((folder / "views").glob("*.xml"))
    }
    for view in found.values():
        app.findings += views.check(view, around, saved, found)
    roles = {name.removeprefix("role_") for name in app.stanzas("authorize.conf")}
    app.findings += access.navigation(
        folder / "nav" / "default.xml", "default/data/ui/nav/default.xml", set(found), set(saved)
    )
    if (app.root / "metadata" / "default.meta").is_file():
        app.findings += access.metadata(
            app.root / "metadata" / "default.meta", "metadata/default.meta", app.root, roles
        )


def _unused(app: App, around: World) -> None:
    for name, macro in around.macros.items():
        try:
            expand(macro.definition, around.macros, around.used_macros)
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


def _allowed(app: App, indexes: frozenset[str]) -> None:
    conf = app.conf("authorize.conf")
    for stanza in conf.stanzas.values():
        for key in ("srchIndexesAllowed", "srchIndexesDefault", "srchIndexesDisallowed"):
            for index in re.split(r"[;,\s]+", stanza.get(key)):
                if index and index not in indexes:
                    app.findings.append(
                        Finding(
                            conf.file, stanza.settings[key].line, f"[{stanza.name}] {key}: there is no index {index}"
                        )
                    )
                elif index in ("*", "_*"):
                    app.findings.append(
                        Finding(
                            conf.file,
                            stanza.settings[key].line,
                            f"[{stanza.name}] {key} = {index} is more than it needs",
                        )
                    )
