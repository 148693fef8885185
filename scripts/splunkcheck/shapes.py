"""The shape of a Dashboard Studio definition: which of its parts are objects, lists and texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_CALLED: Final[dict[type, str]] = {dict: "object", list: "list", str: "text", bool: "boolean", int: "whole number"}
_TOKEN: Final = {"token": str, "value": str, "key": str}
_OPTIONS: Final[dict[str, Any]] = {"queryParameters": {"*": str}, "tokens": [_TOKEN]}
_EACH: Final[dict[str, Any]] = {
    "type": str, "title": str, "description": str, "name": str, "options": _OPTIONS, "dataSources": {"*": str},
    "context": dict, "containerOptions": dict, "meta": dict, "showLastUpdated": bool, "showProgressBar": bool,
    "hideWhenNoData": bool, "eventHandlers": [{"type": str, "options": _OPTIONS, "fields": list}],
}  # fmt: skip
# A part's shape: a type, an object's keys with theirs (* for any other key), or of a list the shape of each item.
DEFINITION: Final[dict[str, Any]] = {
    "title": str,
    "description": str,
    "inputs": {"*": _EACH},
    "dataSources": {"*": _EACH},
    "visualizations": {"*": _EACH},
    "defaults": {
        "dataSources": {"*": {"options": _OPTIONS}},
        "visualizations": {"*": {"options": dict}},
        "tokens": {"default": {"*": {"value": str}}},
    },
    "layout": {
        "type": str,
        "options": dict,
        "globalInputs": [str],
        "structure": [{"item": str, "type": str, "position": {"*": int}}],
        "tabs": dict,
        "layoutDefinitions": dict,
    },
    "expressions": dict,
    "applicationProperties": dict,
}


def faults(value: Any, shape: Any = DEFINITION, at: str = "") -> Iterator[str]:
    """Say which parts of a value have another shape, each by its place."""
    kind: type = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        yield f"{at or 'the definition'} is no {_CALLED[kind]}: {str(value)[:40]!r}"
    elif isinstance(shape, dict) and isinstance(value, dict):
        for key, inner in value.items():
            if key in shape or "*" in shape:
                yield from faults(inner, shape.get(key, shape.get("*")), f"{at}.{key}" if at else key)
    elif isinstance(shape, list) and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from faults(inner, shape[0], f"{at}.{number}")
