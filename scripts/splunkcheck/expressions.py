"""The expressions of eval, where and fieldformat: are they well-formed, of which type are they, what do they use?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from splunkcheck import functions
from splunkcheck.findings import FaultError
from splunkcheck.functions import Value
from splunkcheck.tokens import SUBSEARCH, TOKEN, tokens

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<field>'[^']*')|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"""
    r"""|(?P<target>\w*\{\w[\w.]*\}\w*(?=\s*=))|(?P<word>[A-Za-z_]\w*(?:\{\})?)"""
    r"""|(?P<sign><=|>=|==|!=|[-+*/%.,()<>=]))"""
)
_WORDS: Final = ("AND", "OR", "NOT", "IN", "LIKE", "XOR")
_COMPARE: Final = ("=", "==", "!=", "<", ">", "<=", ">=")
_CONSTANTS: Final = ("true", "false", "null")


@dataclass(slots=True)
class Used:
    """What an expression uses: its fields, the texts that a field is compared with, and its kind (b, n, s, z, f, x)."""

    fields: list[str] = field(default_factory=list)
    compared: list[tuple[str, str]] = field(default_factory=list)
    kind: str = "x"


def unquoted(text: str) -> str:
    """Return what SPL takes a text in quotes for: a backslash before a quote or a backslash goes."""
    return re.sub(r'\\(["\\])', r"\1", text[1:-1])


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

    def expression(self) -> Value:
        left = self.conjunction()
        while self.peek().upper() in ("OR", "XOR"):
            left = self.joined(left, self.conjunction)
        return left

    def conjunction(self) -> Value:
        left = self.negation()
        while self.peek().upper() == "AND":
            left = self.joined(left, self.negation)
        return left

    def joined(self, left: Value, following: Callable[[], Value]) -> Value:
        word = self.peek().upper()
        self.at += 1
        for side in (left, following()):
            if fault := functions.refuses("b", side.kind):
                raise FaultError(f"{word} {fault}")
        return Value("b")

    def negation(self) -> Value:
        if self.take("NOT"):
            if fault := functions.refuses("b", self.negation().kind):
                raise FaultError(f"NOT {fault}")
            return Value("b")
        return self.comparison()

    def comparison(self) -> Value:
        left = self.sum()
        sign = self.peek()
        if self.take(*_COMPARE, "LIKE"):
            self.compare(left, sign, self.sum())
            return Value("b")
        if self.take("IN"):
            self.expect("(")
            while True:
                self.compare(left, "=", self.sum())
                if not self.take(","):
                    break
            self.expect(")")
            return Value("b")
        return left

    def compare(self, left: Value, sign: str, right: Value) -> None:
        if {left.kind, right.kind} in ({"n", "s"}, {"b", "s"}, {"b", "n"}, {"b", "f"}):
            raise FaultError(f"{sign} compares {functions.CALLED[left.kind]} with {functions.CALLED[right.kind]}")
        if sign.upper() == "LIKE" and right.kind == "s" and (fault := functions.text("l", right.text or "")):
            raise FaultError(f"LIKE {fault}")
        if "z" in (left.kind, right.kind):
            raise FaultError(f"{sign} null() is never true; write isnull() or isnotnull()")
        if right.kind == "s" and right.text is not None and TOKEN not in right.text:
            if sign in ("<", ">", "<=", ">=") and re.fullmatch(r"-?\d+(?:\.\d+)?", right.text):
                raise FaultError(
                    f'{sign}"{right.text}" compares texts letter by letter; write {right.text} without quotes'
                )
            if sign in ("<", ">", "<=", ">=") and re.fullmatch(r"[-+@]\d*[a-z@]+\d*", right.text):
                raise FaultError(
                    f'{sign}"{right.text}" compares letter by letter; write relative_time(now(), "{right.text}")'
                )
            if sign in ("=", "==", "!=") and right.text != "*" and re.search(r"^\*|\*$", right.text):
                raise FaultError(f'{sign}"{right.text}" compares with the star itself; use like() with % or match()')
            if sign.upper() != "LIKE" and left.kind == "f" and left.text:
                self.used.compared.append((left.text, right.text))

    def sum(self) -> Value:
        left = self.product()
        while self.peek() in ("+", "-", "."):
            sign = self.peek()
            self.at += 1
            left = self.calculated(left, sign, self.product())
        return left

    def product(self) -> Value:
        left = self.unary()
        while self.peek() in ("*", "/", "%"):
            sign = self.peek()
            self.at += 1
            right = self.unary()
            if sign in "/%" and right.kind == "n" and right.text is not None and not float(right.text):
                raise FaultError(f"{sign} {right.text} is null for every event")
            left = self.calculated(left, sign, right)
        return left

    def calculated(self, left: Value, sign: str, right: Value) -> Value:
        kinds = {left.kind, right.kind}
        if sign == ".":
            if "b" in kinds:
                raise FaultError(". puts texts together, not a condition; give it to if() or tostring()")
            return Value("s")
        if "b" in kinds or (sign != "+" and "s" in kinds) or kinds == {"n", "s"}:
            wanted = "two numbers or two texts" if sign == "+" else "numbers"
            wrong = "b" if "b" in kinds else "s"
            raise FaultError(f"{sign} takes {wanted}, not {functions.CALLED[wrong]}; . puts texts together")
        return Value("s" if sign == "+" and "s" in kinds else "n" if sign != "+" or kinds == {"n"} else "f")

    def unary(self) -> Value:
        if self.take("-", "+"):
            if fault := functions.refuses("n", self.unary().kind):
                raise FaultError(f"a sign {fault}")
            return Value("n")
        return self.primary()

    def primary(self) -> Value:
        if self.at >= len(self.tokens):
            raise FaultError("the expression ends where a value is due")
        kind, text = self.tokens[self.at]
        self.at += 1
        following = self.peek()
        if kind == "string":
            return Value("s", unquoted(text))
        if kind == "number":
            return Value("n", text)
        if kind == "field":
            self.used.fields.append(text[1:-1])
            return Value("f", text[1:-1])
        if kind == "word" and (text.upper() not in _WORDS or (text.upper() in ("IN", "LIKE") and following == "(")):
            if self.take("("):
                return self.call(text)
            if text.lower() in _CONSTANTS:
                raise FaultError(f"{text} is a field's name there; write {text.lower()}()")
            if text not in (TOKEN, SUBSEARCH):
                self.used.fields.append(text)
            return Value("x" if text in (TOKEN, SUBSEARCH) else "f", text)
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        raise FaultError(f"{text!r} stands where a value is due")

    def call(self, name: str) -> Value:
        name = name.lower() if name in ("LIKE", "IN") else name
        if name not in functions.FUNCTIONS:
            raise FaultError(f"{name}() is no function")
        before = len(self.used.fields)
        given: list[Value] = []
        while self.peek() != ")":
            given.append(self.expression())
            if not self.take(","):
                break
            if self.peek() == ")":
                raise FaultError(f"{name}() ends with a comma")
        self.expect(")")
        functions.check(name, given, set(self.used.fields[before:]))
        if name == "in" and given[0].kind == "f" and given[0].text:
            self.used.compared += [(given[0].text, one.text) for one in given[1:] if one.kind == "s" and one.text]
        branches = {"if": given[1:], "case": given[1::2], "coalesce": given, "nullif": given[:1]}
        returned = functions.FUNCTIONS[name][3]
        return Value(
            functions.unified([one.kind for one in branches[name]])
            if name in branches
            else "f"
            if returned == "v"
            else returned
        )

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise FaultError(f"{self.peek() or 'the end'!r} stands where {sign!r} is due")


