"""Which fault meets which call: all that apply, or those of one run, rotating by the run's seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from fakepve import schema

# `lost` is a time-out after which the call was done all the same: only its answer never came.
KINDS = ("500", "timeout", "lost", "failed_task", "lock")
# Calls that start a task though the schema does not say so.
ALSO_TASKS = (("POST", "/nodes/{node}/qemu/{vmid}/config"),)


@dataclass(frozen=True)
class Row:
    """The n-th call of a build, what it is, and the fault that it meets."""

    number: int
    call: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} at call {self.number}, {self.call}"


def starts_task(method: str, template: str) -> bool:
    """Whether the node answers this call with a task to wait for."""
    one = schema.load().paths.get(template, {}).get(method)
    return (method, template) in ALSO_TASKS or (one is not None and bool(schema.is_task(method, one)))


def applies(kind: str, method: str, template: str) -> bool:
    """Whether a fault can meet such a call: what reads nothing locked, and only a task can fail later."""
    if kind == "failed_task":
        return starts_task(method, template)
    return kind in ("500", "timeout") or method != "GET"


def every(calls: list[dict[str, Any]]) -> list[Row]:
    """Each call of a build with each fault that applies."""
    return [
        Row(number, f"{one['method']} {one['path']}", kind)
        for number, one in enumerate(calls, 1)
        for kind in KINDS
        if applies(kind, one["method"], one["template"])
    ]


def of_a_run(calls: list[dict[str, Any]], seed: int) -> list[Row]:
    """One fault a call, its kind rotating with the seed; calls that change something first, else in the seed's order."""
    rows = []
    for number in range(1, len(calls) + 1):
        own = [row for row in every(calls) if row.number == number]
        rows.append(own[(seed + number) % len(own)])
    random.Random(seed).shuffle(rows)
    return sorted(rows, key=lambda row: row.call.startswith("GET "))
