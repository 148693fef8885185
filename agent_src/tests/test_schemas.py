"""A tool's schema: what it refuses, whatever it is itself, within a second."""

import socket
from typing import Any

import pytest

from glasslab.arguments import ArgumentError
from glasslab.schemas import validate

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NESTED = {
    "type": "object",
    "properties": {
        "filter": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
    },
}
ANY_OF = {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
COMPOSED = {"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"properties": {"b": {}}}}}


@pytest.mark.parametrize(
    ("arguments", "schema", "reason", "words"),
    [
        ({}, SCHEMA, "schema", "'path' is a required property"),
        ({"path": 1}, SCHEMA, "schema", "argument path: 1 is not of type 'string'"),
        ({"path": None}, SCHEMA, "schema", "argument path: None is not of type"),
        ({"path": "a", "more": 1}, SCHEMA, "unknown_argument", "'more'; known arguments: path"),
        ({"path": "a", "more": 1}, {**SCHEMA, "additionalProperties": False}, "schema", "'more'"),
        ({"filter": {"tags": ["a", 7]}}, NESTED, "schema", "argument filter/tags/1: 7 is not of type"),
        ({"n": "x"}, ANY_OF, "schema", "argument n: 'x' is not valid under"),
        ({"a": 1, "c": 1}, COMPOSED, "schema", "'c'"),
        ({"n": True}, {"properties": {"n": {"type": "integer"}}}, "schema", "argument n: True is not of type"),
        ({"e": "c"}, {"properties": {"e": {"enum": ["a", "b"]}}}, "schema", "argument e: 'c' is not one of"),
        ({"path": "x" * 90_000}, {"properties": {"path": {"maxLength": 5}}}, "schema", "x' is too long (maxLength: 5"),
        ({"path": "x" * 90_000}, {"properties": {"path": {"maxLength": 5}}}, "schema", "argument path: 'xxx"),
        ({"path": 7}, {"properties": {"path": {"maximum": 6.5}}}, "schema", "(maximum: 6.5)"),
        ({"path": "a"}, {"$ref": "http://127.0.0.1:1/schema.json", "properties": {"path": {}}}, "schema_unusable", ""),
        ({"path": "a"}, {"$ref": "#"}, "schema_unusable", "RecursionError"),
        ({"path": "a"}, {"type": "nonsense", "properties": {"path": {}}}, "schema_unusable", ""),
        ({"path": "a"}, {"properties": None}, "schema_unusable", "no JSON object"),
        ({"path": 1}, {**SCHEMA, "$schema": ["x"]}, "schema", "argument path: 1 is not of type"),
        ({"path": "a"}, [], "schema_unusable", "no JSON object"),
        ({"path": "a"}, {"properties": {"path": {"pattern": "(a+)+$"}}}, "schema_unusable", "may take for ever"),
        ({"a" * 60: "a"}, {"patternProperties": {"a*a*a*a*c": {}}}, "schema_unusable", "may take for ever"),
        ({"path": "a"}, {"properties": {"path": {"pattern": "("}}}, "schema_unusable", "no regular expression"),
        ({"path": "a"}, {"properties": {"path": {"pattern": "x" * 9999}}}, "schema_unusable", "may take for ever"),
        ({"path": " " * 20_000}, {"properties": {"path": {"pattern": "\\s+x"}}}, "schema", "argument path: has 20000"),
        ({"path": "b"}, {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"path": {"const": "a"}}},
         "schema", "argument path: 'a' was expected"),
    ],
)  # fmt: skip
def test_what_the_schema_refuses(arguments: dict[str, Any], schema: Any, reason: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        validate(arguments, schema)
    assert caught.value.reason == reason
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        ({"path": "a"}, SCHEMA),
        ({"path": "a", "more": 1}, {**SCHEMA, "additionalProperties": True}),
        ({"a": 1, "b": 2}, COMPOSED),
        ({"n": None}, ANY_OF),
        ({"x-1": 1}, {"patternProperties": {"^x-": {"type": "integer"}}}),
        ({"day": "2026-09-01"}, {"properties": {"day": {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}}),
        ({"path": "a"}, {"properties": {"path": {}, "self": {"$ref": "#"}}}),
        ({}, {"type": "object"}),
    ],
)
def test_what_the_schema_takes(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    validate(arguments, schema)


def test_a_reference_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        schema = {"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"}
        listener.setblocking(False)
        with pytest.raises(ArgumentError):
            validate({"path": "a"}, schema)
        with pytest.raises(BlockingIOError):
            listener.accept()
