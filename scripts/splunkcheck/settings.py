"""Every key and value of a .conf file against the reference, and what a file's stanzas have to hold beyond that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from splunkcheck import indexes, reference, roles, scheduling, settingtypes, values
from splunkcheck.conffile import Conf, Stanza
from splunkcheck.expressions import assignments, expression
from splunkcheck.findings import FaultError, Finding
from splunkcheck.tokens import taken


def check(conf: Conf) -> list[Finding]:
    """Return what is wrong with a .conf file, by itself."""
    if conf.name not in reference.REFERENCE:
        return [Finding(conf.file, 0, f"the checker has no reference for {conf.name}; write it into reference.py")]
    found = [finding for stanza in conf.stanzas.values() for finding in _stanza(conf, stanza)]
    more = _MORE.get(conf.name)
    return found + (list(more(conf)) if more else [])


def _stanza(conf: Conf, stanza: Stanza) -> Iterator[Finding]:
    keys = reference.keys_of(conf.name, stanza.name)
    if keys is None:
        yield Finding(conf.file, stanza.line, f"{conf.name} has no stanza [{stanza.name}]")
        return
    for key in reference.REQUIRED.get(conf.name, ()):
        if key not in stanza.settings:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] has no {key}")
    for key, setting in stanza.settings.items():
        kind = reference.type_of(conf.name, keys, key)
        if stanza.name.startswith("role_") and kind is None:
            if key not in reference.CAPABILITIES:
                yield Finding(
                    conf.file,
                    setting.line,
                    f"[{stanza.name}] {key} is no setting, and no capability that a role here may have",
                )
            elif setting.value != "enabled":
                yield Finding(
                    conf.file,
                    setting.line,
                    f"[{stanza.name}] {key} = {setting.value}: a capability is enabled, or not there",
                )
        elif kind is None:
            yield Finding(
                conf.file, setting.line, f"[{stanza.name}] {key} is no setting of {conf.name}{_like(keys, key)}"
            )
        elif not setting.value and kind != settingtypes.TEXT:
            yield Finding(conf.file, setting.line, f"[{stanza.name}] {key} is empty")
        elif fault := values.fault(kind, setting.value) if kind != settingtypes.EVAL else _eval(setting.value, key):
            yield Finding(conf.file, setting.line, f"[{stanza.name}] {key} = {setting.value[:60]} {fault}")


def _like(keys: settingtypes.Keys, key: str) -> str:
    same = [known for known in keys if known.lower() == key.lower()]
    return f"; it is written {same[0]}" if same else ""


def _eval(value: str, key: str = "") -> str:
    try:
        if key == "validation":  # of a macro's arguments: a condition, or a text that says what is wrong
            expression(re.sub(r"\$[\w-]+\$", "x", value))
        else:
            assignments(value if key == "INGEST_EVAL" else f"x={value}")
    except FaultError as error:
        return f"is no expression: {error}"
    return ""


def _app(conf: Conf) -> Iterator[Finding]:
    stanza = {name: conf.stanzas.get(name, Stanza(name, 0)) for name in ("launcher", "package", "id", "ui")}
    versions = {stanza[name].get("version") for name in ("launcher", "id")}
    if len(versions) > 1:
        yield Finding(
            conf.file, stanza["id"].line, f"[launcher] and [id] differ in version: {', '.join(sorted(versions))}"
        )
    for version in versions:
        if not re.fullmatch(r"\d+\.\d+\.\d+(?:-?[a-z0-9]+)?", version):
            yield Finding(conf.file, stanza["launcher"].line, f"version {version!r} is not MAJOR.MINOR.PATCH")
    if stanza["package"].get("id") != stanza["id"].get("name"):
        yield Finding(conf.file, stanza["package"].line, "[package] id and [id] name differ")
    if not any(versions):
        yield Finding(conf.file, stanza["launcher"].line, "[launcher] has no version")
    if stanza["ui"].get("is_visible", "1").lower() in ("0", "false", "f", "no", "n"):
        yield Finding(
            conf.file, stanza["ui"].settings["is_visible"].line, "[ui] is_visible is off: nobody finds the app's views"
        )
    if conf.stanzas.get("install", Stanza("", 0)).get("state") == "disabled":
        yield Finding(
            conf.file, conf.stanzas["install"].line, "[install] state is disabled: nothing of the app is there"
        )
    if not stanza["ui"].get("label"):
        yield Finding(conf.file, stanza["ui"].line, "[ui] has no label")


def _macros(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        count = int(found[1]) if (found := re.search(r"\((\d+)\)$", stanza.name)) else 0
        names = [name.strip() for name in stanza.get("args").split(",") if name.strip()]
        used = set(re.findall(r"\$([\w-]+)\$", stanza.get("definition")))
        if len(names) != count or len(set(names)) != count:
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] takes {count} arguments and args names {len(names)}"
            )
        try:
            taken(stanza.get("definition"))
        except FaultError as error:
            yield Finding(conf.file, stanza.settings["definition"].line, f"[{stanza.name}] {error}")
        if "errormsg" in stanza.settings and "validation" not in stanza.settings:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] errormsg is never shown: there is no validation")
        if values.true(stanza.get("iseval")) and (fault := _eval(re.sub(r"\$[\w-]+\$", "x", stanza.get("definition")))):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] iseval, and its definition {fault}")
        for name in sorted(used - set(names)):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] ${name}$ is none of its arguments")
        for name in sorted(set(names) - used):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] its argument {name} is never used")


def _events(conf: Conf) -> Iterator[Finding]:
    called = {
        stanza.name: set(re.findall(r'\beventtype\s*=\s*"?([\w-]+)', stanza.get("search")))
        for stanza in conf.stanzas.values()
    }
    for stanza in conf.stanzas.values():
        if re.search(r"[|\[]", re.sub(r'"[^"]*"', "", stanza.get("search"))):
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] an event type's search has no pipe and no subsearch"
            )
        if found := re.search(r"\b(?:_index_)?(?:earliest|latest)\s*=", stanza.get("search")):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] {found[0]}: an event type has no time of its own")
        reached, todo = set[str](), [stanza.name]
        while todo:
            new = called.get(todo.pop(), set()) - reached
            reached |= new
            todo += new
        if stanza.name in reached:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] its search is made of itself (eventtype=)")


def _tags(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        if not stanza.settings:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] has no tag")


_MORE: Final[dict[str, Callable[[Conf], Iterator[Finding]]]] = {
    "app.conf": _app, "indexes.conf": indexes.check, "macros.conf": _macros, "tags.conf": _tags,
    "savedsearches.conf": scheduling.check, "eventtypes.conf": _events, "authorize.conf": roles.check,
}  # fmt: skip
