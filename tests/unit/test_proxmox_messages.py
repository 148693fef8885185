"""Messages of the machine role and the playbooks are one line each, whatever their values are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("roles/machine/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")])
MESSAGES = ("fail_msg", "msg", "success_msg", "what")


def messages(part: Any, key: str = "") -> Iterator[str]:
    """Every message in a file of tasks."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from messages(value, name)
    elif isinstance(part, list):
        for value in part:
            yield from messages(value, key)
    elif isinstance(part, str) and key in MESSAGES:
        yield part


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_message_has_a_line_break_of_its_own(file: Path) -> None:
    texts = [
        re.sub(r"\{\{.*?\}\}", "value", text, flags=re.DOTALL) for text in messages(yaml.safe_load(file.read_text()))
    ]
    assert [text for text in texts if "\n" in text.strip()] == []
