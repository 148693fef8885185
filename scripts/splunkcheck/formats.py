"""Values with a grammar of their own, in .conf files and in SPL: formats of times, zones, networks, scripts of sed."""

from __future__ import annotations

import codecs
import ipaddress
import re
import zoneinfo
from typing import Final

from splunkcheck import patterns

_CONVERSION: Final = re.compile(
    r"%(?:[-_0^#]?(?:[aAbBcCdDeFgGhHIjklmMnNpQsStTuUvVwWxXyYzZ+%]|\d[NQ]|:{1,3}z|E[zcCxXyY]|O.))"
)
# Character sets that Splunk knows by iconv's names and Python does not know.
_ICONV: Final = frozenset(("AUTO", "TCVN", "ARMSCII-8", "GEORGIAN-ACADEMY", "GEORGIAN-PS", "MULELAO-1", "CP1133"))
_DURATION: Final = r"\d+\s*(?:s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours|d|day|days)"
_SPAN: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)?(?:us|ms|cs|ds|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
    r"|mon|months?|q|qtrs?|quarters?|y|yrs?|years?)(?:@\w+(?:[-+]\d+\w+)?)?"
)
_PRINTF: Final = re.compile(r"%(?:%|[-+ 0#']*(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+))?(?:h|l|ll)?(?P<kind>.?))")


def strftime(value: str) -> str:
    """Return what is wrong with a format of times, or nothing."""
    rest = _CONVERSION.sub("", value)
    if "%" in rest:
        return f"has {rest[rest.index('%') : rest.index('%') + 2]!r}, which is no conversion of a time"
    return "" if rest != value else "has no conversion of a time: %Y, %m, %d, ..."


def zone(value: str) -> str:
    """Return what is wrong with the name of a time zone, or nothing."""
    if value in zoneinfo.available_timezones() or re.fullmatch(r"[A-Z]{3,4}(?:[-+]?\d+(?:[A-Z]{3,4})?)?", value):
        return ""
    return "is no time zone; give its name, such as Europe/Vienna, or UTC"


def charset(value: str) -> str:
    """Return what is wrong with the name of a character set, or nothing."""
    if value.upper() in _ICONV:
        return ""
    try:
        codecs.lookup(value)
    except LookupError:
        return "is no character set; give UTF-8, or AUTO"
    return ""


def network(value: str) -> str:
    """Return what is wrong with a network in CIDR notation, or nothing."""
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        return f"is no network: {error}"
    return "" if "/" in value else "is no network; give its length, such as 10.0.0.0/8"


def sed(value: str) -> str:
    """Return what is wrong with a script of sed as Splunk takes it (s/REGEX/TEXT/FLAGS, y/LETTERS/LETTERS/)."""
    text = value.strip()
    while text:
        sign = re.escape(text[1:2])
        found = re.match(
            rf"([sy]){sign}((?:\\.|(?!{sign}).)*){sign}((?:\\.|(?!{sign}).)*){sign}(\w*)(?:\s+|$)", text, re.DOTALL
        )
        if not sign or not found:
            return "is no s/REGEX/TEXT/FLAGS or y/LETTERS/LETTERS/"
        kind, old, new, flags = found.groups()
        if kind == "y" and len(old) != len(new):
            return "has y/// with more letters on one side than on the other"
        if kind == "s" and not re.fullmatch(r"g?\d*g?", flags):
            return f"ends with {flags!r}; it may end with g or a number"
        fault = patterns.fault(old) if kind == "s" else ""
        beyond = [n for n in re.findall(r"\\([1-9])", new) if not fault and int(n) > patterns.groups(old)]
        if fault or beyond:
            return fault or f"takes group {beyond[0]}, and its regular expression has {patterns.groups(old)}"
        text = text[found.end() :]
    return "" if value.strip() else "is empty"


def span(value: str) -> str:
    """Return what is wrong with a span of timechart and bin, or nothing."""
    found = _SPAN.fullmatch(value)
    if re.fullmatch(r"\d*(?:\.\d+)?log\d*(?:\.\d+)?", value):
        return ""
    number = found["number"] if found else value if re.fullmatch(r"\d+(?:\.\d+)?", value) else None
    if not found and number is None:
        return "is no span; give a number and its unit, such as 5m, 1h or 1d"
    return "is no span: it has no length" if number is not None and not float(number) else ""


def duration(value: str) -> str:
    """Return what is wrong with a length of time (60s, 5m, 24h, 7d), or nothing."""
    found = re.fullmatch(_DURATION, value, re.I)
    if not found or " " in value:
        return "is no length of time; give a number and its unit, such as 60s, 5m, 24h or 7d"
    return "is no length of time: it is 0" if not int(re.sub(r"\D", "", value)) else ""


def printf(value: str, count: int) -> str:
    """Return what is wrong between a format of printf and its number of values, or nothing."""
    due = 0
    for found in _PRINTF.finditer(value):
        if found[0] == "%%":
            continue
        if found["kind"] not in set("aAcdeEfFgGiosuxXp"):
            return f"has {found[0]!r}, which is no conversion"
        due += 1 + (found["width"] == "*") + (found["precision"] == "*")
    return "" if due == count else f"takes {due} values and gets {count}"
