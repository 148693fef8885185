"""One search: its pipeline, its macros and lookups, and the fields it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from splunkcheck import commands
from splunkcheck.findings import FaultError
from splunkcheck.pipeline import Macro, expand, plain, split
from splunkcheck.tokens import taken
from splunkcheck.walk import Walk


@dataclass(slots=True)
class World:
    """What a search may name: macros, lookups with their columns, indexes, and the fields that props.conf calculates
    of each sourcetype (of every one: under ""). `asked`: the saved searches that want arguments, with these."""

    macros: Mapping[str, Macro] = field(default_factory=dict)
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: frozenset[str] = frozenset()
    calculated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    searches: frozenset[str] = frozenset()
    eventtypes: frozenset[str] = frozenset()
    asked: dict[str, set[str]] = field(default_factory=dict)
    used_macros: set[str] = field(default_factory=set)
    used_lookups: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Outcome:
    """What was found of a search: its faults, its tokens ($name$), the fields it ends with (None: not known)."""

    faults: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    fields: frozenset[str] | None = None


def check(text: str, world: World, begin: frozenset[str] | None = None, *, chained: bool = False) -> Outcome:
    """Check one search. `chained`: it goes on where another ended, with the fields `begin` (None: not known)."""
    outcome = Outcome()
    try:
        text, outcome.tokens = taken(expand(text, world.macros, world.used_macros))
        plain(text)
        walk = Walk(world.lookups, world.indexes, world.calculated, world.searches, world.eventtypes)
        if chained:
            walk.started, walk.known, walk.open = True, begin or frozenset(), begin is None
            text = text if text.lstrip().startswith("|") else f"| {text}"
        for command in split(text):
            try:
                commands.run(walk, command)
            except FaultError as error:  # the fields behind a command that cannot be read are not known
                walk.faults.append(str(error))
                walk.open = True
            walk.started = True
            for inner in command.subsearches:
                found = check(inner, world)
                walk.faults += [f"subsearch: {fault}" for fault in found.faults]
                if command.name in commands.WITH_SUBSEARCH:
                    walk.open |= found.fields is None
                    walk.make(*(found.fields or ()))
        world.used_lookups |= walk.used_lookups
        outcome.faults = list(dict.fromkeys(walk.faults))
        outcome.fields = None if walk.open else walk.known
    except FaultError as error:
        outcome.faults.append(str(error))
    return outcome
