"""SPL as text: macros expanded, brackets and quotes paired, the pipeline cut into its commands."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from splunkcheck.findings import FaultError
from splunkcheck.tokens import SUBSEARCH

_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
_MACRO: Final = re.compile(r"`([^`]*)`")
_CALL: Final = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_DEEPEST: Final = 10
_PLAIN: Final = re.compile(r"""[^"'()\[\]{}|]+""")


@dataclass(frozen=True, slots=True)
class Macro:
    """A search macro: its arguments' names and its definition."""

    args: tuple[str, ...]
    definition: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a pipeline: its name, what stands behind it, and the subsearches taken out of it."""

    name: str
    rest: str
    subsearches: tuple[str, ...]


def arguments(text: str) -> list[str]:
    """Cut a macro call's arguments at its commas, but not inside quotes or brackets."""
    parts, depth, quoted, current = [], 0, False, ""
    for letter in text:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "([") - (letter in ")]")
        if letter == "," and not quoted and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    return [*parts, current.strip()] if text.strip() else []


def macro_key(name: str, count: int) -> str:
    """Return a macro's stanza: its name, with its number of arguments when it has any."""
    return f"{name}({count})" if count else name


def expand(text: str, macros: Mapping[str, Macro], used: set[str], depth: int = 0) -> str:
    """Return SPL without macro calls, and note their stanzas in `used`. Raises FaultError for one that is not there."""
    if depth > _DEEPEST:
        raise FaultError("its macros call each other without end")

    def called(found: re.Match[str]) -> str:
        call = _CALL.fullmatch(found[1])
        if not call:
            raise FaultError(f"`{found[1]}` is no macro call")
        values = arguments(call[2] or "")
        key = macro_key(call[1], len(values))
        macro = macros.get(key)
        if macro is None:
            others = sorted(name for name in macros if name.split("(")[0] == call[1])
            raise FaultError(f"macro {key} does not exist" + (f"; there is {', '.join(others)}" if others else ""))
        used.add(key)
        definition = macro.definition
        for name, value in zip(macro.args, values, strict=True):
            definition = definition.replace(f"${name}$", value)
        return expand(definition, macros, used, depth + 1)

    pieces = re.split(r'("(?:[^"\\]|\\.)*"|```.*?```)', text, flags=re.DOTALL)
    pieces[1::2] = [" " if piece.startswith("`") else piece for piece in pieces[1::2]]  # a comment
    for piece in pieces[1::2]:
        if (found := re.search(r"`([\w-]+)(?:\([^`]*\))?`", piece)) and any(
            name.split("(")[0] == found[1] for name in macros
        ):
            raise FaultError(f"{found[0]} in quotes is a text: a macro is called outside of them")
    for number in range(0, len(pieces), 2):
        if "```" in pieces[number]:
            raise FaultError("a comment is not closed: ``` is due")
        if pieces[number].count("`") % 2:
            raise FaultError("a backtick has no partner")
        pieces[number] = _MACRO.sub(called, pieces[number])
    return "".join(pieces)


def plain(text: str) -> None:
    """Raise FaultError for a letter outside quotes that looks like one of SPL's, and is another."""
    for letter in re.sub(r""""(?:[^"\\]|\\.)*"|'[^']*'""", "", text):
        if not letter.isascii() and unicodedata.category(letter) in ("Zs", "Cf", "Pd", "Pi", "Pf", "Cc", "Sm"):
            name = unicodedata.name(letter, "without a name")
            raise FaultError(f"U+{ord(letter):04X} ({name}) stands outside quotes; write it in ASCII")


def balanced(text: str) -> None:
    """Raise FaultError for a bracket or a quote of a part of a search without its partner."""
    stack: list[str] = []
    for letter in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        if letter == '"':
            raise FaultError("a quote is not closed")
        if letter in _PAIRS:
            stack.append(letter)
        elif letter in _PAIRS.values() and (not stack or _PAIRS[stack.pop()] != letter):
            raise FaultError(f"{letter!r} closes nothing")
    if stack:
        raise FaultError(f"{stack[-1]!r} is not closed")


@functools.lru_cache(maxsize=512)
def split(text: str) -> tuple[Command, ...]:
    """Cut a search into commands. Raises FaultError for brackets and quotes without a partner, and an empty command."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    stack: list[str] = []
    position, subsearch = 0, 0
    while position < len(text):
        letter = text[position]
        if letter in "\"'" and not _apostrophe(text, position):
            end = _quoted(text, position)
            piece, position = text[position:end], end
        else:
            run = _PLAIN.match(text, position)
            piece = run[0] if run else letter
            position += len(piece)
            if letter in _PAIRS:
                stack.append(letter)
                subsearch = position if letter == "[" and stack.count("[") == 1 else subsearch
            elif letter in _PAIRS.values():
                if not stack or _PAIRS[stack[-1]] != letter:
                    wanted = f"; {_PAIRS[stack[-1]]!r} is due" if stack else ""
                    raise FaultError(
                        f"{letter!r} closes nothing{wanted} (near {text[max(0, position - 30) : position]!r})"
                    )
                stack.pop()
                if letter == "]" and "[" not in stack:
                    parts[-1][1].append(text[subsearch : position - 1])
                    piece = f" {SUBSEARCH} "
        if piece == "|" and not stack:
            parts.append(("", []))
        elif "[" not in stack:
            parts[-1] = (parts[-1][0] + piece, parts[-1][1])
    if stack:
        raise FaultError(f"{stack[-1]!r} is not closed")
    if len(parts) > 1 and not parts[0][0].strip():
        parts = parts[1:]  # `| inputlookup`: a search may begin with a pipe
    elif text.strip() and not re.match(r"(?:search|savedsearch)\b|\w+\s*!?=|\(|\"", text.strip()):
        raise FaultError(f"begins with {text.split()[0]!r}; give search, or a pipe before it")
    return tuple(_command(body, tuple(inner), number == 0) for number, (body, inner) in enumerate(parts))


def _command(body: str, inner: tuple[str, ...], first: bool) -> Command:
    found = re.match(r"\s*([A-Za-z]\w*)\s*(.*)", body, re.DOTALL)
    if first and body.strip() and (not found or re.match(r"\s*!?=", found[2])):
        return Command("search", body.strip(), inner)
    if not found:
        raise FaultError(
            "a pipe has no command behind it" if not body.strip() else f"no command: {body.strip()[:40]!r}"
        )
    return Command(found[1], found[2].strip(), inner)


def _quoted(text: str, start: int) -> int:
    position = start + 1
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == text[start]:
            return position + 1
        position += 1
    raise FaultError(f"a quote is not closed: {text[start : start + 30]!r}")


def _apostrophe(text: str, position: int) -> bool:
    return text[position] == "'" and position > 0 and text[position - 1].isalnum()
