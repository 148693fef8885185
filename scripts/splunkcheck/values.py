"""Is a value one of its setting's type?"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final

from splunkcheck import formats, patterns
from splunkcheck import settingtypes as reference

BOOLEANS: Final = frozenset(("0", "1", "true", "false", "t", "f", "yes", "no", "y", "n"))
_UNITS: Final = (
    "seconds|second|secs|sec|minutes|minute|months|month|mins|min|mon|hours|hour|hrs|hr|days|day|weeks|week|years|year"
    "|yrs|yr|quarters|quarter|qtrs|qtr|s|m|h|d|w|q|y"
)
_SNAPS: Final = f"(?:w[0-7]|{_UNITS})"
_OFFSET: Final = re.compile(rf"([-+])(\d*)({_UNITS})")
_RELATIVE: Final = re.compile(
    rf"(?:rt)?(?:now)?(?:[-+]\d*(?:{_UNITS}))*(?:@{_SNAPS}(?:[-+]\d*(?:{_UNITS}))*)?(?:[-+]\d*(?:{_UNITS}))*"
)
_EPOCH: Final = re.compile(r"0|1|\d{9,10}(?:\.\d+)?")
_LONG: Final = {
    "s": 1,
    "mi": 60,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "mo": 2592000,
    "q": 7776000,
    "y": 31536000,
}
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NAMES: Final = ("", "", "", " jan feb mar apr may jun jul aug sep oct nov dec", "sun mon tue wed thu fri sat")
_CRON: Final = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("weekday", 0, 7))


def fault(kind: str, value: str) -> str:
    """Return what is wrong with a value of that type, or nothing."""
    check = _CHECKS.get(kind)
    if check is not None:
        return check(value)
    if kind.startswith("integer "):
        return _between(value, kind.removeprefix("integer "))
    if "|" in kind and value.lower() not in kind.lower().split("|"):
        return f"is none of {', '.join(kind.split('|'))}"
    return ""


def _boolean(value: str) -> str:
    return "" if value.lower() in BOOLEANS else "is no boolean; give 0 or 1"


def _integer(value: str) -> str:
    return "" if re.fullmatch(r"-?\d+", value) else "is no whole number"


def _between(value: str, bounds: str) -> str:
    low, high, *words = bounds.split(" ")
    if value in words:
        return ""
    if wrong := _integer(value):
        return wrong + (f", nor {' or '.join(words)}" if words else "")
    return "" if int(low) <= int(value) <= int(high) else f"is not from {low} to {high}"


def true(value: str) -> bool:
    """Return whether a setting's value is one of Splunk's words for true."""
    return value.lower() in ("1", "true", "t", "yes", "y")


def time(value: str) -> str:
    """Return what is wrong with a time modifier, or a date."""
    if value and (_EPOCH.fullmatch(value) or (value != "rt" and _RELATIVE.fullmatch(value)) or value == "rt"):
        return ""
    try:
        if re.match(r"\d{4}-\d\d-\d\d", value):
            datetime.datetime.fromisoformat(value)
            return ""
        if re.fullmatch(r"\d\d?/\d\d?/\d{4}(?::\d\d:\d\d:\d\d)?", value):
            datetime.datetime.strptime(
                f"{value}:00:00:00"[:19] if value.count(":") else value,
                "%m/%d/%Y:%H:%M:%S" if ":" in value else "%m/%d/%Y",
            )  # its zone is the user's
            return ""
    except ValueError as error:
        return f"is no date: {error}"
    return "is no time modifier (-24h, -7d@d, now, 0 or epoch seconds) and no date (2026-01-31T00:00:00)"


def between(earliest: str, latest: str) -> str:
    """Return what is wrong between a search's earliest and latest time, where both are there and can be compared."""
    if not earliest or not latest or time(earliest) or time(latest):
        return ""
    if earliest.startswith("rt") != latest.startswith("rt"):
        return f"from {earliest} to {latest}: one of the two is in real time, the other is not"
    sides = [_moment(one.removeprefix("rt")) for one in (earliest, latest)]
    if None not in sides and sides[0] > sides[1]:  # type: ignore[operator]  # neither is None
        return f"from {earliest} to {latest}: it ends before it begins"
    return ""


def _moment(value: str) -> float | None:
    """Return a time in seconds from now (snaps are not counted), or None when that depends on when it is."""
    if value in ("0", "1"):
        return float("-inf")
    if not _RELATIVE.fullmatch(value):
        return None
    seconds = 0.0
    for sign, number, unit in _OFFSET.findall(re.sub(rf"@{_SNAPS}", "", value)):
        seconds += (-1 if sign == "-" else 1) * int(number or 1) * _LONG.get(unit[:2], _LONG.get(unit[:1], 1))
    return seconds


