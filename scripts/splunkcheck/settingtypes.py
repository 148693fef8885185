"""The types that a setting of a .conf file may have; values.py checks by them."""

from __future__ import annotations

from typing import Final

# Beside these: a fixed choice, "a|b|c", and a number's bounds, "integer LOW HIGH" with words that may stand instead.
BOOL, INT, TEXT, REGEX, EVAL, SPL = "boolean", "integer", "text", "regex", "eval", "spl"
NAME, NAMES, LISTED, TIME, CRON, FIELDS = "name", "names", "listed", "time", "cron", "fields"
DURATION, FORMAT, ZONE, CHARSET, SED = "duration", "format of times", "zone", "charset", "sed"
TTL, SKEW, PLACE, ALIAS, MATCH = "ttl", "skew", "place", "alias", "match"
MAIL, URL, MESSAGE, RELOAD = "mail", "url", "message", "reload"
UNSIGNED: Final = "integer 0 4294967295"
POSITIVE: Final = "integer 1 4294967295"

Keys = dict[str, str]


def keys(choices: Keys | None = None, **named: str) -> Keys:
    """Return keys by their types: `keys(boolean="disabled useACK", choices={"KV_MODE": "none|json"})`."""
    spelled = {"evals": EVAL, "unsigned": UNSIGNED, "positive": POSITIVE, "times": FORMAT}
    found = {key: spelled.get(kind, kind) for kind, names in named.items() for key in names.split()}
    return found | (choices or {})
