"""Where a pipeline has got to: which fields are there, what was used, and what was wrong so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from splunkcheck import fields
from splunkcheck.expressions import Used
from splunkcheck.tokens import TOKEN

# A field's name in a list of fields, quoted or not.
NAME: Final = r"(?:\"[^\"]+\"|'[^']+'|[A-Za-z_*][\w.{}*:-]*)"


@dataclass(slots=True)
class Walk:
    """Where a pipeline has got to: the fields that are there, whether others may be, and what was used so far."""

    lookups: Mapping[str, tuple[str, ...]]
    indexes: frozenset[str]
    calculated: Mapping[str, frozenset[str]]
    searches: frozenset[str] = frozenset()
    eventtypes: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    open: bool = False
    made: set[str] = field(default_factory=set)
    used_lookups: set[str] = field(default_factory=set)
    numeric: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    started: bool = False

    def need(self, *names: str) -> None:
        """Say of each field whether it is there."""
        for name in names:
            bare = name.strip("\"'")
            problem = fields.fault(bare, self.known)
            if problem and not self.open and TOKEN not in bare:
                where = "of the events that are searched for" if not self.started else "left at this command"
                self.faults.append(f"{problem} {where}")

    def make(self, *names: str) -> None:
        """Add fields."""
        self.numeric -= {name.strip("\"'") for name in names}
        self.made |= {name.strip("\"'") for name in names}
        self.known |= {name.strip("\"'") for name in names}

    def uses(self, used: Used) -> None:
        """Check an expression's fields and the texts they are compared with."""
        self.need(*used.fields)
        for name, value in used.compared:
            number = name in self.numeric or (name in fields.NUMBERS and name not in self.made)
            if number and not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
                self.faults.append(f"{name} is a number, and never {value!r}")
            self.compares(name, value, wild=False)

    def compares(self, name: str, value: str, *, wild: bool = True) -> None:
        """Say whether a field of the events ever has that value; `wild`: a star in it stands for anything."""
        if name not in fields.VALUES or name in self.made or TOKEN in value:
            return
        if not fields.matching(name, value) if wild else value not in fields.VALUES[name]:
            self.faults.append(f"{name} is never {value!r}; {_near(name, value)}")


def _near(name: str, value: str) -> str:
    known = sorted(fields.VALUES[name], key=lambda one: (len(set(one) ^ set(value)), one))
    return f"it is {', '.join(known[:4])}" + (", ..." if len(known) > 4 else "")
