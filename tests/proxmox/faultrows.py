"""Which fault meets which call: all that apply, or those of one run, whose kinds rotate with the run's seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fakepve import schema

# `lost` is a time-out after which the call was done all the same: only its answer never came.
KINDS = ("500", "timeout", "lost", "failed_task", "lock")
# Calls that start a task though the schema does not say so.
ALSO_TASKS = (("POST", "/nodes/{node}/qemu/{vmid}/config"),)
Calls = list[dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """A call of a build and the fault that it meets: the n-th of all, or the first of its kind when n is 0."""

    call: str
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind} at {self.call}" + (f", call {self.number}" if self.number else "")

    def words(self, hold: float) -> dict[str, Any]:
        """What the double's fault file says of the kind; a time-out is held for so many seconds."""
        held = {"hold": hold} if self.kind in ("timeout", "lost") else {}
        return held | ({"kind": "timeout", "done": True} if self.kind == "lost" else {"kind": self.kind})


def starts_task(method: str, template: str) -> bool:
    """Whether the node answers this call with a task to wait for."""
    one = schema.load().paths.get(template, {}).get(method)
    return (method, template) in ALSO_TASKS or (one is not None and bool(schema.is_task(method, one)))


def kinds(method: str, template: str) -> list[str]:
    """The faults that can meet such a call: what reads finds nothing locked, and only a task can fail later."""
    if method == "GET":
        return ["500", "timeout"]
    return [kind for kind in KINDS if kind != "failed_task" or starts_task(method, template)]


def every(calls: Calls) -> list[Row]:
    """Each call of a build with each fault that applies."""
    return [
        Row(f"{one['method']} {one['template']}", kind, number)
        for number, one in enumerate(calls, 1)
        for kind in kinds(one["method"], one["template"])
    ]


def of_a_run(calls: Calls, seed: int, *, writing: bool) -> list[Row]:
    """One fault for each distinct call of a build that writes (or reads), in the build's order."""
    distinct = dict.fromkeys((one["method"], one["template"]) for one in calls)
    found = []
    for number, (method, template) in enumerate(distinct):
        if (method != "GET") == writing:
            able = kinds(method, template)
            found.append(Row(f"{method} {template}", able[(seed + number) % len(able)]))
    return found
