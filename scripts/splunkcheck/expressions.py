"""The expressions of eval, where and fieldformat: are they well-formed, and which fields do they use?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from splunkcheck.findings import FaultError
from splunkcheck.tokens import tokens

# Functions with the least and most number of arguments (None: any).
# By the least and the most number of arguments (None: any), the functions that take so many.
_FUNCTIONS: Final[dict[tuple[int, int | None], str]] = {
    (0, 0): "false now null random time true",
    (0, None): "json_array json_object",
    (1, 1): """
        abs ceiling exact floor isbool isint isnotnull isnull isnum isstr json_keys json_valid len ln lower md5
        mvcount mvdedup mvfilter mvsort searchmatch sha1 sha256 sha512 sqrt typeof upper urldecode
    """,
    (1, 2): "log ltrim round rtrim tonumber tostring trim",
    (1, None): "coalesce json_extract max min mvappend printf",
    (2, 2): "cidrmatch like match mvfind mvjoin mvmap nullif pow relative_time spath split strftime strptime",
    (2, 3): "mvindex mvrange mvzip substr",
    (2, None): "case in validate",
    (3, 3): "if replace",
}
FUNCTIONS: Final = {name: counts for counts, names in _FUNCTIONS.items() for name in names.split()}
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<field>'[^']*')|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_]\w*(?:\{\})?)|(?P<sign><=|>=|==|!=|[-+*/%.,()<>=]))"""
)
_WORDS: Final = ("AND", "OR", "NOT", "IN", "LIKE", "XOR")
_COMPARE: Final = ("=", "==", "!=", "<", ">", "<=", ">=")


@dataclass(slots=True)
class Used:
    """What an expression uses: its fields, and the comparisons of a field with a text."""

    fields: list[str] = field(default_factory=list)
    compared: list[tuple[str, str]] = field(default_factory=list)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(_TOKEN, text, "part of an expression")
        self.at = 0
        self.used = Used()

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> bool:
        kind = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        if kind in ("sign", "word") and self.peek().upper() in wanted:
            self.at += 1
            return True
        return False

    def expression(self) -> str:
        """or, and, not, comparison: returns a text when the whole is one quoted text, a field's name when it is one."""
        left = self.conjunction()
        while self.take("OR", "XOR"):
            self.conjunction()
            left = ""
        return left

    def conjunction(self) -> str:
        left = self.negation()
        while self.take("AND"):
            self.negation()
            left = ""
        return left

    def negation(self) -> str:
        if self.take("NOT"):
            self.negation()
            return ""
        return self.comparison()

    def comparison(self) -> str:
        left = self.sum()
        if self.take(*_COMPARE, "LIKE"):
            right = self.sum()
            if right.startswith('"'):
                self.used.compared.append((left, right[1:-1]))
            return ""
        if self.take("IN"):
            self.expect("(")
            while True:
                item = self.sum()
                if item.startswith('"'):
                    self.used.compared.append((left, item[1:-1]))
                if not self.take(","):
                    break
            self.expect(")")
            return ""
        return left

    def sum(self) -> str:
        left = self.product()
        while self.take("+", "-", "."):
            self.product()
            left = ""
        return left

    def product(self) -> str:
        left = self.unary()
        while self.take("*", "/", "%"):
            self.unary()
            left = ""
        return left

    def unary(self) -> str:
        if self.take("-", "+"):
            self.unary()
            return ""
        return self.primary()

    def primary(self) -> str:
        if self.at >= len(self.tokens):
            raise FaultError("the expression ends where a value is due")
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind in ("string", "number"):
            return text
        if kind == "field":
            self.used.fields.append(text[1:-1])
            return text[1:-1]
        if kind == "word" and text.upper() not in _WORDS:
            if self.take("("):
                self.call(text)
                return ""
            if text.lower() not in ("true", "false", "null"):
                self.used.fields.append(text)
            return text
        if text == "(":
            self.expression()
            self.expect(")")
            return ""
        raise FaultError(f"{text!r} stands where a value is due")

    def call(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise FaultError(f"{name}() is no function")
        count = 0
        while self.peek() != ")":
            self.expression()
            count += 1
            if not self.take(","):
                break
            if self.peek() == ")":
                raise FaultError(f"{name}() ends with a comma")
        self.expect(")")
        least, most = FUNCTIONS[name]
        if count < least or (most is not None and count > most):
            wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise FaultError(f"{name}() takes {wanted} arguments, not {count}")
        if name == "case" and count % 2:
            raise FaultError(f"case() takes pairs of a condition and a value; it has {count} arguments")

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise FaultError(f"{self.peek() or 'the end'!r} stands where {sign!r} is due")


def expression(text: str) -> Used:
    """Return what an expression uses. Raises FaultError when it is not well-formed."""
    parser = _Parser(text)
    parser.expression()
    if parser.at < len(parser.tokens):
        raise FaultError(f"{parser.peek()!r} stands where an operator is due")
    return parser.used


def assignments(text: str) -> list[tuple[str, Used]]:
    """Return eval's assignments: each field that is made, and what it is made of. Raises FaultError."""
    parser = _Parser(text)
    made: list[tuple[str, Used]] = []
    while True:
        kind, name = parser.tokens[parser.at] if parser.at < len(parser.tokens) else ("", "")
        if kind not in ("word", "field"):
            raise FaultError(f"{name or 'the end'!r} stands where a field's name is due")
        parser.at += 1
        if not parser.take("="):
            raise FaultError(f"{name} is not assigned: '=' is due, not {parser.peek()!r}")
        parser.used = Used()
        parser.expression()
        made.append((name.strip("'"), parser.used))
        if not parser.take(","):
            break
    if parser.at < len(parser.tokens):
        raise FaultError(f"{parser.peek()!r} stands where an operator or a comma is due")
    return made
