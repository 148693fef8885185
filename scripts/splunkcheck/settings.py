"""Every key and value of a .conf file against the reference, and what a file's stanzas have to hold beyond that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from splunkcheck import fields, reference, values
from splunkcheck.conffile import Conf, Stanza
from splunkcheck.expressions import assignments
from splunkcheck.findings import FaultError, Finding


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
        elif not setting.value and kind not in (reference.TEXT,):
            yield Finding(conf.file, setting.line, f"[{stanza.name}] {key} is empty")
        elif fault := values.fault(kind, setting.value) if kind != reference.EVAL else _eval(setting.value):
            yield Finding(conf.file, setting.line, f"[{stanza.name}] {key} = {setting.value[:60]} {fault}")


def _like(keys: reference.Keys, key: str) -> str:
    same = [known for known in keys if known.lower() == key.lower()]
    return f"; it is written {same[0]}" if same else ""


def _eval(value: str) -> str:
    try:
        assignments(f"x={value}")
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
    if not stanza["ui"].get("label"):
        yield Finding(conf.file, stanza["ui"].line, "[ui] has no label")


def _indexes(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        places = [stanza.get(key) for key in ("homePath", "coldPath", "thawedPath")]
        if len(set(places)) < len(places):
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] homePath, coldPath and thawedPath are not three places"
            )
        for key in ("frozenTimePeriodInSecs", "maxTotalDataSizeMB"):
            if stanza.get(key) in ("0", "00"):
                yield Finding(conf.file, stanza.settings[key].line, f"[{stanza.name}] {key} = 0 keeps nothing")
        if stanza.get("thawedPath").startswith("volume:"):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] thawedPath may not be in a volume")


def _props(conf: Conf) -> Iterator[Finding]:
    stored = fields.VALUES["sourcetype"]
    for stanza in conf.stanzas.values():
        plain = not stanza.name.startswith(("source::", "host::")) and stanza.name != "default"
        if plain and stanza.name not in stored:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] is no sourcetype of the vocabulary")
        breaker = stanza.settings.get("LINE_BREAKER")
        if breaker and not values.regex(breaker.value) and not re.compile(breaker.value).groups:
            yield Finding(
                conf.file, breaker.line, f"[{stanza.name}] LINE_BREAKER has no group: it says where a line ends"
            )
        for key, setting in stanza.settings.items():
            if key.startswith("EXTRACT-") and not re.search(r"\(\?P?<[A-Za-z]", setting.value):
                yield Finding(conf.file, setting.line, f"[{stanza.name}] {key} has no named group: it makes no field")
        cut = stanza.settings.get("TRUNCATE")
        if cut and re.fullmatch(r"\d+", cut.value) and 0 < int(cut.value) < 1_000_000:
            yield Finding(conf.file, cut.line, f"[{stanza.name}] TRUNCATE = {cut.value} cuts a trace frame of 1 MB")
        if plain and stanza.get("KV_MODE") != "json":
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] KV_MODE is not json: its frames would have no fields"
            )
    for missing in sorted(stored - set(conf.stanzas)):
        yield Finding(conf.file, 0, f"sourcetype {missing} of the vocabulary has no stanza")


def _macros(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        count = int(found[1]) if (found := re.search(r"\((\d+)\)$", stanza.name)) else 0
        names = [name.strip() for name in stanza.get("args").split(",") if name.strip()]
        used = set(re.findall(r"\$([\w-]+)\$", stanza.get("definition")))
        if len(names) != count or len(set(names)) != count:
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] takes {count} arguments and args names {len(names)}"
            )
        for name in sorted(used - set(names)):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] ${name}$ is none of its arguments")
        for name in sorted(set(names) - used):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] its argument {name} is never used")


def _saved(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        scheduled = stanza.get("enableSched", "0").lower() in ("1", "true", "t", "yes", "y")
        if scheduled != ("cron_schedule" in stanza.settings):
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] enableSched and cron_schedule go together")
        for key in ("dispatch.earliest_time", "dispatch.latest_time"):
            if key not in stanza.settings:
                yield Finding(conf.file, stanza.line, f"[{stanza.name}] has no {key}: it would search all of time")


def _events(conf: Conf) -> Iterator[Finding]:
    for stanza in conf.stanzas.values():
        if re.search(r"[|\[`]", re.sub(r'"[^"]*"', "", stanza.get("search"))):
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] an event type's search has no pipe, subsearch or macro"
            )


def _roles(conf: Conf) -> Iterator[Finding]:
    roles = [stanza for stanza in conf.stanzas.values() if stanza.name.startswith("role_")]
    own = {stanza.name.removeprefix("role_") for stanza in roles}
    for stanza in roles:
        for role in re.split(r"[;,\s]+", stanza.get("importRoles")):
            if role and role not in own:
                word = "may do more than it needs" if role in reference.BUILT_IN_ROLES else "does not exist"
                yield Finding(conf.file, stanza.line, f"[{stanza.name}] imports {role}, which {word}")
        if "srchIndexesAllowed" not in stanza.settings:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] has no srchIndexesAllowed")


_MORE: Final[dict[str, Callable[[Conf], Iterator[Finding]]]] = {
    "app.conf": _app, "indexes.conf": _indexes, "props.conf": _props, "macros.conf": _macros,
    "savedsearches.conf": _saved, "eventtypes.conf": _events, "authorize.conf": _roles,
}  # fmt: skip
