"""The functions of eval: what each takes and returns, and what a text given to one has to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from splunkcheck import formats, patterns, values
from splunkcheck.findings import FaultError
from splunkcheck.tokens import TOKEN

# NAME(TAKES[OPTIONAL]{AND AS OFTEN AS ONE LIKES})RETURNS. One letter is one argument: n number, s text, b condition,
# v a value of any type but a condition, x anything, and texts of a form: r regular expression, t time modifier,
# f format of times, c network, o one of some words, q terms of a search, h what is looked into, l a pattern of like(),
# d what stands between values. What if, case, coalesce and nullif return is what their branches are.
_FUNCTIONS: Final = """
abs(n)n acos(n)n acosh(n)n asin(n)n asinh(n)n atan(n)n atan2(nn)n atanh(n)n avg(v{v})n bit_and(nn{n})n bit_not(n[n])n
bit_or(nn{n})n bit_shift_left(nn)n bit_shift_right(nn)n bit_xor(nn{n})n case(bx{bx})x ceil(n)n ceiling(n)n
cidrmatch(cs)b coalesce(x{x})x commands(s)v cos(n)n cosh(n)n exact(n)n exp(n)n false()b floor(n)n hypot(nn)n
if(bxx)x in(vv{v})b ipmask(ss)s isarray(x)b isbool(x)b isdouble(x)b isint(x)b ismv(x)b isnotnull(x)b isnull(x)b
isnum(x)b isobject(x)b isstr(x)b json(v)s json_append(vsx{sx})s json_array({x})s json_array_to_mv(v[b])v
json_delete(vs{s})s json_entries(v)s json_extend(vsx{sx})s json_extract(v{s})v json_extract_exact(v{s})v
json_has_key_exact(vs)b json_keys(v)s json_object({sx})s json_set(vsx{sx})s json_set_exact(vsx{sx})s json_valid(v)b
len(s)n like(hl)b ln(n)n log(n[n])n lower(s)s ltrim(s[s])s match(hr)b max(v{v})v md5(s)s min(v{v})v
mv_to_json_array(v[b])s mvappend(v{v})v mvcount(v)n mvdedup(v)v mvfilter(b)v mvfind(vr)n mvindex(vn[n])v mvjoin(vd)s
mvmap(vx[v])v mvrange(nn[v])v mvsort(v)v mvzip(vv[d])v now()n null()z nullif(xx)x pi()n pow(nn)n printf(s{v})s random()n
relative_time(nt)n replace(srs)s round(n[n])n rtrim(s[s])s searchmatch(q)b sha1(s)s sha256(s)s sha512(s)s sigfig(n)n
sin(n)n sinh(n)n spath(ss)v split(sd)v sqrt(n)n strftime(nf)s strptime(sf)n substr(sn[n])s sum(v{v})n tan(n)n
tanh(n)n time()n tonumber(v[n])n tostring(x[o])s trim(s[s])s true()b typeof(x)s upper(s)s urldecode(s)s
validate(bx{bx})s
"""
_FORM: Final = re.compile(r"(\w+)\(([a-z]*)(?:\[([a-z]+)\])?(?:\{([a-z]+)\})?\)([a-z])")
FUNCTIONS: Final = {
    found[1]: (found[2], found[3] or "", found[4] or "", found[5]) for found in _FORM.finditer(_FUNCTIONS)
}
CALLED: Final = {"b": "a condition", "n": "a number", "s": "a text", "z": "null", "f": "a field"}
_TOSTRING: Final = frozenset(("hex", "commas", "duration", "binary"))


@dataclass(frozen=True, slots=True)
class Value:
    """A part of an expression: its kind (b, n, s, z, f, x), and the text or the field's name when it is no more."""

    kind: str
    text: str | None = None


