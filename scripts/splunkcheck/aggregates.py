"""The aggregates of stats and its kin: `count(eval(a=1)) AS n sum(b) BY c`."""

from __future__ import annotations

import re
from typing import Final

from splunkcheck import fields
from splunkcheck.expressions import expression
from splunkcheck.findings import FaultError
from splunkcheck.walk import NAME, Walk

_FUNCTIONS: Final = """
avg count dc distinct_count earliest earliest_time estdc first last latest latest_time list max mean median min mode
range rate stdev stdevp sum sumsq values var varp
"""
AGGREGATES: Final = frozenset(_FUNCTIONS.split())
_NUMERIC: Final = "avg mean median range stdev stdevp sum sumsq var varp rate"
_OF_NUMBERS: Final = frozenset(_NUMERIC.split())
_NUMBERS: Final = _OF_NUMBERS | {"count", "c", "dc", "distinct_count", "estdc"}
_FUNCTION: Final = re.compile(r"[A-Za-z_]+[\d.]*")
_PERCENTILE: Final = re.compile(r"(?:p|perc|exactperc|upperperc)(\d+(?:\.\d+)?)")
_AS: Final = re.compile(rf"\s+AS\s+({NAME})", re.I)


def aggregates(walk: Walk, rest: str) -> tuple[list[str], list[str], set[str]]:
    """Check a list of aggregates; return the fields they make, those behind BY, and which of the first are numbers."""
    if rest.rstrip().endswith(","):
        raise FaultError("it ends with a comma")
    numeric: set[str] = set()
    before, by, after = re.match(r"(.*?)(?:\s(BY)\s+(.*))?$", rest, re.I | re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
    groups = re.findall(NAME, after or "")
    if by and (not groups or re.sub(NAME, "", after).strip(" ,")):
        raise FaultError(f"no fields behind BY: {after!r}")
    walk.need(*groups)
    made, position, text = [], 0, before.strip()
    while position < len(text):
        function = _FUNCTION.match(text, position)
        if not function:
            raise FaultError(f"{text[position : position + 40]!r} is no aggregate")
        inside, end = _inside(text, function.end())
        _of(walk, function[0], inside)
        name = _AS.match(text, end)
        made.append(name[1].strip("\"'") if name else text[position:end])
        numeric |= {made[-1]} if function[0] in _NUMBERS or _PERCENTILE.fullmatch(function[0]) else set()
        end = name.end() if name else end
        position = end + len(text[end:]) - len(text[end:].lstrip(" ,\n"))
        if position == end < len(text):
            raise FaultError(f"{text[end : end + 20]!r} stands where AS, BY or another aggregate is due")
    twice = sorted({name for name in made if made.count(name) > 1})
    if twice:
        raise FaultError(f"{', '.join(twice)} is made twice; give each its own name")
    if not made:
        raise FaultError("no aggregate")
    return made, [name.strip("\"'") for name in groups], numeric


def _inside(text: str, start: int) -> tuple[str | None, int]:
    """Return what is in the brackets that begin there (None: no bracket), and where they end."""
    if text[start : start + 1] != "(":
        return None, start
    depth, quoted = 0, False
    for position in range(start, len(text)):
        quoted ^= text[position] == '"'
        depth += 0 if quoted else (text[position] == "(") - (text[position] == ")")
        if not depth and not quoted:
            return text[start + 1 : position].strip(), position + 1
    raise FaultError(f"{text[start : start + 20]!r} is not closed")


def _of(walk: Walk, function: str, inside: str | None) -> None:
    percentile = _PERCENTILE.fullmatch(function)
    if function not in AGGREGATES and not percentile:
        raise FaultError(f"{function}() is no aggregate function")
    if percentile and float(percentile[1]) > 100:
        raise FaultError(f"{function}() is no percentile: it goes from 0 to 100")
    if not inside and function != "count":
        raise FaultError(f"{function} of what? Give it a field in brackets")
    if inside and inside.startswith("eval("):
        body, end = _inside(inside, len("eval"))
        if end < len(inside):
            raise FaultError(f"{inside[end:]!r} behind eval()")
        used = expression(body or "")
        walk.uses(used)
        if (used.kind == "b") != (function in ("count", "c")) and (used.kind == "b" or re.fullmatch(NAME, body or "")):
            wanted = "a condition goes into count(eval())" if used.kind == "b" else f"count({body}) counts a field"
            raise FaultError(f"{function}(eval({body})): {wanted}")
    elif inside:
        if not re.fullmatch(NAME, inside):
            raise FaultError(f"{function}({inside}): an expression goes into eval()")
        walk.need(inside)
        if function in _OF_NUMBERS and inside in fields.TEXTS and inside not in walk.made:
            raise FaultError(f"{function}({inside}): {inside} is a text, which has none")
