"""The search command: what the events are that a pipeline begins with, and the terms that events are kept by."""

from __future__ import annotations

import re

from splunkcheck import fields, values
from splunkcheck.terms import MODIFIERS, Terms, terms
from splunkcheck.tokens import TOKEN
from splunkcheck.walk import Walk


def search(walk: Walk, rest: str) -> None:
    """Take a search command: the first of a pipeline says which fields there are."""
    found = terms(rest)
    if not walk.started:
        _first(walk, found)
    times = {}
    for name, sign, value in found.compared:
        if walk.started and name in MODIFIERS and ("earliest" in name or "latest" in name):
            walk.faults.append(f"{name} limits the first command's search only; here, compare _time")
        elif walk.started and name in MODIFIERS:
            walk.need(name)
        if TOKEN in value:
            pass  # whatever an input says
        elif name == "index" and "*" in value:
            walk.faults.append(f"index={value} searches more than it needs; write `glasslab_index`")
        elif name == "index" and value not in walk.indexes:
            walk.faults.append(f"there is no index {value}")
        elif name == "eventtype" and "*" not in value and value not in walk.eventtypes:
            walk.faults.append(
                f"there is no event type {value}; eventtypes.conf has {', '.join(sorted(walk.eventtypes))}"
            )
        elif name in ("earliest", "latest", "_index_earliest", "_index_latest"):
            walk.faults += [f"{name} = {value} {fault}" for fault in [values.time(value)] if fault]
            times[name] = value
        elif sign in ("<", ">", "<=", ">=") and name in fields.NUMBERS and not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
            walk.faults.append(f"{name} is a number; {name}{sign}{value} compares it with a text")
        if name not in MODIFIERS:
            walk.need(name)
            walk.compares(name, value)
    if fault := values.between(times.get("earliest", ""), times.get("latest", "")):
        walk.faults.append(fault)


def _first(walk: Walk, found: Terms) -> None:
    kinds = found.kinds or set(fields.of_sourcetypes(found.sourcetypes or fields.VALUES["sourcetype"]))
    for kind in sorted(found.kinds if found.sourcetypes else ()):
        if kind not in fields.of_sourcetypes(found.sourcetypes):
            walk.faults.append(f"events of kind {kind} are not of sourcetype {' or '.join(sorted(found.sourcetypes))}")
    for sourcetype in sorted(found.sourcetypes if found.kinds else ()):
        if not set(fields.of_sourcetypes([sourcetype])) & found.kinds:
            walk.faults.append(f"no kind that is searched for is of sourcetype {sourcetype}")
    if not any(name in ("index", "eventtype") for name, _, _ in found.compared):
        walk.faults.append("names no index: the first command has to (macro glasslab_index)")
    stored = {fields.KINDS[kind].sourcetype for kind in kinds}
    everywhere = [
        walk.calculated.get(one, frozenset()) | walk.calculated.get("", frozenset()) for one in sorted(stored)
    ]
    walk.known = fields.of_kinds(kinds) | (frozenset.intersection(*everywhere) if everywhere else frozenset())
