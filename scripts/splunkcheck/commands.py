"""What each command of SPL uses and makes: a walk along a pipeline that knows at every pipe which fields are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from splunkcheck import formats, lookups, options, othercommands, patterns, searching
from splunkcheck.aggregates import aggregates
from splunkcheck.expressions import assignments, condition, unquoted
from splunkcheck.findings import FaultError
from splunkcheck.pipeline import Command
from splunkcheck.tokens import SUBSEARCH, TOKEN
from splunkcheck.walk import NAME, Walk

Given = dict[str, str]
# They take a subsearch, and what it gives.
WITH_SUBSEARCH: Final = frozenset(("append", "appendcols", "join"))
_LIST: Final = re.compile(rf"{NAME}(?:(?:\s*,\s*|\s+){NAME})*")
_SORTED: Final = rf"[-+]?\s*(?:(?:num|str|ip|auto)\(({NAME})\)|({NAME}))"
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'


def run(walk: Walk, command: Command) -> None:
    """Take one command. Its faults are added to the walk's; FaultError when it cannot be read at all."""
    handler = _HANDLERS.get(command.name)
    if handler is None and command.name in othercommands.KNOWN:
        if walk.started and command.name in othercommands.FIRST:
            raise FaultError(f"{command.name}: it begins a search")
        if fault := othercommands.fault(command.name, command.rest):
            raise FaultError(f"{command.name}: {fault}")
        walk.open = True
        return
    if command.name in othercommands.CHANGING:
        raise FaultError(f"{command.name} writes, sends or runs something; a search of this app only reads")
    if handler is None:
        raise FaultError(f"{command.name} is no command")
    rest, given = command.rest, Given()
    if command.name in options.OPTIONS:
        rest, given = options.options(command.name, rest)
    if command.name in WITH_SUBSEARCH:
        if len(command.subsearches) != 1 or not rest.endswith(SUBSEARCH):
            raise FaultError(f"{command.name}: it ends with a subsearch in brackets")
        rest = rest.removesuffix(SUBSEARCH).strip()
    try:
        handler(walk, options.kept(command.name, rest), given)
    except FaultError as error:
        raise FaultError(f"{command.name}: {error}") from None


def _search(walk: Walk, rest: str, given: Given) -> None:
    searching.search(walk, rest)


def _where(walk: Walk, rest: str, given: Given) -> None:
    walk.uses(condition(rest))


def _eval(walk: Walk, rest: str, given: Given) -> None:
    for name, used in assignments(rest):
        walk.uses(used)
        walk.make(name)
        walk.numeric |= {name} if used.kind == "n" else set()
        walk.open |= "{" in name and not name.endswith("{}")  # its name is data


def _fieldformat(walk: Walk, rest: str, given: Given) -> None:
    made = assignments(rest)
    walk.need(*(name for name, _ in made))
    for _, used in made:
        walk.uses(used)


def _stats(walk: Walk, rest: str, given: Given) -> None:
    made, groups, numbers = aggregates(walk, rest)
    walk.known, walk.open = frozenset(groups), False
    walk.make(*made)
    walk.numeric |= numbers


def _eventstats(walk: Walk, rest: str, given: Given) -> None:
    for name in ("reset_before", "reset_after"):
        if name in given:
            walk.uses(condition(given[name]))
    made, groups, numbers = aggregates(walk, rest)
    if given.get("reset_on_change", "f").lower() in ("t", "true", "1") and not groups:
        raise FaultError("reset_on_change without BY: it resets when a field behind BY changes")
    walk.make(*made)
    walk.numeric |= numbers


def _timechart(walk: Walk, rest: str, given: Given) -> None:
    made, groups, numbers = aggregates(walk, rest)
    if len(groups) > 1:
        raise FaultError(f"it takes one field behind BY, not {', '.join(groups)}")
    walk.known, walk.open = frozenset(("_time",)), bool(groups)
    walk.make(*made)
    walk.numeric |= numbers


