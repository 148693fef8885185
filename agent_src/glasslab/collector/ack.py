"""Indexer acknowledgement: which POST of which channel is on disk, told once each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

MOST_CHANNELS: Final = 1000
MOST_PENDING: Final = 10_000
NEAR: Final = 0.8  # of the most, from which on it is said


class Acks:
    """Ids by token and channel, from 0. An id told once is forgotten, and so is everything at a restart, as in Splunk.

    The collector answers a POST only when its events are on disk, so an id that it knows is always true.
    """

    def __init__(self) -> None:
        """Start without channels."""
        self._lock = threading.Lock()
        self._next: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._pending: dict[tuple[str, str], set[int]] = {}

    def full(self, token: str, channel: str) -> bool:
        """Return whether a channel holds as many ids that nobody asked for as it may."""
        with self._lock:
            return len(self._pending.get((token, channel), ())) >= MOST_PENDING

    @property
    def near(self) -> bool:
        """Whether some channel comes near to being full."""
        with self._lock:
            return any(len(pending) >= NEAR * MOST_PENDING for pending in self._pending.values())

    def add(self, token: str, channel: str) -> int:
        """Return the id of a POST that is on disk."""
        key = (token, channel)
        with self._lock:
            number = self._next.get(key, 0)
            self._next[key] = number + 1
            self._next.move_to_end(key)
            self._pending.setdefault(key, set()).add(number)
            if len(self._next) > MOST_CHANNELS:  # the channel used longest ago goes
                oldest, _ = self._next.popitem(last=False)
                self._pending.pop(oldest, None)
            return number

    def tell(self, token: str, channel: str, ids: list[int]) -> dict[str, bool]:
        """Return for each id whether it is known to be on disk, and forget those told."""
        with self._lock:
            pending = self._pending.get((token, channel), set())
            told = {str(number): number in pending for number in ids}
            pending.difference_update(ids)
            return told
