"""make bench: what a question costs on the standing lab, in one run; writes bench/results.json.

`results` is a list of {name, design, unit, median, p95, n}; `ratios` divides medians of the same run, for machines
are too noisy to compare figures of two. The scripted model's own few milliseconds are in every figure.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import lab  # noqa: E402  (scripts/ is no package; found by the line above)

QUESTION = "What was the root cause of the September incident?"
ON_AGENT, FROM_HERE = 50, 20


def on_agent() -> dict[str, Any]:
    """The question put to the service's socket, measured on the agent's machine."""
    program = (HERE / "ask_latency.py").read_text(encoding="utf-8")
    command = lab.ssh("agent", "python3", "-", "--socket", lab.SOCKET, "-n", str(ON_AGENT), "--json")
    done = subprocess.run([*command, "--name", "ask"], input=program, text=True, capture_output=True, check=False)
    if done.returncode:
        lab.fail(f"the agent's machine measured nothing: {done.stderr.strip() or 'no message'}", 1)
    result: dict[str, Any] = json.loads(done.stdout)
    return result | {"design": "socket, on the agent's machine"}


def from_here() -> dict[str, Any]:
    """The same question from the control node: SSH, a fresh client there, the service."""
    times = []
    for _ in range(FROM_HERE + 1):
        began = time.perf_counter()
        done = lab.ask(QUESTION, "--json")
        times.append((time.perf_counter() - began) * 1000)
        if done.returncode:
            lab.fail(f"the agent gave no answer: {done.stderr.strip()}", 1)
    times = sorted(times[1:])  # the first opens the SSH connection
    return {
        "name": "ask",
        "design": "make ask's way, from the control node",
        "unit": "ms",
        "median": round(statistics.median(times), 1),
        "p95": round(times[math.ceil(0.95 * len(times)) - 1], 1),
        "n": len(times),
    }


def main() -> None:
    """Measure, print, write."""
    lab.need_lab()
    here, there = on_agent(), from_here()
    ratios = {"control node / agent's machine": round(there["median"] / here["median"], 2)}
    for result in (here, there):
        print(f"{result['name']:<6} {result['design']:<40} median {result['median']} ms, p95 {result['p95']} ms")
    (HERE / "results.json").write_text(json.dumps({"results": [here, there], "ratios": ratios}, indent=1) + "\n")
    print(f"written to {HERE / 'results.json'}; ratios: {ratios}")


if __name__ == "__main__":
    main()
