"""The options of SPL's commands (NAME=VALUE): which there are, and what each may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from splunkcheck import formats, values
from splunkcheck.findings import FaultError
from splunkcheck.tokens import TOKEN

_OPTION: Final = re.compile(r"(?<![\w.])([a-z_]+)=(\"[^\"]*\"|[^\s\"]+)\s*")
# Of each command its options by the type of their value: b boolean, n number from 0, p number from 1, s span, t text,
# l number or topN or bottomN, e condition; others are one of some words.
_OPTIONS: Final = {
    "append": "b:extendtimerange p:maxtime,maxout,timeout",
    "appendcols": "b:override p:maxtime,maxout,timeout",
    "bin": "p:bins s:span,minspan t:start,end,aligntime",
    "chart": "s:span p:bins l:limit b:useother,usenull,cont t:sep,format,nullstr,otherstr,agg",
    "dedup": "b:keepevents,keepempty,consecutive",
    "eventstats": "b:allnum",
    "fillnull": "t:value",
    "head": "n:limit b:null,keeplast",
    "inputlookup": "b:append,strict n:start p:max",
    "join": "inner/outer/left:type n:max b:usetime,earlier,overwrite",
    "lookup": "b:local,update",
    "makeresults": "p:count b:annotate t:splunk_server,data csv/json:format",
    "mvexpand": "n:limit",
    "outputlookup": "b:append,create_empty,override_if_empty,createinapp p:max t:key_field",
    "rare": "n:limit t:countfield,percentfield,otherstr b:showcount,showperc,useother",
    "rex": "t:field,offset_field n:max_match sed:mode",
    "spath": "t:input,output,path",
    "stats": "b:allnum t:delim p:partitions",
    "streamstats": "b:current,global,allnum,reset_on_change n:window s:time_window e:reset_before,reset_after",
    "timechart": "s:span,minspan p:bins l:limit b:useother,usenull,cont,partial,fixedrange "
    "t:sep,format,nullstr,otherstr,agg,aligntime",
    "top": "n:limit t:countfield,percentfield,otherstr b:showcount,showperc,useother",
}
OPTIONS: Final = {
    command: {
        name: kind for part in words.split() for kind, _, names in [part.partition(":")] for name in names.split(",")
    }
    for command, words in _OPTIONS.items()
}
# How many results a command keeps, where that is what its first word says, and the least that it takes.
_FIRST: Final = {"dedup": 1, "sort": 0, "head": 1, "tail": 1}


def options(command: str, rest: str) -> tuple[str, dict[str, str]]:
    """Take the options out of what stands behind a command. Raises FaultError for one it has not, or a wrong value."""
    found: dict[str, str] = {}
    rest, where, condition = rest.partition(" where ") if command == "inputlookup" else (rest, "", "")

    def take(match: re.Match[str]) -> str:
        found[match[1]] = match[2].strip('"').replace("\0", "=")
        return ""

    # Options of aggregates may stand before or behind them; an equals sign inside brackets or quotes is not theirs.
    hidden = re.sub(r"\((?:[^()]|\([^()]*\))*\)|(?<!=)\"[^\"]*\"", lambda match: match[0].replace("=", "\0"), rest)
    rest = _OPTION.sub(take, hidden).replace("\0", "=").strip()
    for name, value in found.items():
        kind = OPTIONS[command].get(name)
        if kind is None:
            raise FaultError(f"{command} has no option {name}; it has {', '.join(sorted(OPTIONS[command]))}")
        if fault := _value(kind, value):
            raise FaultError(f"{command}: {name}={value} {fault}")
    return rest + where + condition, found


def kept(command: str, rest: str) -> str:
    """Take the number off that says how many a command keeps. Raises FaultError when it keeps none."""
    found = re.match(r"([-+]?\d+)(?:\s+|$)", rest)
    if not found or command not in _FIRST:
        return rest
    if int(found[1]) < _FIRST[command] or found[1][0] in "-+":
        raise FaultError(f"it keeps {found[1]}; give a number from {_FIRST[command]}")
    return rest[found.end() :]


def _value(kind: str, value: str) -> str:
    if TOKEN in value:
        return ""
    check = _TYPES.get(kind)
    if check is not None:
        return check(value)
    return "" if value in kind.split("/") else f"is none of {', '.join(kind.split('/'))}"


def _boolean(value: str) -> str:
    return "" if value.lower() in values.BOOLEANS else "is no boolean; give t or f"


def _number(least: int) -> Callable[[str], str]:
    return lambda value: "" if value.isdigit() and int(value) >= least else f"is no whole number from {least}"


def _limit(value: str) -> str:
    return "" if re.fullmatch(r"(?:top|bottom)?\s*\d+", value) else "is no number, topN or bottomN"


_TYPES: Final[dict[str, Callable[[str], str]]] = {
    "b": _boolean, "n": _number(0), "p": _number(1), "s": formats.span, "l": _limit,
    "t": lambda value: "" if value else "is empty", "e": lambda value: "",
}  # fmt: skip
