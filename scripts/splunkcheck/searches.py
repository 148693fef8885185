"""One search: its pipeline, its macros and lookups, and the fields it ends with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from splunkcheck import commands
from splunkcheck.findings import FaultError
from splunkcheck.pipeline import Macro, expand, split
from splunkcheck.walk import Walk


@dataclass(slots=True)
class World:
    """What a search may name: macros, lookups with their columns, indexes, and fields that props.conf calculates."""

    macros: Mapping[str, Macro] = field(default_factory=dict)
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: frozenset[str] = frozenset()
    calculated: frozenset[str] = frozenset()
    used_macros: set[str] = field(default_factory=set)
    used_lookups: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Outcome:
    """What was found of a search: its faults, its tokens ($name$), the fields it ends with (None: not known)."""

    faults: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    fields: frozenset[str] | None = None


def check(text: str, world: World) -> Outcome:
    """Check one search."""
    outcome = Outcome()
    try:
        text = expand(text, world.macros, world.used_macros)
        outcome.tokens = set(re.findall(r"\$([\w.]+)\$", text))
        walk = Walk(world.lookups, world.indexes, world.calculated)
        for command in split(re.sub(r"\$[\w.]+\$", "x", text)):
            try:
                commands.run(walk, command)
            except FaultError as error:  # the fields behind a command that cannot be read are not known
                walk.faults.append(str(error))
                walk.open = True
            walk.started = True
            for inner in command.subsearches:
                found = check(inner, world)
                walk.faults += [f"subsearch: {fault}" for fault in found.faults]
        world.used_lookups |= walk.used_lookups
        outcome.faults = list(dict.fromkeys(walk.faults))
        outcome.fields = None if walk.open else walk.known
    except FaultError as error:
        outcome.faults.append(str(error))
    return outcome
