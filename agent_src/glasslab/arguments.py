"""Tool arguments as a model sends them: strict JSON, an object, within bounds, and of the tool's schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

MAX_CHARACTERS: Final = 65_536
MAX_DEPTH: Final = 32
MAX_INTEGER: Final = 1 << 63


class ArgumentError(ValueError):
    """Arguments that cannot be used. `reason` is a fixed code; the text tells the model what to do about it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def parse(text: str) -> dict[str, Any]:
    """Return the arguments in a text. An empty text counts as `{}`: it is what models send for a tool without any.

    Raises ArgumentError for what json.loads lets through or fails on: NaN, infinity, duplicate keys, oversized
    integers, deep nesting, lone surrogates, a value that is no object, a text beyond MAX_CHARACTERS.
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
        where = f"{error.msg} at character {error.pos}"
        raise ArgumentError("invalid_json", f"the arguments are not valid JSON ({where}); send one object") from None
    if not isinstance(value, dict):
        raise ArgumentError("not_an_object", f"the arguments are a JSON {_kind(value)}; send one object")
    _check(value, 1)
    return value


def validate(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check arguments against a tool's input schema; names it does not know are refused unless it says otherwise.

    Raises ArgumentError. A reference in the schema is never fetched.
    """
    from jsonschema import Draft202012Validator
    from referencing import Registry

    properties = schema.get("properties", {})
    if "additionalProperties" not in schema and "patternProperties" not in schema:
        unknown = sorted(set(arguments) - set(properties))
        if unknown:
            known = ", ".join(sorted(properties)) or "none"
            raise ArgumentError("unknown_argument", f"unknown argument {unknown[0][:80]!r}; known arguments: {known}")
    try:
        error = next(iter(Draft202012Validator(schema, registry=Registry()).iter_errors(arguments)), None)
    except Exception as failure:  # a schema that the validator cannot follow must not end the session
        text = f"the tool's schema cannot be checked ({type(failure).__name__})"
        raise ArgumentError("schema_unusable", text) from None
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path)
        raise ArgumentError("schema", f"{f'argument {where}: ' if where else ''}{error.message[:300]}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ArgumentError("duplicate_key", f"the key {name[:80]!r} occurs twice in the arguments; send it once")
        result[name] = value
    return result


def _constant(name: str) -> NoReturn:
    raise ArgumentError("not_a_number", f"{name} is no JSON number; send a finite one")


def _integer(digits: str) -> int:
    # Counted before it is converted: Python refuses to convert thousands of digits, with an error that says nothing.
    if len(digits) > 20 or not -MAX_INTEGER <= int(digits) < MAX_INTEGER:
        raise ArgumentError("integer_too_large", f"an integer of {len(digits)} characters; at most 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ArgumentError("not_a_number", f"{digits[:40]} is too large for a number; send a finite one")
    return value


def _check(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ArgumentError("too_deep", f"the arguments nest deeper than {MAX_DEPTH} levels; flatten them")
    if isinstance(value, dict):
        for name, item in value.items():
            _check(name, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise ArgumentError("lone_surrogate", "a text in the arguments is not valid Unicode (lone surrogate)")


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