def _chart(walk: Walk, rest: str, given: Given) -> None:
    made, groups, numbers = aggregates(walk, re.sub(r"\sOVER\s+(\S+)(\s+BY\b)?", r" BY \1", rest, flags=re.I))
    if not 1 <= len(groups) <= 2:
        raise FaultError(f"it takes one or two fields (OVER, BY), not {len(groups)}")
    walk.known, walk.open = frozenset(groups[:1]), len(groups) > 1
    walk.make(*made)
    walk.numeric |= numbers


def _sort(walk: Walk, rest: str, given: Given) -> None:
    body = re.sub(r"\s+(?:d|desc|a|asc)$", "", re.sub(r"^limit=\d+\s+", "", rest))
    if not re.fullmatch(rf"{_SORTED}(?:[\s,]+{_SORTED})*", body):
        raise FaultError(f"{body[:40]!r} is no list of fields, each with a - before it where the largest comes first")
    walk.need(*(inner or plain for inner, plain in re.findall(_SORTED, body)))


def _names(rest: str) -> list[str]:
    if not _LIST.fullmatch(rest.strip()):
        raise FaultError(f"{rest[:40]!r} is no list of fields")
    return re.findall(NAME, rest)


def _table(walk: Walk, rest: str, given: Given) -> None:
    names = _names(rest)
    walk.need(*names)
    if not any("*" in name for name in names):
        walk.known, walk.open = frozenset(name.strip("\"'") for name in names), False


def _fields(walk: Walk, rest: str, given: Given) -> None:
    keep = not rest.startswith("-")
    names = _names(re.sub(r"^[-+]\s*", "", rest))
    walk.need(*names)
    if keep:
        walk.known = frozenset(name.strip("\"'") for name in names) | {"_time", "_raw"}
    else:
        walk.known -= {name.strip("\"'") for name in names}


def _named(walk: Walk, rest: str, given: Given) -> None:
    walk.need(*_names(rest))


