"""How long what rules alone close is open after somebody has flushed them: the watcher's time, over many events.

    LAB_ID=... .venv/bin/python bench/windows.py [-n 10] [--json]

On a standing lab of one's own, which it attacks: the prober of the isolation tests knocks 500 times a second while
rules are taken away and put back. Prints for each event median, p95 and the longest, in ms; the bound is 100 ms. In
between the watcher gathers strength: of many events at once it answers 20, then two a second, while it holds the
guests' ports shut.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("LAB_ID", "glasslab")
for folder in ("scripts", "tests/lab", "tests/nspawn", "tests/isolation"):
    sys.path.insert(0, str(ROOT / folder))

import lab  # noqa: E402  (these folders are no packages; found by the lines above)
from isolationtools import LOADER, pve, wait_for  # noqa: E402  (as above)
from prober import probing  # noqa: E402  (as above)

BOUND_MS = 100
REST = 1.0  # seconds
EVENTS = {
    "nft flush ruleset": ("nft flush ruleset", "true"),
    "iptables -F": ("iptables -F", "true"),
    "iptables -I INPUT -j ACCEPT": ("iptables -I INPUT -j ACCEPT", "iptables -D INPUT -j ACCEPT"),
    "a whole rule set restored": ("iptables-save | grep -v GLASSLAB | iptables-restore", "true"),
    "the bridge's table deleted": ("nft delete table bridge glasslab", "true"),
}


def measure(times: int) -> list[dict[str, Any]]:
    """One result an event and layer, as bench/results.json holds them."""
    with probing(lab.LAB_ID) as probe:
        for number in range(times):
            for name, (order, undo) in EVENTS.items():
                probe.phase(f"{name}#{number}")
                pve(order)
                wait_for("the walls stand again", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n")
                time.sleep(0.05)
                probe.phase(f"between#{number}, {name}")
                pve(undo)
                time.sleep(REST)
    found: dict[tuple[str, str], list[float]] = {}
    forwarded = 0
    for phase, report in probe.reports.items():
        for one in report["classes"].values():
            forwarded += one["through"] if one["layer"] == "forwarding" else 0
        if not phase.startswith("between#"):
            for layer in ("input", "bridge"):
                widths = [one["window_ms"] for one in report["classes"].values() if one["layer"] == layer]
                found.setdefault((phase.partition("#")[0], layer), []).append(max(widths))
    if forwarded:
        raise RuntimeError(f"{forwarded} packets were forwarded to denied destinations")
    return [result(name, layer, sorted(values)) for (name, layer), values in found.items() if max(values)]


def result(name: str, layer: str, values: list[float]) -> dict[str, Any]:
    """One line; values in order."""
    figures = {"median": round(statistics.median(values), 1), "p95": values[-1 - len(values) // 20], "max": values[-1]}
    return {"name": "open window", "design": f"{layer}, {name}", "unit": "ms", **figures, "n": len(values)}


def main() -> int:
    """Measure and print; 1 when something was forwarded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10, help="times each event happens (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    lab.need_lab()
    try:
        results = measure(options.n)
    except (AssertionError, RuntimeError) as error:
        print(f"windows: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"results": results}))
        return 0
    for one in results:
        print(
            f"{one['design']:<40} median {one['median']} ms, p95 {one['p95']} ms, longest {one['max']} ms, n {one['n']}"
        )
    beyond = sum(one["max"] > BOUND_MS for one in results)
    print(f"forwarded: 0 packets; events that were beyond {BOUND_MS} ms at least once: {beyond} of {len(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
