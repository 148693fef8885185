"""What may run without a person, what waits for one, what is denied: a tool's class, and the rules that tighten it.

A rule never loosens anything: it says `ask` or `deny`, or names the only values an argument may have. What several of
them say, the strictest wins.
"""

from __future__ import annotations

import fnmatch
import pwd
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from glasslab import allowlist
from glasslab.guardrails import visible_line
from glasslab.jsonfiles import read_object
from glasslab.settings_sources import SettingsError

CLASSES: Final = ("read", "write", "send", "delete", "pay", "publish")  # the mildest first
STRICTEST: Final = CLASSES[-1]
BUILT_IN: Final = "(agent)"  # stands for the server of a built-in tool; no server can be called so
# The lab's own tools. Any other has the class that TOOL_CLASSES gives it, or counts as the strictest.
OWN_CLASSES: Final[Mapping[str, str]] = {
    "lab-files/list_files": "read",
    "lab-files/read_file": "read",
    "lab-notes/read_notes": "read",
    "lab-notes/write_notes": "write",
    "lab-outbox/send_message": "send",
    "weather/get_current_weather": "read",
    f"{BUILT_IN}/delegate": "read",  # what a delegate calls goes through approvals itself
}
ACTIONS: Final = ("run", "ask", "deny")
_WILD: Final = set("*?[")
_KEYS: Final = {"tool", "class", "callers", "callers_except", "only", "then", "why"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the calls that it is about, and what it says of them. None and an empty list stand for all."""

    tools: tuple[str, ...] = ("*",)
    classes: tuple[str, ...] = CLASSES
    callers: frozenset[int] | None = None
    not_callers: frozenset[int] = frozenset()
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    then: str = "deny"
    why: str = ""

    def says(self, tool: str, class_: str, caller: int, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return (action, why), or None when the rule has nothing to say. `tool` is SERVER/TOOL."""
        about = any(fnmatch.fnmatchcase(tool, pattern) for pattern in self.tools) and class_ in self.classes
        if not about or (self.callers is not None and caller not in self.callers) or caller in self.not_callers:
            return None
        for name, entries in self.only.items():
            if not allowlist.allows(entries, arguments.get(name)):
                return "deny", self.why or f"the argument {name!r} is not on the allow-list of {tool}"
        return None if self.only else (self.then, self.why or f"a rule says {self.then} for {tool}")


def parse_classes(text: str) -> dict[str, str]:
    """Return SERVER/TOOL -> class from `SERVER/TOOL=CLASS, ...`. Raises ValueError: one line with the remedy."""
    found = {}
    for entry in allowlist.split(text):
        name, _, class_ = (part.strip() for part in entry.partition("="))
        server, _, tool = name.partition("/")
        if not server or not tool or class_ not in CLASSES:
            raise ValueError(f"has {entry[:80]!r}; give SERVER/TOOL=CLASS, ... with a class of {', '.join(CLASSES)}")
        found[name] = class_
    return found


def class_of(classes: Mapping[str, str], tool: str, definition: Mapping[str, Any]) -> str:
    """Return a tool's class: what is set for SERVER/TOOL, else for SERVER/*, else the strictest.

    The server's own annotations are its word only: they can make the class stricter, and never milder.
    """
    given = classes.get(tool) or classes.get(f"{tool.partition('/')[0]}/*") or STRICTEST
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    said = ["write"] if hints.get("readOnlyHint") is False else []
    if hints.get("readOnlyHint") is not True:
        said += ["send"] if hints.get("openWorldHint") is True else []
        said += ["delete"] if hints.get("destructiveHint") is True else []
    return max(given, *said, key=CLASSES.index) if said else given


def read_rules(path: Path) -> list[Rule]:
    """Return the rules of a file: {"rules": [...]}. Raises SettingsError, one line for the first problem."""
    try:
        whole = read_object(path, "the file")
        given = whole.get("rules")
        if not isinstance(given, list) or whole.keys() != {"rules"}:
            raise ValueError('is not {"rules": [...]} and no more')
        return [_rule(number, entry) for number, entry in enumerate(given, start=1)]
    except ValueError as error:
        raise SettingsError(f"APPROVAL_RULES: {path}: {visible_line(str(error))}; see docs/approvals.md") from None


def unmatched(rules: Sequence[Rule], known: Mapping[str, Container[str]]) -> str | None:
    """Return a pattern that names a server or a tool, without wildcards, that is not `known`; None without any.

    It would say nothing, in silence. One with a wildcard may be about what is not there yet.
    """
    for pattern in (pattern for rule in rules for pattern in rule.tools):
        server, _, tool = pattern.partition("/")
        if not _WILD & set(server) and (server not in known or (not _WILD & set(tool) and tool not in known[server])):
            return pattern
    return None


def user_ids(entries: Sequence[object]) -> frozenset[int]:
    """Return the ids of users given by name or number. Raises ValueError for one that this machine does not know."""
    found = set()
    for entry in entries:
        text = str(entry).strip()
        if isinstance(entry, bool) or not isinstance(entry, int | str):
            raise ValueError(f"names {text[:60]!r}, which is no user; give a name or a number")
        try:
            found.add(int(text) if text.isascii() and text.isdecimal() else pwd.getpwnam(text).pw_uid)
        except (KeyError, ValueError):
            raise ValueError(f"names the user {text[:60]!r}, whom this machine does not know; correct it") from None
    return frozenset(found)


def _rule(number: int, entry: object) -> Rule:
    if not isinstance(entry, dict):
        raise ValueError(f"rule {number} is no object")
    try:
        return _parsed(entry)
    except ValueError as error:
        raise ValueError(f"rule {number} {error}") from None


def _parsed(entry: Mapping[str, Any]) -> Rule:
    unknown = sorted(entry.keys() - _KEYS)
    if unknown:
        raise ValueError(f"has an unknown key {unknown[0][:60]!r}; known: {', '.join(sorted(_KEYS))}")
    if ("only" in entry) == ("then" in entry):
        raise ValueError('needs one of "only" and "then"')
    if entry.get("then", "deny") not in ("ask", "deny"):
        raise ValueError(f'has "then": {str(entry["then"])[:60]!r}; ask or deny: a rule makes nothing milder')
    classes = _texts(entry, "class", CLASSES)
    wrong = [name for name in classes if name not in CLASSES]
    if wrong:
        raise ValueError(f"has the class {wrong[0][:60]!r}; known: {', '.join(CLASSES)}")
    only = entry.get("only", {})
    if not isinstance(only, dict) or ("only" in entry and not only):
        raise ValueError('has an "only" that is no {"ARGUMENT": [VALUE, ...]}')
    if not isinstance(entry.get("why", ""), str):
        raise ValueError('has a "why" that is no text')
    return Rule(
        tools=_texts(entry, "tool", ("*",)),
        classes=classes,
        callers=user_ids(_list(entry, "callers")) if "callers" in entry else None,
        not_callers=user_ids(_list(entry, "callers_except")) if "callers_except" in entry else frozenset(),
        only={name: _texts(only, name, ()) for name in only},
        then=entry.get("then", "deny"),
        why=entry.get("why", "")[:500],
    )


def _list(entry: Mapping[str, Any], key: str) -> list[object]:
    value = entry[key]
    return list(value) if isinstance(value, list) else [value]


def _texts(entry: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in entry:
        return default
    values = _list(entry, key)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"has {key[:60]!r} that is no list of texts")
    return tuple(str(value) for value in values)
