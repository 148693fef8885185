"""Whether a failed call is made again, and how long to wait before: pure functions, the waiting is the loop's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 8.0
# A server that asks for more has a quota to be waited for, not a moment: that is for the person who asks to decide.
MOST_RETRY_AFTER: Final = 60.0


class Failure(Protocol):
    """What is needed of a failed call: whether the same one may work later, and when the other side says so."""

    again: bool
    retry_after: float | None  # seconds


def wait_before(
    attempt: int, retries: int, error: Failure, seconds_left: float | None, chance: float | None = None
) -> float | None:
    """Return the seconds to wait after failed attempt number `attempt` (from 1), or None: it is not made again.

    Twice as long each time, less up to half of it by chance, so that many who failed at once do not come back at
    once; at least as long as the server asked for. `chance` (0 to 1) is for tests.
    """
    if not error.again or attempt > retries:
        return None
    wait = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (attempt - 1))
    wait *= 1 - (random.random() if chance is None else chance) / 2  # noqa: S311 - who guesses how long we wait gains nothing
    if error.retry_after is not None:
        if error.retry_after > MOST_RETRY_AFTER:
            return None
        wait = max(wait, error.retry_after)
    return None if seconds_left is not None and wait >= seconds_left else round(wait, 3)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait (`Retry-After`, a number or a date; `retry-after-ms`), or None."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if text.replace(".", "", 1).isdecimal() and text.isascii() and len(text) <= 15:
            return float(text) * scale
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, ((when.replace(tzinfo=when.tzinfo or UTC)) - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
