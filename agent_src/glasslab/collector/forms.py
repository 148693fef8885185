"""What a client sends, taken apart: a request's target, and the fields of a query or a form."""

from __future__ import annotations

from urllib.parse import parse_qsl


def split(target: str) -> tuple[str, str]:
    """Return path and query of a request's target. (urlsplit would raise for some that a client can send.)"""
    path, _, query = target.partition("?")
    return path.rstrip("/"), query


def form(text: str) -> dict[str, str]:
    """Return the fields of a query or form; none when it has more than 50."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=50))
    except ValueError:
        return {}
