"""From packets to frames: the first of its kind at once, its repetitions counted, a flood as a few numbers.

In each window (seconds from a flow's first packet) a flow gives one frame at once, and at its end one more with what
came since. Beyond MOST kinds of one verdict at the same time, packets are counted by where they came from and, beyond
MOST of those, by the rule alone: whatever a guest sends, the number of frames stays bounded. No I/O happens here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glasslab_witness.packets import Packet

MOST = {"allowed": 256, "denied": 64}
Key = tuple[Any, ...]
Fields = dict[str, Any]

_NAMES = ("verdict", "flow", "in", "out", "source_mac", "source", "destination", "destination_port", "protocol")


class Aggregator:
    """What is being counted at the moment. `state` and `restore` let another process go on with it."""

    def __init__(self, window: float) -> None:
        """`window` in seconds."""
        self.window = window
        self._open: dict[Key, Fields] = {}
        self._kinds = dict.fromkeys(MOST, 0)

    def add(self, packet: Packet) -> Fields | None:
        """Take a packet in; return the fields of a frame to record now, or None when it is only counted."""
        key = _key(packet)
        entry = self._open.get(key)
        if entry is None and self._kinds[packet.verdict] >= MOST[packet.verdict]:
            return self._count(packet)
        if entry is not None:
            self._add_to(entry, packet)
            return None
        self._kinds[packet.verdict] += 1
        self._open[key] = {"since": packet.time, "count": 0, "kind": True}
        return _fields(key, packet.source_port, 1, packet.time, packet.time)

    def due(self, now: float, *, all_of_it: bool = False) -> list[Fields]:
        """Return the fields of the frames whose window has ended (`all_of_it`: also of the others)."""
        frames = []
        for key, entry in list(self._open.items()):
            # A clock that was set back must not keep a window open for as long.
            if not all_of_it and abs(now - entry["since"]) < self.window:
                continue
            if entry["count"]:
                frames.append(_fields(key, entry["port"], entry["count"], entry["first"], entry["last"]))
                self._open[key] = {"since": now, "count": 0, "kind": entry["kind"]}
            else:
                del self._open[key]
                if entry["kind"]:
                    self._kinds[key[0]] -= 1
        return frames

    def state(self) -> list[Any]:
        """Return what is being counted, as JSON takes it."""
        return [[list(key), entry] for key, entry in self._open.items()]

    def restore(self, state: list[Any]) -> None:
        """Go on with what `state` returned."""
        self._open = {tuple(key): dict(entry) for key, entry in state}
        for key, entry in self._open.items():
            self._kinds[key[0]] += bool(entry["kind"])

    def _count(self, packet: Packet) -> None:
        """Count a packet of one kind too many; of those there is no frame before the window ends."""
        exact = _key(packet)
        for kept in (6, 2):
            key = exact[:kept] + (None,) * (len(exact) - kept)
            entry = self._open.get(key)
            if entry is None and (kept == 2 or len(self._open) < 2 * sum(MOST.values())):
                entry = self._open[key] = {"since": packet.time, "count": 0, "kind": False}
            if entry is not None:
                self._add_to(entry, packet)
                return

    @staticmethod
    def _add_to(entry: Fields, packet: Packet) -> None:
        if not entry["count"]:
            entry |= {"first": packet.time, "port": packet.source_port}
        elif entry["port"] != packet.source_port:
            entry["port"] = None
        entry["last"] = packet.time
        entry["count"] += 1


def _key(packet: Packet) -> Key:
    return (
        packet.verdict,
        packet.flow,
        packet.entered,
        packet.left,
        packet.source_mac,
        packet.source,
        packet.destination,
        packet.destination_port,
        packet.protocol,
    )


def _fields(key: Key, port: int | None, count: int, first: float, last: float) -> Fields:
    named: Mapping[str, Any] = dict(zip(_NAMES, key, strict=True))
    return {**named, "source_port": port, "count": count, "first": first, "last": last}
