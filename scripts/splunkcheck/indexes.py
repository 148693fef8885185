"""The indexes: where they stand, how much they keep, and that one is not switched off which everything searches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from splunkcheck import values
from splunkcheck.conffile import Conf, Stanza
from splunkcheck.findings import Finding

_PATHS: Final = ("homePath", "coldPath", "thawedPath")
_DAY: Final = 86_400
# The folders of the indexes that every Splunk has.
_TAKEN: Final = frozenset(
    f"$SPLUNK_DB/{name}"
    for name in ("defaultdb", "_internaldb", "audit", "historydb", "summarydb", "_introspection", "fishbucket")
)


def check(conf: Conf) -> Iterator[Finding]:
    """Return what is wrong with indexes.conf beyond its single settings."""
    volumes = {name for name in conf.stanzas if name.startswith("volume:")}
    seen: dict[str, str] = {}
    for stanza in conf.stanzas.values():
        if stanza.name in volumes or stanza.name == "default":
            continue
        for text, line in _one(stanza, volumes):
            yield Finding(conf.file, line, f"[{stanza.name}] {text}")
        for key in _PATHS:
            place = stanza.get(key)
            owner = seen.setdefault(place, stanza.name) if place else stanza.name
            if owner != stanza.name:
                yield Finding(
                    conf.file, stanza.settings[key].line, f"[{stanza.name}] {key} = {place} is the place of [{owner}]"
                )


def _one(stanza: Stanza, volumes: set[str]) -> Iterator[tuple[str, int]]:
    for key in _PATHS:
        if key not in stanza.settings:
            yield f"has no {key}", stanza.line
    places = [stanza.get(key) for key in _PATHS]
    if len(set(places)) < len(places):
        yield "homePath, coldPath and thawedPath are not three places", stanza.line
    frozen = stanza.get("coldToFrozenDir")
    if frozen and frozen in places:
        yield f"coldToFrozenDir = {frozen} is where its own buckets are", stanza.settings["coldToFrozenDir"].line
    for outer in places:
        for inner in places:
            if outer and inner.startswith(f"{outer}/"):
                yield f"{inner} is inside of {outer}: buckets would be taken for one another's", stanza.line
    for key in _PATHS:
        setting = stanza.settings.get(key)
        volume = re.match(r"volume:[^/]*", setting.value) if setting else None
        if setting and volume and key == "thawedPath":
            yield "thawedPath may not be in a volume", setting.line
        elif setting and volume and volume[0] not in volumes:
            yield f"{key}: there is no [{volume[0]}]; define it, or begin with $SPLUNK_DB", setting.line
        elif setting and setting.value.rpartition("/")[0] in _TAKEN:
            yield f"{key} = {setting.value} belongs to an index of Splunk's own", setting.line
    kept = stanza.settings.get("frozenTimePeriodInSecs")
    if kept and kept.value.isdigit() and int(kept.value) < _DAY:
        yield f"frozenTimePeriodInSecs = {kept.value} keeps less than a day; it is in seconds", kept.line
    whole = stanza.get("maxTotalDataSizeMB", "500000")
    for key in ("homePath.maxDataSizeMB", "coldPath.maxDataSizeMB"):
        part = stanza.settings.get(key)
        if part and part.value.isdigit() and whole.isdigit() and int(part.value) > int(whole):
            yield f"{key} = {part.value} is more than the whole index, maxTotalDataSizeMB = {whole}", part.line
    if "coldToFrozenDir" in stanza.settings and "coldToFrozenScript" in stanza.settings:
        yield (
            "coldToFrozenScript is passed over: coldToFrozenDir is there too",
            stanza.settings["coldToFrozenScript"].line,
        )
    if values.true(stanza.get("disabled")):
        yield (
            "disabled: nothing is written to it, and the app's searches find nothing",
            stanza.settings["disabled"].line,
        )
