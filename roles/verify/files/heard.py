"""What the machines said, taken for what it is: text of a guest, whose root may have written anything into it.

A machine is heard about the places that are its own: the control and the other guests speak for themselves. And what a
probe cannot have printed is an error of that place, whose rows are then unproven.
"""

from __future__ import annotations

import json
from typing import Any

LATEST = 1e11  # seconds since the epoch: no clock shows as much, and no calendar
ANSWERS = ("open", "refused", "silent", "denied", "foreign", "cut")
LONGEST = 300  # characters of an error


def parsed(text: str | None) -> dict[str, Any]:
    """What a program printed; an empty object when it printed none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def places(knocked: dict[str, str], machine_of: dict[str, str]) -> dict[str, Any]:
    """{place: its doors with answers, or {"error": why there are none}}, each from the machine that it is on."""
    found = {}
    for machine, text in knocked.items():
        said = parsed(text)
        for place in (name for name, its in machine_of.items() if its == machine and name in said):
            found[place] = sound(said[place])
    return found


def believed(said: dict[str, Any]) -> list[str]:
    """What a machine believes of its neighbours that is not so; nothing, when it says what watch.py does not."""
    found = said.get("believed")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def sound(said: Any) -> Any:
    """What a place said, or that it is nothing that a probe prints."""
    if isinstance(said, list) and all(isinstance(one, dict) and is_door(one) for one in said):
        return said
    if isinstance(said, dict):
        if isinstance(said.get("error"), str):
            return {"error": said["error"][:LONGEST]}
        # The forging's own: how many frames were sent, and which were not.
        if isinstance(said.get("sent"), int) and isinstance(said.get("failed"), dict):
            return {"sent": said["sent"], "failed": {tag: str(why)[:LONGEST] for tag, why in said["failed"].items()}}
    return {"error": "what came back from there is nothing that a probe prints: look at that machine"}


def is_door(one: dict[str, Any]) -> bool:
    """Whether this is a door as probe.py prints it."""
    answer, when = one.get("answer"), one.get("time")
    texts = [one.get(name) for name in ("address", "protocol")]
    others = [one.get(name) for name in ("port", "source", "mark", "name")]
    return (
        isinstance(answer, str)
        and (answer in ANSWERS or answer.startswith("error: "))
        and len(answer) <= LONGEST
        and isinstance(when, int | float)
        and 0 <= when < LATEST  # no NaN is, and a number of any length may be asked
        and all(isinstance(text, str) for text in texts)
        and all(other is None or isinstance(other, int | str) for other in others)
    )
