"""The terms of the search command, such as `kind="llm" (a=1 OR NOT b IN (1, 2))`: fields, values, kinds of event."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from splunkcheck import fields
from splunkcheck.findings import FaultError
from splunkcheck.tokens import SUBSEARCH, tokens

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<sign><=|>=|!=|[=<>(),])|"(?P<string>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()=<>!,"|]+))"""
)
_COMPARE: Final = ("=", "!=", "<", ">", "<=", ">=")
# Not fields: what limits the search itself.
MODIFIERS: Final = frozenset(
    ("earliest", "latest", "_index_earliest", "_index_latest", "index", "splunk_server", "eventtype", "tag")
)


@dataclass(slots=True)
class Terms:
    """What a search command says: fields with the values they are compared with, and the kinds of events it takes."""

    compared: list[tuple[str, str, str]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    sourcetypes: set[str] = field(default_factory=set)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(_TOKEN, text, "search term")
        self.at, self.negated = 0, False
        self.found = Terms()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ("", "")

    def group(self, *, inner: bool) -> None:
        due = True
        while self.at < len(self.tokens):
            kind, text = self.peek()
            if (kind, text) == ("sign", ")"):
                if not inner:
                    raise FaultError("')' closes nothing")
                break
            if kind == "word" and text.upper() in ("AND", "OR"):
                if text != text.upper():
                    raise FaultError(f"{text} is a word to search for; write {text.upper()}")
                if due:
                    raise FaultError(f"{text} has nothing before it")
                self.at, due = self.at + 1, True
                continue
            self.term()
            due = False
        if due:
            raise FaultError(
                "a search has no term" if not self.tokens else "AND, OR or a bracket has no term behind it"
            )

    def term(self) -> None:
        kind, text = self.peek()
        if kind == "word" and text.upper() == "NOT":
            if text != "NOT":
                raise FaultError(f"{text} is a word to search for; write NOT")
            self.at, before = self.at + 1, self.negated
            self.negated = not before
            self.term()
            self.negated = before
        elif (kind, text) == ("sign", "("):
            self.at += 1
            self.group(inner=True)
            if self.peek() != ("sign", ")"):
                raise FaultError("'(' is not closed")
            self.at += 1
        elif kind == "word" and self.peek(1)[1].upper() == "IN" and self.peek(2)[1] == "(":
            self.at += 3
            self.listed(text)
        elif kind in ("word", "string") and self.peek(1)[0] == "sign" and self.peek(1)[1] in _COMPARE:
            self.at += 3
            if self.peek(-1)[0] not in ("word", "string"):
                raise FaultError(f"{text} is compared with nothing")
            self.compare(text, self.peek(-2)[1], self.peek(-1)[1])
        elif text == SUBSEARCH:
            self.at += 1
        else:
            raise FaultError(f"{text!r} is a bare word: it searches the raw text; compare a field with it")

    def listed(self, name: str) -> None:
        while True:
            kind, text = self.peek()
            if kind not in ("word", "string"):
                raise FaultError(f"the list behind {name} IN has {text or 'the end'!r} where a value is due")
            self.compare(name, "=", text)
            self.at += 2
            if self.peek(-1) == ("sign", ")"):
                return
            if self.peek(-1) != ("sign", ","):
                raise FaultError(f"the list behind {name} IN has no comma before {self.peek(-1)[1] or 'the end'!r}")

    def compare(self, name: str, sign: str, value: str) -> None:
        self.found.compared.append((name, sign, value))
        if sign == "=" and not self.negated:
            if name == "kind":
                self.found.kinds |= fields.matching(name, value)
            elif name == "sourcetype":
                self.found.sourcetypes |= fields.matching(name, value)


def terms(text: str) -> Terms:
    """Return what a search command says. Raises FaultError when it is not well-formed, or has a bare word."""
    parser = _Parser(text)
    parser.group(inner=False)
    return parser.found
