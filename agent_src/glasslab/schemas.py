"""A tool's input schema, and arguments against it. Nothing is fetched, and nothing takes long, whatever was sent."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from glasslab.arguments import MAX_KEY, ArgumentError, where
from glasslab.patterns import longest_matched

_SHOWN: Final = 300
_ERRORS_READ: Final = 20
# With one of these the names of a schema are not all in its own `properties`.
_COMPOSED: Final = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
_SAYS_OF_OTHERS: Final = ("additionalProperties", "patternProperties", "unevaluatedProperties")


def validate(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check arguments against a tool's input schema; names it does not know are refused unless it says otherwise.

    Raises ArgumentError, whose text names the argument. A reference in the schema is never fetched.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry

    problem = schema_problem(schema)
    if problem is not None:
        raise ArgumentError("schema_unusable", f"the tool's schema cannot be checked: {problem}")
    named = schema.get("$schema")
    dialect = _bounded(validator_for({"$schema": str(named)} if named else {}, default=Draft202012Validator))
    schema = {name: value for name, value in schema.items() if name != "$schema"}  # a reference to it would change back
    if not any(word in schema for word in _SAYS_OF_OTHERS):
        if any(word in schema for word in _COMPOSED):
            schema["unevaluatedProperties"] = False
        else:
            _refuse_unknown(arguments, schema)
    try:
        made = dialect(schema, registry=Registry())
        error = best_match(islice(made.iter_errors(arguments), _ERRORS_READ))
    except Exception as failure:  # a schema that the validator cannot follow must not end the session
        text = f"the tool's schema cannot be checked ({type(failure).__name__})"
        raise ArgumentError("schema_unusable", text) from None
    if error is not None:
        raise ArgumentError("schema", f"{where(list(error.absolute_path))}{_said(error)}")


def _said(error: Any) -> str:
    """Return what is wrong: the value that it begins with is shortened, and the bound is named where there is one."""
    half = _SHOWN // 2
    text = error.message if len(error.message) <= _SHOWN else f"{error.message[:half]} [...] {error.message[-half:]}"
    bound = error.validator_value
    return f"{text} ({error.validator}: {bound})" if type(bound) in (int, float) else text


def schema_problem(schema: object) -> str | None:
    """Return why no arguments can be checked against a schema, or None."""
    if not isinstance(schema, Mapping):
        return "it is no JSON object"
    if not isinstance(schema.get("properties", {}), Mapping):
        return "its properties are no JSON object"
    for pattern, least in _patterns(schema):
        if (longest_matched(pattern) or 0) < least:
            return f"its pattern {pattern[:80]!r} may take for ever"
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError):
            return f"its pattern {pattern[:80]!r} is no regular expression"
    return None


def _refuse_unknown(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    properties = schema.get("properties", {})
    unknown = sorted(set(arguments) - set(properties))
    if unknown:
        known = ", ".join(sorted(properties)) or "none"
        raise ArgumentError("unknown_argument", f"unknown argument {unknown[0][:80]!r}; known arguments: {known}")


@functools.cache
def _bounded(dialect: Any) -> Any:
    """Return the dialect's validator, with a bound on the text that a pattern is tried on."""
    from jsonschema import ValidationError
    from jsonschema.validators import extend

    whole = dialect.VALIDATORS["pattern"]

    def pattern(validator: Any, wanted: str, instance: object, schema: Any) -> Iterator[Any]:
        most = longest_matched(wanted) or 0
        if isinstance(instance, str) and len(instance) > most:
            yield ValidationError(f"has {len(instance)} characters; at most {most} can be matched")
            return
        yield from whole(validator, wanted, instance, schema) or ()

    return extend(dialect, {"pattern": pattern})


def _patterns(schema: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the patterns of a schema, with the length of text that each has to be quick on: those of names see any."""
    waiting: list[Any] = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if isinstance(item.get("pattern"), str):
                yield item["pattern"], 1
            if isinstance(item.get("patternProperties"), Mapping):
                yield from ((name, MAX_KEY) for name in item["patternProperties"] if isinstance(name, str))
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
