"""The commands that read and write lookups, and the same in props.conf: which columns a lookup has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from splunkcheck.findings import FaultError
from splunkcheck.terms import terms
from splunkcheck.walk import NAME, Walk

_PAIR = rf"({NAME})(?:\s+AS\s+({NAME}))?"
Given = dict[str, str]
Pairs = list[tuple[str, str]]


def clause(rest: str, lookups: Mapping[str, tuple[str, ...]]) -> tuple[str, Pairs, Pairs | None]:
    """Return a lookup's name, what it is matched by and what it gives (None: everything), as (column, field).

    Raises FaultError for a lookup or a column that is not there.
    """
    name, _, body = rest.strip().partition(" ")
    if name not in lookups:
        raise FaultError(f"there is no lookup {name or 'named'}; there is {', '.join(sorted(lookups))}")
    matched, _, output = re.match(r"(.*?)(?:\s(OUTPUTNEW|OUTPUT)\s+(.*))?$", body.strip(), re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
    if not matched.strip():
        raise FaultError(f"{name} by which field?")
    return name, _pairs(name, matched, lookups[name]), None if output is None else _pairs(name, output, lookups[name])


def _pairs(table: str, text: str, columns: tuple[str, ...]) -> Pairs:
    if not re.fullmatch(rf"{_PAIR}(?:(?:\s*,\s*|\s+){_PAIR})*", text.strip(), re.I):
        raise FaultError(
            f"{text.strip()[:60]!r} is no list of columns: COLUMN or COLUMN AS FIELD, OUTPUT or OUTPUTNEW between"
        )
    found = [(column.strip("\"'"), (alias or column).strip("\"'")) for column, alias in re.findall(_PAIR, text, re.I)]
    for column, _ in found:
        if column not in columns:
            raise FaultError(f"{table} has no column {column}; it has {', '.join(columns)}")
    return found


def lookup(walk: Walk, rest: str, given: Given) -> None:
    """`lookup NAME COLUMN AS FIELD OUTPUT COLUMN AS FIELD`."""
    name, matched, output = clause(rest, walk.lookups)
    walk.used_lookups.add(name)
    walk.need(*(field for _, field in matched))
    walk.make(*(walk.lookups[name] if output is None else [field for _, field in output]))


def inputlookup(walk: Walk, rest: str, given: Given) -> None:
    """`inputlookup NAME`: its columns are the fields; with append=t, beside those that are there."""
    table, _, condition = rest.partition(" where ")
    columns = _columns(walk, table)
    for name, _, _ in terms(condition).compared if condition else ():
        if name not in columns:
            raise FaultError(f"where: the lookup has no column {name}; it has {', '.join(columns)}")
    append = given.get("append", "f").lower() in ("t", "true", "1")
    if walk.started and not append:
        raise FaultError("it begins a search")
    if not append:
        walk.known, walk.open = frozenset(), False
    walk.make(*columns)


def outputlookup(walk: Walk, rest: str, given: Given) -> None:
    """`outputlookup NAME`: what it writes has to be there."""
    walk.need(*_columns(walk, rest))


def _columns(walk: Walk, rest: str) -> tuple[str, ...]:
    table = rest.split()[0] if rest.split() else ""
    if table not in walk.lookups:
        raise FaultError(f"there is no lookup {table or 'named'}; there is {', '.join(sorted(walk.lookups))}")
    walk.used_lookups.add(table)
    return walk.lookups[table]
