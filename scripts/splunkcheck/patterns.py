"""Splunk's regular expressions, which are PCRE, read by Python's."""

from __future__ import annotations

import re
from typing import Final

# What PCRE has and Python writes in another way, or not at all. What it matches is no matter here.
_CLASSES: Final = {
    "alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w", "cntrl": r"\x00-\x1f",
    "print": " -~", "graph": "!-~", "ascii": r"\x00-\x7f",
}  # fmt: skip
_ESCAPES: Final = {"h": r"[ \t]", "H": r"[^ \t]", "R": r"(?:\r\n|\n)", "K": "", "N": r"[^\n]", "V": r"[^\n]",
                   "z": r"\Z", "G": "", "X": "."}  # fmt: skip
_PIECE: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\[pP](?:\{\^?\w+\}|\w)|\\x\{[0-9A-Fa-f]+\}|\\(?P<escaped>.)"
    r"|\[\[:\^?\w+:\]\]|\[:\^?(?P<posix>\w+):\]|\(\?<(?P<name>[A-Za-z_]\w*)>|\(\?(?P<flags>[imsxU]+)\)",
    re.DOTALL,
)
_LONGEST_NAME: Final = 32


def compiled(value: str) -> re.Pattern[str]:
    """Return a regular expression of Splunk's as Python reads it. Raises re.error when it is none."""
    flags = ""

    def python(found: re.Match[str]) -> str:
        nonlocal flags
        if found["name"]:
            if len(found["name"]) > _LONGEST_NAME:
                raise re.error(f"the group's name {found['name']} is longer than {_LONGEST_NAME} characters")
            return f"(?P<{found['name']}>"
        if found["flags"]:  # PCRE takes them anywhere
            flags += found["flags"].replace("U", "")
            return ""
        if found["quoted"] is not None:
            return re.escape(found["quoted"])
        if found[0].startswith("[[:"):
            return f"[{'^' if '^' in found[0] else ''}{_class(found[0].strip('[:^]'))}]"
        if found["posix"]:
            return _class(found["posix"])
        if found[0].startswith(("\\p", "\\P", "\\x{")):
            return "w" if found[0][1] == "x" else r"\w"
        return _ESCAPES.get(found["escaped"], found[0])

    text = _PIECE.sub(python, value)
    return re.compile(f"(?{''.join(sorted(set(flags)))}){text}" if flags else text)


def _class(name: str) -> str:
    if name not in _CLASSES:
        raise re.error(f"[:{name}:] is no class of characters")
    return _CLASSES[name]


def fault(value: str) -> str:
    """Return what is wrong with a regular expression, or nothing."""
    try:
        compiled(value)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    return ""


def names(value: str) -> frozenset[str]:
    """Return the names of a regular expression's groups; none of one that cannot be read."""
    return frozenset() if fault(value) else frozenset(compiled(value).groupindex)


def groups(value: str) -> int:
    """Return how many groups a regular expression has; 0 of one that cannot be read."""
    return 0 if fault(value) else compiled(value).groups
