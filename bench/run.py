"""make bench: what a question and the packet rules cost, in one run on the standing lab; writes bench/results.json.

`results` is a list of {name, design, unit, median, p95, n}; `ratios` divides medians of the same run, for machines
are too noisy to compare figures of two. The scripted model's own few milliseconds are in every figure.
"""

from __future__ import annotations

import json
import math
import shlex
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
HANDSHAKES, ROUNDS = 20, 5
MODEL = ("model.glasslab.test", "203.0.113.10", 443)


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
    return figures("ask", "make ask's way, from the control node", times[1:])  # the first opens the SSH connection


def figures(name: str, design: str, times: list[float]) -> dict[str, Any]:
    """A result of milliseconds."""
    times = sorted(times)
    p95 = round(times[math.ceil(0.95 * len(times)) - 1], 1)
    median = round(statistics.median(times), 1)
    return {"name": name, "design": design, "unit": "ms", "median": median, "p95": p95, "n": len(times)}


def handshakes() -> tuple[dict[str, Any], dict[str, Any]]:
    """A verified TLS connection to the model: from the hypervisor, and by its proxy from the agent; by turns."""
    program = (HERE / "handshake_latency.py").read_text(encoding="utf-8")
    name, address, port = MODEL
    authority = (lab.STATE / "ca/ca.crt").read_text(encoding="utf-8")
    order = json.dumps({"address": address, "port": port, "name": name, "ca": authority, "n": HANDSHAKES})
    times: dict[str, list[float]] = {"pve": [], "agent": []}
    for machine in ("pve", "agent") * ROUNDS:
        command = lab.ssh(machine, "python3", "-", shlex.quote(order))
        done = subprocess.run(command, input=program, text=True, capture_output=True, check=False)
        if done.returncode:
            lab.fail(f"{machine} measured no handshake: {done.stderr.strip() or 'no message'}", 1)
        times[machine] += json.loads(done.stdout)
    direct = figures("handshake", "direct, from the hypervisor", times["pve"])
    return direct, figures("handshake", "by the proxy, from the agent's machine", times["agent"])


def rules() -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The packet rules of 50 guests, in namespaces of their own: results and ratios."""
    command = [sys.executable, str(HERE / "rules.py"), "--json"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        lab.fail(f"the packet rules were not measured: {done.stderr.strip() or 'no message'}", 1)
    found = json.loads(done.stdout)
    return found["results"], found["ratios"]


def collector() -> list[dict[str, Any]]:
    """What the embedded collector bears, on loopback: events a second, and its page over a full store."""
    command = [sys.executable, str(HERE / "collector.py"), "--json"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        lab.fail(f"the collector was not measured: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", 1)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def scripted() -> dict[str, Any]:
    """A reply of the scripted model on loopback, over one connection: what it adds to every figure of a question."""
    import requests

    from glasslab.scripted import ScriptedServer, load_script

    server, times = ScriptedServer(load_script("sample"), "127.0.0.1", 0), []
    server.start()
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(ON_AGENT + 1):
            began = time.perf_counter()
            place = f"http://127.0.0.1:{server.port}/v1/chat/completions"
            session.post(place, json={"messages": []}, timeout=5).raise_for_status()
            times.append((time.perf_counter() - began) * 1000)
    server.stop(seconds=0)
    return figures("scripted", "a reply of the scripted model, loopback", times[1:])


def main() -> None:
    """Measure, print, write."""
    lab.need_lab()
    here, there = on_agent(), from_here()
    direct, proxied = handshakes()
    of_rules, ratios_of_rules = rules()
    ratios = {
        "control node / agent's machine": round(there["median"] / here["median"], 2),
        "handshake by the proxy / direct": round(proxied["median"] / direct["median"], 2),
        **ratios_of_rules,
    }
    results = [here, there, direct, proxied, scripted(), *of_rules, *collector()]
    for one in results:
        print(f"{one['name']:<9} {one['design']:<48} median {one['median']} {one['unit']}, p95 {one['p95']}")
    (HERE / "results.json").write_text(json.dumps({"results": results, "ratios": ratios}, indent=1) + "\n")
    print(f"written to {HERE / 'results.json'}; ratios: {ratios}")


if __name__ == "__main__":
    main()
