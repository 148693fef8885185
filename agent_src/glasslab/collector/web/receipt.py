"""What a receipt's page shows: its probes by place and target, what was expected of them, and what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from glasslab.views.happened import visible

MOST_PROBES: Final = 5000
MOST_GROUPS: Final = 300


@dataclass(frozen=True)
class Group:
    """The probes of one place at one target: `tried` says which, `seen` how many had which outcome."""

    place: str
    target: str
    tried: str
    expected: str
    seen: str
    as_expected: bool


def groups(receipt: object) -> list[Group]:
    """Return the probes of a receipt by place, target and expectation; [] when it holds none."""
    probes = receipt.get("probes") if isinstance(receipt, dict) else None
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for probe in probes[:MOST_PROBES] if isinstance(probes, list) else []:
        if isinstance(probe, dict):
            key = tuple(visible(probe.get(name), 40) for name in ("place", "target", "expected"))
            found.setdefault((key[0], key[1], key[2]), []).append(probe)
    return [_group(*key, probes) for key, probes in list(found.items())[:MOST_GROUPS]]


def _group(place: str, target: str, expected: str, probes: list[Mapping[str, Any]]) -> Group:
    ports: dict[str, list[str]] = {}
    for probe in probes:
        numbers = ports.setdefault(visible(probe.get("protocol"), 12), [])
        port = visible(probe.get("port"), 6) if probe.get("port") is not None else ""
        if port and port not in numbers:
            numbers.append(port)
    tried = ", ".join(" ".join([protocol, *numbers[:12]]) for protocol, numbers in list(ports.items())[:6])
    outcomes = Counter(visible(probe.get("observed"), 20) for probe in probes)
    seen = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    return Group(place, target, tried, expected, seen, set(outcomes) == {expected})
