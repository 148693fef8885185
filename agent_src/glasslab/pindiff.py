"""How listed tools differ from the pinned ones, line by line, for people and for the record. Pure functions."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from glasslab.frames import recordable
from glasslab.guardrails import visible_line
from glasslab.pins import Drift, name_of

MAX_LINES: Final = 400
MAX_COLUMNS: Final = 500
INSTRUCTIONS: Final = "@instructions"  # no tool can be called so
FILES: Final = "@files"


def old_and_new(
    lock: Mapping[str, Any], server: str, found: Drift, definitions: Sequence[Mapping[str, Any]], text: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what differs, as it was pinned and as it is listed: tool name -> definition, INSTRUCTIONS -> text.

    A tool that is listed twice is a list of its definitions. A lock of an older form has hashes only, and then those
    stand for what was pinned.
    """
    entry = lock.get(server) or {}
    shown = entry.get("shown") or {}
    hashes = entry.get("tools") or {}
    pinned = {name: (shown.get("tools") or {}).get(name, {"sha256": hashes[name]}) for name in hashes}
    listed: dict[str, list[Any]] = {}
    for definition in definitions:
        listed.setdefault(name_of(definition), []).append(recordable(definition))
    names = [*found.changed, *found.missing, *found.extra]
    old = {name: pinned[name] for name in names if name in pinned}
    new = {name: listed[name][0] if len(listed[name]) == 1 else listed[name] for name in names if name in listed}
    if found.instructions_changed:
        old[INSTRUCTIONS] = shown.get("instructions", entry.get("instructions"))
        new[INSTRUCTIONS] = recordable(text)
    return old, new


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a unified diff, at most MAX_LINES of it. Whatever is not ASCII stands as an escape: nothing hides."""
    lines: list[str] = []
    for name in sorted({*old, *new}):
        shown = visible_line(name)
        before = f"{shown} ({'pinned' if name in old else 'none'})"
        after = f"{shown} ({'now' if name in new else 'none'})"
        lines += difflib.unified_diff(_lines(old, name), _lines(new, name), before, after, lineterm="", n=2)
    kept = [line[:MAX_COLUMNS] for line in lines[:MAX_LINES]]
    return kept + ([f"[{len(lines) - MAX_LINES} more lines]"] if len(lines) > MAX_LINES else [])


def accepted(entry: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a lock's entry with these tools, INSTRUCTIONS or FILES as they are `now`, and all else as it was."""
    tools, shown = dict(entry.get("tools") or {}), dict((entry.get("shown") or {}).get("tools") or {})
    instructions = (entry.get("instructions"), (entry.get("shown") or {}).get("instructions"))
    files = {name: hashes for name, hashes in entry.items() if name == "files"}
    for name in names:
        if name == FILES:
            files = {name: hashes for name, hashes in now.items() if name == "files"}
            continue
        if name == INSTRUCTIONS:
            instructions = (now["instructions"], now["shown"]["instructions"])
            continue
        for kept, listed in ((tools, now["tools"]), (shown, now["shown"]["tools"])):
            kept.pop(name, None)
            if name in listed:
                kept[name] = listed[name]
    both = {"instructions": instructions[1], "tools": dict(sorted(shown.items()))}
    return {"instructions": instructions[0], "tools": dict(sorted(tools.items())), "shown": both, **files}


def _lines(side: Mapping[str, Any], name: str) -> list[str]:
    return json.dumps(side[name], indent=1, sort_keys=True).splitlines() if name in side else []