def _cron(value: str) -> str:
    parts = value.lower().split()
    if len(parts) != len(_CRON):
        return f"has {len(parts)} fields; cron has 5: minute, hour, day of the month, month, weekday"
    sets: list[set[int]] = []
    for number, part in enumerate(parts):
        chosen = [_item(item, number) for item in part.split(",")]
        wrong = [found for found in chosen if isinstance(found, str)]
        if wrong:
            return wrong[0]
        sets.append({one for found in chosen if isinstance(found, range) for one in found})
    if parts[4] == "*" and all(min(sets[2]) > _DAYS[month - 1] for month in sets[3]):
        return "never comes: none of these months has that day"
    return ""


def _item(item: str, number: int) -> range | str:
    what, low, high = _CRON[number]
    names = _NAMES[number].split(" ") if _NAMES[number] else []
    found = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", item)
    ends = (
        [names.index(end) if end in names else int(end) if end.isdigit() else -1 for end in found.groups()[:2] if end]
        if found
        else []
    )
    if not found or any(not low <= end <= high for end in ends):
        return f"has {item!r} where a {what} from {low} to {high}, a range, a list or * goes"
    first, last = (ends[0], ends[-1]) if ends else (low, high)
    step = int(found[3] or 1)
    if first > last:
        return f"has the range {item!r}, which ends before it begins"
    if not 1 <= step <= high:
        return f"has a step of {step} in {item!r}; a {what} goes up to {high}"
    return range(first, (high if found[3] and len(ends) == 1 else last) + 1, step)


def _names(value: str) -> str:
    return "" if re.fullmatch(r"[\w*.-]+(?:\s*[,;]\s*[\w*.-]+)*", value) else "is no list of names"


def _listed(value: str) -> str:
    if "," in value:
        return "has a comma: its names stand apart by ;"
    return _names(value.rstrip("; "))


def _fields(value: str) -> str:
    return "" if re.fullmatch(r"[\w.{}-]+(?:\s*,\s*[\w.{}-]+)*", value) else "is no list of fields"


def _name(value: str) -> str:
    return "" if re.fullmatch(r"[\w.-]+", value) else "is no name"


def _form(pattern: str, words: str) -> Callable[[str], str]:
    return lambda value: "" if re.fullmatch(pattern, value) else f"is not {words}"


_CHECKS: Final[dict[str, Callable[[str], str]]] = {
    reference.BOOL: _boolean, reference.INT: _integer, reference.REGEX: patterns.fault, reference.TIME: time,
    reference.CRON: _cron, reference.NAMES: _names, reference.FIELDS: _fields, reference.NAME: _name,
    reference.LISTED: _listed, reference.DURATION: formats.duration, reference.FORMAT: formats.strftime,
    reference.ZONE: formats.zone, reference.CHARSET: formats.charset, reference.SED: formats.sed,
    reference.MAIL: _form(r"(?:[^@\s,;]+@[^@\s,;]+|\$[\w.]+\$)(?:\s*[,;]\s*(?:[^@\s,;]+@[^@\s,;]+|\$[\w.]+\$))*",
                          "an address, or several with commas between"),
    reference.URL: _form(r"(?:https?://|\$)\S+", "a URL: https://..."),
    reference.MESSAGE: _form(r"(?:[^$]|\$[\w.:-]+\$|\$\$|\$\W|\$\d)*", "text whose tokens are closed: $name$"),
    reference.RELOAD: _form(r"simple|never|rest_endpoints|(?:access_endpoints|http_get|http_post) /\S+",
                            "simple, never, rest_endpoints, or http_get, http_post or access_endpoints and a path"),
    "source key": _form(r"_raw|_meta|_time|queue|_MetaData:Index|MetaData:(?:Host|Source|Sourcetype)"
                        r"|(?:field:)?[a-z_]\w*",
                        "_raw, a key of an event, or field:NAME"),
    reference.TTL: _form(r"[1-9]\d*p?", "a number of seconds, or of the schedule's periods with p behind it"),
    reference.SKEW: _form(r"0|\d{1,2}%|100%|[1-9]\d*(?:m|min|mins|minutes|h|hr|hour|hours|d|day|days)",
                          "0, a percentage (10%) or a length of time (5m)"),
    reference.PLACE: _form(r"(?:\$SPLUNK_(?:DB|HOME)|volume:[\w.-]+|/[\w.-]+|[A-Z]:\\).*",
                           "under $SPLUNK_DB, in a volume: or absolute"),
    reference.ALIAS: _form(r"(?:\S+|\"[^\"]+\")\s+(?:AS|ASNEW|as|asnew)\s+(?:\S+|\"[^\"]+\")"
                           r"(?:[\s,]+(?:\S+|\"[^\"]+\")\s+(?:AS|ASNEW|as|asnew)\s+(?:\S+|\"[^\"]+\"))*",
                           "FIELD AS NAME"),
    reference.MATCH: _form(r"(?:WILDCARD|CIDR|EXACT)\([^()]+\)(?:\s*,\s*(?:WILDCARD|CIDR|EXACT)\([^()]+\))*",
                           "WILDCARD(column), CIDR(column) or EXACT(column)"),
}  # fmt: skip
