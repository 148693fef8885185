"""What is wrong or risky with a set of tools, said when somebody pins it. Pure functions; the hints are heuristics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from glasslab.guardrails import visible_line
from glasslab.instructions import instructions_in
from glasslab.pins import name_of
from glasslab.schemas import schema_problem

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WORDS: Final = re.compile(r"[a-z]+")
_FEW_WORDS: Final = 4
_OVERLAP: Final = 0.7
_COMPARED: Final = 200
_FILLERS: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "for",
        "from",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "one",
        "or",
        "that",
        "the",
        "their",
        "this",
        "to",
        "which",
        "with",
    ]
)
_READS: Final = frozenset(
    _WORDS.findall(
        "browse download emails fetch find get inbox list load lookup mails query read retrieve scrape search weather"
    )
)
# As the first word of a name these act; in the middle some of them are things ("get_order").
_ACTS: Final = frozenset(
    _WORDS.findall(
        "add book buy cancel comment create email invite mail message move notify order post reply share submit update"
    )
)
_SENDS: Final = frozenset(
    _WORDS.findall("delete deploy execute forward pay publish push run send transfer upload webhook write")
)


def faults(definitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why these tools cannot be offered to a model at all, one line each."""
    found = []
    names = [name_of(definition) for definition in definitions]
    for definition, name in zip(definitions, names, strict=True):
        shown = visible_line(name)[:80]
        if not isinstance(definition.get("name"), str) or not _NAME.fullmatch(name):
            found.append(f"tool {shown!r}: models take names of 1 to 64 letters, digits, _ and - only; rename it")
        if names.count(name) > 1:
            found.append(f"tool {shown!r} is listed {names.count(name)} times; a name has to be one tool's")
        problem = schema_problem(definition.get("inputSchema"))
        if problem is not None:
            found.append(f"tool {shown!r}: inputSchema: {problem}; no arguments could be checked")
    return list(dict.fromkeys(found))


def hints(definitions: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Return what makes a model choose wrongly or obey a tool, one line each; `most` is the setting MAX_TOOLS."""
    found = []
    if len(definitions) > most:
        found.append(f"{len(definitions)} tools, more than MAX_TOOLS ({most}): models choose worse among many")
    for definition in definitions:
        name, text = visible_line(name_of(definition))[:80], _text(definition)
        if len(_meaning(text)) < _FEW_WORDS:
            found.append(f"tool {name!r}: its description is vague ({visible_line(text)[:60]!r}); say what it does")
        for rule in instructions_in(text):
            found.append(f"tool {name!r}: its description reads like an instruction to the model ({rule})")
    meanings = [(visible_line(name_of(definition))[:80], _meaning(_text(definition))) for definition in definitions]
    for (one, a), (other, b) in combinations(meanings[:_COMPARED], 2):
        if a and b and len(a & b) / len(a | b) >= _OVERLAP:
            found.append(f"tools {one!r} and {other!r}: their descriptions overlap; say when to use which")
    return found


def reads_and_sends(definitions: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why these tools can carry data out, or None: one reads what others wrote, another one sends or acts.

    A text that was read can then tell the model to send what it knows. A tool counts by the words of its name, and
    by its annotations where these make it worse: a server's word is never taken for harmlessness.
    """
    readers, senders = [], []
    for definition in definitions:
        words, notes = _name_words(definition), definition.get("annotations")
        notes = notes if isinstance(notes, Mapping) else {}
        if _READS & set(words) or notes.get("openWorldHint") is True:
            readers.append(visible_line(name_of(definition))[:40])
        if _SENDS & set(words) or (words[:1] and words[0] in _ACTS) or notes.get("destructiveHint") is True:
            senders.append(visible_line(name_of(definition))[:40])
    if not readers or not senders:
        return None
    return f"the tools both read what others wrote ({', '.join(readers[:5])}) and act ({', '.join(senders[:5])})"


def _name_words(definition: Mapping[str, Any]) -> list[str]:
    return _WORDS.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name_of(definition)).lower())


def _text(definition: Mapping[str, Any]) -> str:
    text = definition.get("description")
    return text if isinstance(text, str) else ""


def _meaning(text: str) -> set[str]:
    return {word[:5] for word in _WORDS.findall(text.lower()) if word not in _FILLERS}  # "order" and "orders" are one
