"""How events are read: what props.conf says of a sourcetype, with the transforms and lookups that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from splunkcheck import fields, lookups, patterns, values
from splunkcheck.conffile import Conf, Setting, Stanza
from splunkcheck.expressions import assignments
from splunkcheck.findings import FaultError, Finding

Lookups = Mapping[str, tuple[str, ...]]


def props(conf: Conf, transforms: Conf, columns: Lookups, used: set[str]) -> Iterator[Finding]:
    """Return what is wrong with props.conf; the lookups that it names are added to `used`."""
    stored = fields.VALUES["sourcetype"]
    for stanza in conf.stanzas.values():
        plain = not stanza.name.startswith(("source::", "host::")) and stanza.name != "default"
        if plain and stanza.name not in stored:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] is no sourcetype of the vocabulary")
        known = fields.of_kinds(fields.of_sourcetypes([stanza.name] if plain else stored))
        for key, setting in stanza.settings.items():
            for fault in _setting(key, setting, transforms, columns, known, used):
                yield Finding(conf.file, setting.line, f"[{stanza.name}] {fault}")
        if plain and stanza.get("KV_MODE") != "json":
            yield Finding(
                conf.file, stanza.line, f"[{stanza.name}] KV_MODE is not json: its frames would have no fields"
            )
        elif plain and "TRUNCATE" not in stanza.settings:
            yield Finding(
                conf.file,
                stanza.line,
                f"[{stanza.name}] has no TRUNCATE: 10,000 bytes are kept, and a trace frame is cut",
            )
        elif plain and values.true(stanza.get("SHOULD_LINEMERGE", "true")):
            line = stanza.settings.get("SHOULD_LINEMERGE", Setting("", stanza.line)).line
            yield Finding(
                conf.file, line, f"[{stanza.name}] SHOULD_LINEMERGE is on: frames, one a line, would become one event"
            )
        elif stanza.get("INDEXED_EXTRACTIONS") == "json":
            line = stanza.settings["INDEXED_EXTRACTIONS"].line
            yield Finding(
                conf.file,
                line,
                f"[{stanza.name}] INDEXED_EXTRACTIONS beside KV_MODE = json: every field is there twice",
            )
    for missing in sorted(stored - set(conf.stanzas)):
        yield Finding(conf.file, 0, f"sourcetype {missing} of the vocabulary has no stanza")


def _setting(
    key: str, setting: Setting, transforms: Conf, columns: Lookups, known: frozenset[str], used: set[str]
) -> Iterator[str]:
    value, (kind, _, _) = setting.value, key.partition("-")
    if key in ("LINE_BREAKER", "EVENT_BREAKER") and not patterns.fault(value) and not patterns.groups(value):
        yield f"{key} has no group: it says where a line ends"
    elif key in ("LINE_BREAKER", "EVENT_BREAKER") and not patterns.fault(value):
        if not any("\n" in (found[1] or "") for found in patterns.compiled(value).finditer('{"a": 1}\n{"a": 2}\n')):
            yield f"{key} = {value} never meets a line feed between two frames: they would become one event"
    elif kind == "EXTRACT":
        body, _, source = re.match(r"(.*?)(\s+in\s+(\w+))?$", value, re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
        if not patterns.fault(body) and not patterns.names(body):
            yield f"{key} has no named group: it makes no field"
        if source and source not in known:
            yield f"{key} reads {source}, which these events have not"
    elif key == "TRUNCATE" and re.fullmatch(r"\d+", value) and 0 < int(value) < 1_000_000:
        yield f"TRUNCATE = {value} cuts a trace frame of 1 MB"
    elif kind in ("REPORT", "TRANSFORMS"):
        for name in re.split(r"[\s,]+", value):
            stanza = transforms.stanzas.get(name)
            if stanza is None:
                yield f"{key}: transforms.conf has no [{name}]"
            elif not {"REGEX", "DELIMS", "INGEST_EVAL"} & set(stanza.settings):
                yield f"{key}: [{name}] of transforms.conf takes nothing out: it has no REGEX"
            elif kind == "TRANSFORMS" and not {"DEST_KEY", "WRITE_META", "INGEST_EVAL"} & set(stanza.settings):
                yield f"{key}: [{name}] of transforms.conf writes nothing: it has no DEST_KEY and no WRITE_META"
    elif kind == "LOOKUP":
        try:
            name, matched, _ = lookups.clause(value, columns)
            used.add(name)
            yield from (f"{key}: these events have no field {one}" for _, one in matched if fields.fault(one, known))
        except FaultError as error:
            yield f"{key}: {error}"
    elif kind == "FIELDALIAS":
        for old in re.findall(r"(\"[^\"]+\"|[^\s,]+)\s+(?:AS|ASNEW)\s", value, re.I):
            if fields.fault(old.strip('"'), known):
                yield f"{key}: these events have no field {old}"
    elif kind == "EVAL":
        yield from _calculated(key, value, known)


def _calculated(key: str, value: str, known: frozenset[str]) -> Iterator[str]:
    try:
        _, made = assignments(f"x={value}")[0]
    except FaultError:
        return  # said where its type is checked
    for name in made.fields:
        if fields.fault(name, known):
            yield f"{key}: these events have no field {name} (and one calculated field cannot use another)"


def transforms(conf: Conf, columns: Lookups, collections: set[str], scripts: set[str]) -> Iterator[Finding]:
    """Return what is wrong with transforms.conf beyond its single settings."""
    for stanza in conf.stanzas.values():
        kinds = [
            key
            for key in ("filename", "collection", "external_cmd", "REGEX", "DELIMS", "INGEST_EVAL")
            if key in stanza.settings
        ]
        lookup = [key for key in kinds if key in ("filename", "collection", "external_cmd")]
        if not kinds and "external_type" not in stanza.settings:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] does nothing: no filename, no collection, no REGEX")
        if len(lookup) > 1:
            yield Finding(conf.file, stanza.line, f"[{stanza.name}] is one lookup and has {' and '.join(lookup)}")
        for key, fault in (
            *_external(stanza, collections, scripts),
            *_table(stanza, columns.get(stanza.name)),
            *_regex(stanza),
        ):
            line = stanza.settings[key].line if key in stanza.settings else stanza.line
            yield Finding(conf.file, line, f"[{stanza.name}] {fault}")


def _external(stanza: Stanza, collections: set[str], scripts: set[str]) -> Iterator[tuple[str, str]]:
    kind, collection = stanza.get("external_type"), stanza.get("collection")
    if (kind == "kvstore") != bool(collection):
        yield "external_type", "external_type = kvstore and collection go together"
    if collection and collection not in collections:
        yield "collection", f"collections.conf has no [{collection}]"
    command = stanza.get("external_cmd").split()
    if command and command[0] not in scripts:
        yield "external_cmd", f"there is no bin/{command[0]}"


def _table(stanza: Stanza, columns: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    named = [("match_type", name.strip()) for name in re.findall(r"\(([^()]+)\)", stanza.get("match_type"))]
    named += [("time_field", stanza.get("time_field"))] if "time_field" in stanza.settings else []
    condition = stanza.get("filter")
    if condition:
        named += [("filter", name) for name in re.findall(r"([A-Za-z_]\w*)\s*(?:!=|[<>]=?|=)", condition)]
        if not re.fullmatch(
            r"[(\s]*(?:NOT\s+)?\w+\s*(?:!=|[<>]=?|=)\s*(?:\"[^\"]*\"|[^\s()\"=]+)(?:[)\s]+(?:(?:AND|OR)\s+)?.+)?[)\s]*",
            condition,
        ):
            yield "filter", f"filter = {condition[:60]} is no condition: COLUMN=VALUE, AND, OR"
    for key, name in named:
        if columns is not None and name not in columns:
            yield key, f"{key}: the lookup has no column {name}; it has {', '.join(columns)}"
    if "time_format" in stanza.settings and "time_field" not in stanza.settings:
        yield "time_format", "time_format without time_field: no column is a time"
    least, most = stanza.get("min_matches", "0"), stanza.get("max_matches", "1000")
    if least.isdigit() and most.isdigit() and int(least) > int(most):
        yield "min_matches", f"min_matches = {least} is more than max_matches = {most}"
    if ("default_match" in stanza.settings) != (least.isdigit() and int(least) > 0):
        yield "default_match", "default_match and min_matches of 1 or more go together"


def _regex(stanza: Stanza) -> Iterator[tuple[str, str]]:
    regex, form = stanza.get("REGEX"), stanza.get("FORMAT")
    if not regex or patterns.fault(regex):
        return
    beyond = [number for number in re.findall(r"\$(\d)", form) if int(number) > patterns.groups(regex)]
    if beyond:
        yield "FORMAT", f"FORMAT takes group ${beyond[0]}, and REGEX has {patterns.groups(regex)}"
    if not form and not patterns.names(regex):
        yield "REGEX", "REGEX makes no field: it has no named group, and there is no FORMAT"
    if "DEST_KEY" in stanza.settings and not form:
        yield "DEST_KEY", "DEST_KEY without FORMAT: nothing says what is written"