def expression(text: str) -> Used:
    """Return what an expression uses. Raises FaultError when it is not well-formed."""
    parser = _Parser(text)
    parser.used.kind = parser.expression().kind
    if parser.at < len(parser.tokens):
        raise FaultError(f"{parser.peek()!r} stands where an operator is due")
    return parser.used


def condition(text: str) -> Used:
    """Return what a condition uses. Raises FaultError when it is none: a field or a number is not true or false."""
    used = expression(text)
    if fault := functions.refuses("b", used.kind):
        raise FaultError(f"it {fault}")
    return used


def assignments(text: str) -> list[tuple[str, Used]]:
    """Return eval's assignments: each field that is made, and what it is made of. Raises FaultError."""
    parser = _Parser(text)
    made: list[tuple[str, Used]] = []
    while True:
        kind, name = parser.tokens[parser.at] if parser.at < len(parser.tokens) else ("", "")
        if kind not in ("word", "field", "target"):
            raise FaultError(f"{name or 'the end'!r} stands where a field's name is due")
        parser.at += 1
        if not parser.take("="):
            raise FaultError(f"{name} is not assigned: '=' is due, not {parser.peek()!r}")
        parser.used = Used()
        parser.used.kind = parser.expression().kind
        if parser.used.kind == "b":
            raise FaultError(
                f'{name} cannot be a condition: a field is a number or a text; give if(..., "true", "false")'
            )
        if kind == "target":
            parser.used.fields += re.findall(r"\{(\w[\w.]*)\}", name)
        made.append((name.strip("'"), parser.used))
        if not parser.take(","):
            break
    if parser.at < len(parser.tokens):
        raise FaultError(f"{parser.peek()!r} stands where an operator or a comma is due")
    return made
