"""Measure how long a running service (`glasslab serve`) takes to answer a question put to its socket.

    bench/ask_latency.py --socket /run/glasslab-agent/agent.sock [-n 50] [--question TEXT] [--name NAME] [--json]

With the scripted model this is everything but a model's own latency. Prints median and p95 in milliseconds, or with
--json one object {name, design, unit, median, p95, n} as bench/results.json holds them.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import statistics
import sys
import time
from pathlib import Path

QUESTION = "What was the root cause of the September incident?"


def ask(path: Path, question: str) -> float:
    """Put one question to the service; return the milliseconds until its answer. Raises RuntimeError without one."""
    began = time.perf_counter()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.connect(str(path))
        service.sendall(json.dumps({"question": question}).encode() + b"\n")
        with service.makefile("rb") as lines:
            line = lines.readline()
    milliseconds = (time.perf_counter() - began) * 1000
    result = json.loads(line or b"{}")
    if result.get("status") != "answered":
        raise RuntimeError(result.get("problem") or f"no answer from {path}")
    return milliseconds


def main() -> int:
    """Run the measurement; return 0, or 1 when a question was not answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--socket",
        type=Path,
        required=True,
        metavar="PATH",
        help="the service's socket",
    )
    parser.add_argument(
        "-n",
        type=int,
        default=50,
        help="questions to measure (default 50), after 3 that warm up",
    )
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--name", default="ask", help="name of the measurement in the JSON object")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        first = ask(options.socket, options.question)
        for _ in range(2):
            ask(options.socket, options.question)
        times = sorted(ask(options.socket, options.question) for _ in range(max(2, options.n)))
    except (OSError, RuntimeError) as error:
        print(f"ask_latency: {error}", file=sys.stderr)
        return 1
    median, p95 = (
        statistics.median(times),
        times[math.ceil(0.95 * len(times)) - 1],  # nearest rank: the value that 95 of 100 do not exceed
    )
    if options.json:
        result = {
            "name": options.name,
            "design": "service",
            "unit": "ms",
            "median": round(median, 1),
        }
        print(json.dumps({**result, "p95": round(p95, 1), "n": len(times)}))
    else:
        print(f"first {first:.1f} ms; median {median:.1f} ms, p95 {p95:.1f} ms over {len(times)} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
