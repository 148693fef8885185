"""What each command of SPL uses and makes: a walk along a pipeline that knows at every pipe which fields are there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from splunkcheck import fields, values
from splunkcheck.aggregates import aggregates
from splunkcheck.expressions import assignments, expression
from splunkcheck.findings import FaultError
from splunkcheck.pipeline import Command
from splunkcheck.terms import MODIFIERS, terms
from splunkcheck.walk import NAME, Walk

_OPTION: Final = re.compile(r"([a-z_]+)=(\"[^\"]*\"|\S+)\s*")
# Of each command, what may stand before its fields as NAME=VALUE.
_OPTIONS: Final[Mapping[str, str]] = {
    "stats": "allnum delim partitions",
    "eventstats": "allnum",
    "streamstats": "current window global allnum reset_before reset_after reset_on_change time_window",
    "timechart": "span bins limit useother usenull cont partial fixedrange",
    "chart": "span bins limit useother usenull sep format",
    "dedup": "keepevents keepempty consecutive",
    "spath": "input output path",
    "fillnull": "value",
    "mvexpand": "limit",
    "head": "limit null keeplast",
    "lookup": "local update",
    "inputlookup": "append start max",
    "outputlookup": "append create_empty override_if_empty",
}
OPTIONS: Final = {name: frozenset(words.split()) for name, words in _OPTIONS.items()}


def run(walk: Walk, command: Command) -> None:
    """Take one command. Its faults are added to the walk's; FaultError when it cannot be read at all."""
    handler = _HANDLERS.get(command.name)
    if handler is None:
        raise FaultError(f"{command.name} is no command, or one that the checker does not know")
    rest = command.rest
    if command.name in OPTIONS:
        rest, options = _options(command.name, rest)
        if command.name == "spath":
            _spath(walk, options, rest)
            return
    try:
        handler(walk, rest)
    except FaultError as error:
        raise FaultError(f"{command.name}: {error}") from None


def _options(name: str, rest: str) -> tuple[str, dict[str, str]]:
    options: dict[str, str] = {}

    def take(found: re.Match[str]) -> str:
        options[found[1]] = found[2].strip('"')
        return ""

    # Options of aggregates may stand before or behind them; an equals sign inside brackets is an expression's.
    outside = re.sub(r"\((?:[^()]|\([^()]*\))*\)", lambda found: found[0].replace("=", "\0"), rest)
    rest = _OPTION.sub(take, outside).replace("\0", "=").strip()
    unknown = sorted(set(options) - OPTIONS[name])
    if unknown:
        raise FaultError(f"{name} has no option {', '.join(unknown)}")
    return rest, options


def _search(walk: Walk, rest: str) -> None:
    found = terms(rest)
    if not walk.started:
        kinds = found.kinds or set(fields.of_sourcetypes(found.sourcetypes or fields.VALUES["sourcetype"]))
        for kind in sorted(found.kinds if found.sourcetypes else ()):
            if kind not in fields.of_sourcetypes(found.sourcetypes):
                walk.faults.append(
                    f"events of kind {kind} are not of sourcetype {' or '.join(sorted(found.sourcetypes))}"
                )
        for sourcetype in sorted(found.sourcetypes if found.kinds else ()):
            if not set(fields.of_sourcetypes([sourcetype])) & found.kinds:
                walk.faults.append(f"no kind that is searched for is of sourcetype {sourcetype}")
        if not any(name in ("index", "eventtype") for name, _, _ in found.compared):
            walk.faults.append("names no index: the first command has to (macro glasslab_index)")
        walk.known = fields.of_kinds(kinds) | walk.calculated
    for name, _, value in found.compared:
        if name == "index" and value not in walk.indexes:
            walk.faults.append(f"there is no index {value}")
        elif name in ("earliest", "latest"):
            walk.faults += [f"{name} = {value} {fault}" for fault in [values.time(value)] if fault]
        elif name not in MODIFIERS:
            walk.need(name)
            walk.compares(name, value)


def _where(walk: Walk, rest: str) -> None:
    walk.uses(expression(rest))


def _eval(walk: Walk, rest: str) -> None:
    for name, used in assignments(rest):
        walk.uses(used)
        walk.make(name)


def _fieldformat(walk: Walk, rest: str) -> None:
    made = assignments(rest)
    walk.need(*(name for name, _ in made))
    for _, used in made:
        walk.uses(used)


def _stats(walk: Walk, rest: str) -> None:
    made, groups = aggregates(walk, rest)
    walk.known, walk.open = frozenset(groups), False
    walk.make(*made)


def _eventstats(walk: Walk, rest: str) -> None:
    made, _ = aggregates(walk, rest)
    walk.make(*made)