def arguments(name: str, count: int) -> str:
    """Return the letters of a function's arguments when it is given so many; what is wrong is raised as ValueError."""
    needed, optional, more, _ = FUNCTIONS[name]
    room = count - len(needed)
    if room >= 0 and more and room % len(more) == 0:
        return needed + more * (room // len(more))
    if 0 <= room <= len(optional):
        return needed + optional[:room]
    if name == "case":
        raise ValueError(f"case() takes pairs of a condition and a value; it has {count} arguments")
    wanted = f"{len(needed)}" if not optional and not more else f"{len(needed)} or more"
    raise ValueError(f"{name}() takes {wanted} arguments, not {count}")


def refuses(letter: str, kind: str) -> str:
    """Return what is wrong when an argument of that letter gets a value of that kind (b, n, s, z, f, x), or nothing."""
    if kind in ("x", "z") or letter == "x":
        return ""
    if letter in "bq":
        wrong = kind != "b" if letter == "b" else kind in "bn"
    elif letter == "n":
        wrong = kind in "sb"
    else:
        wrong = kind == "b" or (letter in "tfrcold" and kind == "n")
    words = {"b": "a condition, such as a comparison", "n": "a number"}.get(
        letter, "a text" if letter != "v" else "a value"
    )
    return f"takes {words}, not {CALLED[kind]}" if wrong else ""


def text(letter: str, value: str) -> str:
    """Return what is wrong with a text, written out, that an argument of that letter gets, or nothing."""
    check = _TEXTS.get(letter)
    return f"{value[:40]!r} {fault}" if check and (fault := check(value)) else ""


def _word(value: str) -> str:
    return "" if value in _TOSTRING else f"is none of {', '.join(sorted(_TOSTRING))}"


def _like(value: str) -> str:
    return "has a star; any letters are % there, and one is _" if "*" in value and "%" not in value else ""


def _modifier(value: str) -> str:
    return "" if re.match(r"[-+@]|now$", value) and not values.time(value) else "is no time modifier (-15m, -1d@d, @h)"


_TEXTS: Final[dict[str, Callable[[str], str]]] = {
    "l": _like, "r": patterns.fault, "f": formats.strftime, "t": _modifier, "c": formats.network, "o": _word,
}  # fmt: skip


def unified(kinds: list[str]) -> str:
    """Return what a function returns that returns one of its branches."""
    own = set(kinds) - {"z"}
    if len(own) == 1:
        return own.pop()
    return "f" if "b" not in own and "x" not in own else "x"


def check(name: str, given: list[Value], fields: set[str]) -> None:
    """Raise FaultError for what is wrong with a function's arguments; `fields`: those that they use."""
    try:
        letters = arguments(name, len(given))
    except ValueError as error:
        raise FaultError(str(error)) from None
    for letter, one in zip(letters, given, strict=True):
        if fault := refuses(letter, one.kind):
            raise FaultError(f"{name}() {fault}")
        if one.kind == "s" and one.text is not None and TOKEN not in one.text and (fault := text(letter, one.text)):
            raise FaultError(f"{name}(): {fault}")
    if letters.startswith("h") and given[0].kind == "s" and given[0].text and given[1].kind == "f":
        raise FaultError(
            f"{name}() looks into its first argument, which is the text {given[0].text!r}: the field comes first"
        )
    if name == "substr" and given[1].text == "0":
        raise FaultError("substr() counts from 1, not from 0")
    if name == "mvfilter" and len(fields) > 1:
        raise FaultError(f"mvfilter() looks at one field, not at {', '.join(sorted(fields))}")
    if (
        name == "printf"
        and given[0].kind == "s"
        and given[0].text
        and (fault := formats.printf(given[0].text, len(given) - 1))
    ):
        raise FaultError(f"printf(): {given[0].text!r} {fault}")
    if name == "tonumber" and len(given) > 1 and (base := given[1].text or "10").isdigit() and not 2 <= int(base) <= 36:
        raise FaultError(f"tonumber(): the base {base} is not from 2 to 36")
