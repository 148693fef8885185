"""The one way from a value into a page: HTML is escaped, and what hides from the eye is shown as an escape."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glasslab.guardrails import visible_text
from glasslab.views.happened import visible

STATIC: Final = Path(__file__).with_name("static")


def finalize(value: Any) -> Any:
    """Return what an expression of a template puts into the page: nothing in a text stays invisible."""
    return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(seconds: float) -> str:
    """Return a time as people read it, in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def iso(seconds: float) -> str:
    """Return a time as machines read it."""
    return moment(seconds).replace(" ", "T") + "Z"


def part(text: object) -> str:
    """Return a text as one part of a path, or as a value in a query."""
    return quote(str(text), safe="")


def pretty(value: object) -> str:
    """Return a value as JSON on lines of its own."""
    return json.dumps(value, indent=1, ensure_ascii=False)


PAGES: Final = Environment(
    loader=PackageLoader("glasslab.collector.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=finalize,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.filters |= {"moment": moment, "iso": iso, "part": part, "pretty": pretty, "clip": visible}


def page(template: str, **values: Any) -> bytes:
    """Return a page."""
    return PAGES.get_template(template).render(**values).encode("utf-8", "backslashreplace")
