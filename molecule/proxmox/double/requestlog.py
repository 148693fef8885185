"""Every request, one JSON line each: number, method, path, parameters without secrets, user, status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MASK = "***"
SECRETS = frozenset(
    ("password", "new-password", "confirmation-password", "cipassword", "ticket", "vncticket", "otp", "secret")
)


def masked(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as they may be written down."""
    return {key: MASK if key in SECRETS else value for key, value in parameters.items()}


class RequestLog:
    """Appends to a file that a test reads while the double runs."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self.number = 0

    def next_number(self) -> int:
        """The number of the request that has just come in, counted from 1."""
        self.number += 1
        return self.number

    def write(self, **entry: Any) -> None:
        """One line, at once."""
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Nothing is written after this."""
        self._file.close()