def _dedup(walk: Walk, rest: str, given: Given) -> None:
    before, by, after = re.match(r"(.*?)(?:\s+(sortby)\b\s*(.*))?$", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
    walk.need(*_names(before))
    if by and re.search(r"\s(?:d|desc|a|asc)$", after):
        raise FaultError(f"sortby {after}: give a - before the field where the largest comes first")
    if by:
        _sort(walk, after, given)


def _rename(walk: Walk, rest: str, given: Given) -> None:
    pair = rf"({NAME})\s+AS\s+({NAME})"
    if not re.fullmatch(rf"{pair}(?:(?:\s*,\s*|\s+){pair})*", rest, re.I):
        raise FaultError(f"{rest[:40]!r}: give FIELD AS NAME")
    for old, new in [(old.strip("\"'"), new.strip("\"'")) for old, new in re.findall(pair, rest, re.I)]:
        if old.count("*") != new.count("*"):
            raise FaultError(f"{old} AS {new}: as many stars on one side as on the other")
        walk.need(old)
        pattern = re.compile("(.*)".join(map(re.escape, old.split("*"))))
        found = {name: match for name in walk.known if (match := pattern.fullmatch(name))}
        walk.known -= set(found) | {old}
        parts = new.split("*")
        walk.make(
            *("".join(a + b for a, b in zip(parts, (*match.groups(), ""), strict=True)) for match in found.values())
        )
        walk.make(*([] if "*" in new else [new]))


def _spath(walk: Walk, rest: str, given: Given) -> None:
    path = given.get("path") or rest
    if ("path" in given and rest) or re.search(r"\s", rest.strip('"')):
        raise FaultError(f"{rest[:40]!r} is left over: it takes input=, output= and one path")
    if path.count("{") != path.count("}"):
        raise FaultError(f"the path {path} has a bracket without its partner")
    if given.get("output") and not path:
        raise FaultError("output= wants a path= too")
    if given.get("input"):
        walk.need(given["input"])
    elif path and not walk.open:
        walk.need(path)
    if path:
        walk.make(given.get("output") or path)
    else:  # every key of the JSON becomes a field
        walk.open = True


def _rex(walk: Walk, rest: str, given: Given) -> None:
    walk.need(given.get("field", "_raw"))
    if not re.fullmatch(_TEXT, rest):
        raise FaultError(f"{rest[:40]!r}: give one regular expression in quotes")
    text = unquoted(rest)
    if "mode" in given:
        if fault := formats.sed(text):
            raise FaultError(f"{text[:40]!r} {fault}")
        return
    if fault := patterns.fault(text):
        raise FaultError(f"{text[:40]!r} {fault}")
    if not patterns.names(text):
        raise FaultError(f"{text[:40]!r} makes no field: it has no named group, (?<name>...)")
    walk.make(*patterns.names(text), *([given["offset_field"]] if "offset_field" in given else []))


def _regex(walk: Walk, rest: str, given: Given) -> None:
    found = re.fullmatch(rf"(?:({NAME})\s*!?=\s*)?({_TEXT})", rest)
    if not found:
        raise FaultError(f'{rest[:40]!r}: give FIELD="REGULAR EXPRESSION"')
    walk.need(found[1] or "_raw")
    if fault := patterns.fault(unquoted(found[2])):
        raise FaultError(f"{found[2][:40]} {fault}")


def _bin(walk: Walk, rest: str, given: Given) -> None:
    found = re.fullmatch(rf"({NAME})(?:\s+AS\s+({NAME}))?", rest, re.I)
    if not found:
        raise FaultError(f"{rest[:40]!r}: of which field?")
    walk.need(found[1])
    walk.make(found[2] or found[1])


def _top(walk: Walk, rest: str, given: Given) -> None:
    names = _names(re.sub(r"\sby\s", " ", re.sub(r"^\d+\s+", "", rest), flags=re.I))
    walk.need(*names)
    walk.known, walk.open = frozenset(name.strip("\"'") for name in names), False
    walk.make(given.get("countfield", "count"), given.get("percentfield", "percent"))


def _head(walk: Walk, rest: str, given: Given) -> None:
    if rest and TOKEN not in rest:
        walk.uses(condition(rest))


def _fillnull(walk: Walk, rest: str, given: Given) -> None:
    if rest:
        walk.need(*_names(rest))


def _mvexpand(walk: Walk, rest: str, given: Given) -> None:
    if len(_names(rest)) > 1:
        raise FaultError(f"{rest[:40]!r}: it takes one field")
    walk.need(rest)


def _begin(walk: Walk, rest: str, given: Given) -> None:
    if walk.started:
        raise FaultError("it begins a search")
    walk.known, walk.open = frozenset(("_time",)), bool(rest)


def _saved(walk: Walk, rest: str, given: Given) -> None:
    found = re.match(rf"({_TEXT}|\S+)", rest)
    name = found[1].strip('"') if found else ""
    if name not in walk.searches:
        raise FaultError(f"there is no saved search {name or 'named'}")
    _begin(walk, "open", given)


def _format(walk: Walk, rest: str, given: Given) -> None:
    walk.open = True


def _return(walk: Walk, rest: str, given: Given) -> None:
    walk.need(*re.findall(r"[^\s,]+", re.sub(r"^\d+\s+|\w+=", "", rest)))


def _append(walk: Walk, rest: str, given: Given) -> None:
    if rest:
        raise FaultError(f"{rest[:40]!r} stands before the subsearch")


_HANDLERS: Final[dict[str, Callable[[Walk, str, Given], None]]] = {
    "search": _search, "where": _where, "eval": _eval, "fieldformat": _fieldformat, "stats": _stats,
    "eventstats": _eventstats, "streamstats": _eventstats, "timechart": _timechart, "chart": _chart, "sort": _sort,
    "table": _table, "fields": _fields, "dedup": _dedup, "rename": _rename, "spath": _spath, "lookup": lookups.lookup,
    "inputlookup": lookups.inputlookup, "outputlookup": lookups.outputlookup, "head": _head, "tail": _head,
    "mvexpand": _mvexpand, "fillnull": _fillnull, "rex": _rex, "regex": _regex, "bin": _bin, "top": _top, "rare": _top,
    "makeresults": _begin, "savedsearch": _saved, "append": _append, "appendcols": _append, "join": _named,
    "format": _format, "return": _return,
}  # fmt: skip
