"""The fields that events have, and the values that some of them may take: from the vocabulary, never written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from glasslab.statuses import EXIT_CODES
from glasslab.verify import WRITERS
from glasslab.vocabulary import COMMON_FIELDS
from glasslab.vocabulary import KINDS as KINDS

# What Splunk gives every event.
SPLUNKS: Final = frozenset(("_time", "_raw", "_indextime", "host", "source", "sourcetype", "index", "eventtype", "tag",
                            "linecount", "punct", "splunk_server"))  # fmt: skip
BOOLEANS: Final = frozenset(("true", "false"))
VALUES: Final[dict[str, frozenset[str]]] = {
    "kind": frozenset(KINDS),
    "sourcetype": frozenset(kind.sourcetype for kind in KINDS.values()),
    "component": frozenset(WRITERS),
    "status": frozenset(EXIT_CODES),
    "verdict": frozenset(("allowed", "denied")),
    "decision": frozenset(("run_tools", "answer", "stop", "approved", "denied")),
    "inside_sandbox": BOOLEANS, "is_error": BOOLEANS, "refused": BOOLEANS, "estimated": BOOLEANS,
    "instructions_changed": BOOLEANS, "whole": BOOLEANS,
}  # fmt: skip
# The fields that are numbers: a text never is more or less than one.
NUMBERS: Final = frozenset(
    ("seq", "clock", "step", "turns", "cost", "bytes", "duration_ms", "prompt_tokens", "completion_tokens", "_time")
)
# Fields that are no numbers: of these there is no sum and no mean.
TEXTS: Final = frozenset(VALUES) | frozenset(
    ("summary", "session_id", "event_id", "prev", "sig", "tool", "model", "reason", "question", "answer",
     "requested_path", "resolved_path", "host", "source", "index", "_raw")
)  # fmt: skip
# What is inside the fields that are objects or lists of objects. Where the names are data, anything may stand.
_INSIDE: Final = {
    "tokens": "prompt completion reasoning total",
    "tools": "name description input_schema description_sha256 definition_sha256 type function",
    "tool_calls": "id name arguments",
    "tools_requested": "tool arguments",
    "receipt": "lab_id began time as_expected mode counts problems rules versions session disruptive probes indexed",
}
INSIDE: Final = {name: frozenset(names.split()) for name, names in _INSIDE.items()}


def of_kinds(kinds: Iterable[str]) -> frozenset[str]:
    """Return the fields of events of some kinds, beside Splunk's own."""
    found = set(SPLUNKS) | set(COMMON_FIELDS)
    for name in kinds:
        found |= {*KINDS[name].fields, *KINDS[name].optional}
    return frozenset(found)


def of_sourcetypes(sourcetypes: Iterable[str]) -> list[str]:
    """Return the kinds that are stored under some sourcetypes."""
    wanted = set(sourcetypes)
    return [name for name, kind in KINDS.items() if kind.sourcetype in wanted]


def matching(name: str, value: str) -> set[str]:
    """Return the values that a term's value, maybe with wildcards, stands for."""
    pattern = re.compile(".*".join(map(re.escape, value.split("*"))))
    return {known for known in VALUES.get(name, ()) if pattern.fullmatch(known)}


def root(name: str) -> str:
    """Return the event's own field that a path begins with: `tools{}.name` -> `tools`."""
    return re.split(r"[.{]", name, maxsplit=1)[0]


def fault(name: str, known: frozenset[str]) -> str:
    """Return what is wrong with a field's name or path among the fields known there, or nothing."""
    if "*" in name:
        pattern = re.compile(".*".join(map(re.escape, name.split("*"))))
        return "" if any(pattern.fullmatch(one) or root(name) == one for one in known) else f"no field is like {name}"
    if name in known:
        return ""
    own = root(name)
    if own == name or own not in known:
        return f"there is no field {name}"
    inner = re.sub(r"^\{\d*\}\.?|^\.", "", name[len(own) :])
    if inner and own in INSIDE and root(inner) not in INSIDE[own]:
        return f"there is no {inner} in {own}"
    return ""