def _timechart(walk: Walk, rest: str) -> None:
    made, groups = aggregates(walk, rest)
    walk.known, walk.open = frozenset(("_time",)), bool(groups)
    walk.make(*made)


def _sort(walk: Walk, rest: str) -> None:
    rest = re.sub(r"^\d+\s+", "", rest)
    found = [inner or plain for inner, plain in re.findall(rf"(?:num|str|ip|auto)\(({NAME})\)|({NAME})", rest)]
    if not found:
        raise FaultError("by what?")
    walk.need(*found)


def _names(rest: str, least: int = 1) -> list[str]:
    found = re.findall(NAME, rest)
    if len(found) < least or re.sub(NAME, "", rest).strip(" ,\n"):
        raise FaultError(f"{rest[:40]!r} is no list of fields")
    return found


def _table(walk: Walk, rest: str) -> None:
    names = _names(rest)
    walk.need(*names)
    if not any("*" in name for name in names):
        walk.known, walk.open = frozenset(name.strip("\"'") for name in names), False


def _fields(walk: Walk, rest: str) -> None:
    keep = not rest.startswith("-")
    names = _names(rest.lstrip("+- "))
    walk.need(*names)
    if keep:
        walk.known = frozenset(name.strip("\"'") for name in names) | {"_time", "_raw"}
    else:
        walk.known -= {name.strip("\"'") for name in names}


def _named(walk: Walk, rest: str) -> None:
    walk.need(*_names(re.sub(r"^\d+\s+", "", rest)))


def _rename(walk: Walk, rest: str) -> None:
    pairs = re.findall(rf"({NAME})\s+AS\s+({NAME})", rest, re.I)
    if not pairs or re.sub(rf"{NAME}\s+AS\s+{NAME}", "", rest, flags=re.I).strip(" ,\n"):
        raise FaultError(f"{rest[:40]!r}: give FIELD AS NAME")
    walk.need(*(old for old, _ in pairs))
    walk.known -= {old.strip("\"'") for old, _ in pairs}
    walk.make(*(new for _, new in pairs))


def _spath(walk: Walk, options: dict[str, str], rest: str) -> None:
    path = options.get("path") or rest
    if not path:
        raise FaultError("spath: give path=")
    if options.get("input"):
        walk.need(options["input"])
    elif not walk.open:
        walk.need(path)
    walk.make(options.get("output") or path)


def _lookup(walk: Walk, rest: str) -> None:
    table, columns = _table_of(walk, rest)
    body = rest.split(None, 1)[1] if len(rest.split(None, 1)) > 1 else ""
    matched, _, output = re.match(r"(.*?)(?:\s(OUTPUT|OUTPUTNEW)\s+(.*))?$", body, re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
    for part, inward in ((matched, True), (output or "", False)):
        for name, _, alias in re.findall(rf"({NAME})(\s+AS\s+({NAME}))?", part, re.I):
            if name.strip("\"'") not in columns:
                raise FaultError(f"{table} has no column {name}; it has {', '.join(columns)}")
            if inward:
                walk.need(alias or name)
            else:
                walk.make(alias or name)
    if not matched.strip():
        raise FaultError(f"{table} by which field?")
    if not output:
        walk.make(*columns)


def _table_of(walk: Walk, rest: str) -> tuple[str, tuple[str, ...]]:
    table = rest.split()[0] if rest.split() else ""
    if table not in walk.lookups:
        raise FaultError(f"there is no lookup {table or 'named'}; there is {', '.join(sorted(walk.lookups))}")
    walk.used_lookups.add(table)
    return table, walk.lookups[table]


def _inputlookup(walk: Walk, rest: str) -> None:
    _, columns = _table_of(walk, rest)
    if walk.started:
        raise FaultError("it begins a search")
    walk.known, walk.open = frozenset(), False
    walk.make(*columns)


def _outputlookup(walk: Walk, rest: str) -> None:
    _, columns = _table_of(walk, rest)
    walk.need(*columns)


def _head(walk: Walk, rest: str) -> None:
    if not re.fullmatch(r"\d*", rest):
        raise FaultError(f"{rest!r} is no number")


def _fillnull(walk: Walk, rest: str) -> None:
    if rest:
        walk.need(*_names(rest))


_HANDLERS: Final[dict[str, Callable[[Walk, str], None]]] = {
    "search": _search, "where": _where, "eval": _eval, "fieldformat": _fieldformat, "stats": _stats,
    "eventstats": _eventstats, "streamstats": _eventstats, "timechart": _timechart, "chart": _timechart, "sort": _sort,
    "table": _table, "fields": _fields, "dedup": _named, "rename": _rename, "spath": _named, "lookup": _lookup,
    "inputlookup": _inputlookup, "outputlookup": _outputlookup, "head": _head, "tail": _head, "mvexpand": _named,
    "fillnull": _fillnull,
}  # fmt: skip
