"""Tool arguments as a model sends them: strict JSON, an object, within bounds. Their schema: schemas.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from glasslab.guardrails import visible_line

MAX_CHARACTERS: Final = 65_536
MAX_DEPTH: Final = 32
MAX_INTEGER: Final = 1 << 63
MAX_KEY: Final = 1_000  # characters of a name in an object
_SHOWN: Final = 120


class ArgumentError(ValueError):
    """Arguments that cannot be used. `reason` is a fixed code; the text tells the model what to do about it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def where(path: Sequence[str | int]) -> str:
    """Return the place of a value for a message, `argument filter/tags/0: `; nothing for the whole of them."""
    return f"argument {visible_line('/'.join(str(part) for part in path))[:_SHOWN]}: " if path else ""


def parse(text: str) -> dict[str, Any]:
    """Return the arguments in a text. An empty text counts as `{}`: it is what models send for a tool without any.

    Raises ArgumentError for what json.loads lets through or fails on: NaN, infinity, duplicate keys, oversized
    integers, deep nesting, lone surrogates, a value that is no object, a text beyond MAX_CHARACTERS. Its text names
    the argument, wherever there is one to name.
    """
    if len(text) > MAX_CHARACTERS:
        raise ArgumentError("too_long", f"the arguments have {len(text)} characters; at most {MAX_CHARACTERS}")
    if not text.strip():
        return {}
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError:
        raise ArgumentError("too_deep", f"the arguments nest deeper than {MAX_DEPTH} levels; flatten them") from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at character {error.pos}"
        raise ArgumentError("invalid_json", f"the arguments are not valid JSON ({place}); send one object") from None
    _check(value, ())
    if not isinstance(value, dict):
        raise ArgumentError("not_an_object", f"the arguments are a JSON {_kind(value)}; send one object")
    return value


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands in the parsed value for what cannot be used: only when all is parsed it is known where that is."""

    reason: str
    text: str
    key: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            return _Refused("duplicate_key", "it is given twice; send it once", name)
        result[name] = value
    return result


def _constant(name: str) -> _Refused:
    return _Refused("not_a_number", f"{name} is no JSON number; send a finite one")


def _integer(digits: str) -> int | _Refused:
    # Counted before it is converted: Python refuses to convert thousands of digits, with an error that says nothing.
    if len(digits) > 20 or not -MAX_INTEGER <= int(digits) < MAX_INTEGER:
        return _Refused("integer_too_large", f"an integer of {len(digits)} characters; at most 64 bits")
    return int(digits)


def _float(digits: str) -> float | _Refused:
    value = float(digits)
    if not math.isfinite(value):
        return _Refused("not_a_number", f"{digits[:40]} is too large for a number; send a finite one")
    return value


def _check(value: object, path: tuple[str | int, ...]) -> None:
    if len(path) >= MAX_DEPTH and isinstance(value, dict | list | _Refused):
        raise ArgumentError("too_deep", f"{where(path)}nests deeper than {MAX_DEPTH} levels; flatten it")
    if isinstance(value, _Refused):
        place = path if value.key is None else (*path, value.key)
        raise ArgumentError(value.reason, f"{where(place)}{value.text}")
    if isinstance(value, dict):
        for name, item in value.items():
            if len(name) > MAX_KEY:
                raise ArgumentError("too_long", f"{where((*path, name))}its name is too long; at most {MAX_KEY}")
            _check_text(name, (*path, name))
            _check(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check(item, (*path, number))
    elif isinstance(value, str):
        _check_text(value, path)


def _check_text(text: str, path: tuple[str | int, ...]) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentError("lone_surrogate", f"{where(path)}a text is not valid Unicode (lone surrogate)") from None


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
