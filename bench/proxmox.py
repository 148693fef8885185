"""What building and resetting cost: bench/proxmox.py [-n RUNS] [--template IMAGE] [--figures FILE...].

Embedded: the lab glbench on this machine, image and wheels cached. Emulated, with a finished image of the agent's
template (`make template TEMPLATE=agent SOURCE=qemu`): scripts/test_emulated.py, the agent in QEMU without hardware help
behind the Proxmox API's double. For each the seconds of: the full build; from making the guests to the first answer; a
second run; from the start of a reset to the first frame that the log has acknowledged, and to the first answer. Median
and p95 of the runs, in bench/proxmox.json, which is written after each run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LAB_ID = os.environ["LAB_ID"] = "glbench"
sys.path[:0] = [str(HERE.parent / "scripts"), str(HERE.parent / "tests" / "proxmox")]

import emulated  # noqa: E402  (found by the line above)
import lab  # noqa: E402  (it takes the lab's name from the environment)

WHAT = ("full build", "clone to answer", "second run", "reset to frame", "reset to answer")
LAB_PY = lab.ROOT / "roles" / "machine" / "files" / "nspawn" / "lab.py"
QUESTION = "What was the root cause of the September incident?"
Figures = dict[str, float]


def hardware() -> dict[str, Any]:
    """The machine that it was measured on."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = re.findall(r"model name\s*: (.*)", text)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else None,
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def run(words: list[str]) -> str:
    """What a command says; a failure ends the measuring."""
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(lab.ROOT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{lab.BIN}:{os.environ.get('PATH', '')}",
    }
    done = subprocess.run(
        words, cwd=lab.ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        lab.fail(f"nothing was measured: {' '.join(words)} ended with {done.returncode}: {said}", 1)
    return done.stdout


def play(*paths: str) -> str:
    """Run playbooks one after another; return what they say."""
    return "".join(run(["ansible-playbook", path]) for path in paths)


def clear() -> None:
    """No lab of this name."""
    run([sys.executable, str(LAB_PY), "destroy", "--lab-id", LAB_ID, "--force"])


def answer() -> None:
    """The sample question, answered."""
    done = lab.ask(QUESTION, "--json")
    if done.returncode:
        lab.fail(f"the agent gave no answer: {done.stderr.strip()}", 1)


def embedded() -> Figures:
    """One lab from nothing to nothing."""
    clear()
    try:
        began = time.monotonic()
        play("playbooks/preflight.yml", "playbooks/hypervisor.yml", "playbooks/network.yml")
        cloned = time.monotonic()
        play("playbooks/machines.yml", "playbooks/runtime.yml", "playbooks/services.yml")
        answer()
        answered = time.monotonic()
        play("site.yml")
        again = time.monotonic()
        play("playbooks/snapshot.yml")
        reset = emulated.reset_seconds(play("playbooks/reset.yml"))
    finally:
        clear()
    return dict(zip(WHAT, (answered - began, answered - cloned, again - answered), strict=False)) | reset


def in_emulation(template: Path) -> Figures:
    """One pass of scripts/test_emulated.py."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        program = str(lab.ROOT / "scripts" / "test_emulated.py")
        run([sys.executable, program, "--template", str(template), "--figures", file.name])
        found: Figures = json.loads(Path(file.name).read_text(encoding="utf-8"))
    return {name: found[name] for name in WHAT}


def summed_up(design: str, found: list[Figures]) -> list[dict[str, Any]]:
    """Of the runs of a design a result for each thing that was measured."""
    results = []
    for name in WHAT:
        times = sorted(one[name] for one in found)
        p95 = round(times[math.ceil(0.95 * len(times)) - 1], 1)
        median = round(statistics.median(times), 1)
        results.append({"name": name, "design": design, "unit": "s", "median": median, "p95": p95, "n": len(times)})
    return results


def figures_of(file: Path) -> Figures:
    """What a pass of scripts/test_emulated.py has written; ends with one line when it is something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {name: float(found[name]) for name in WHAT}
    except (OSError, ValueError, TypeError, KeyError) as error:
        lab.fail(f"--figures {file}: {error!r}: give a file that scripts/test_emulated.py --figures has written")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5, help="runs of each design (default: %(default)s)")
    parser.add_argument("--template", type=Path, help="a finished image of the agent's template; none: embedded only")
    parser.add_argument("--figures", type=Path, nargs="+", default=[], help="emulated passes that were made before")
    options = parser.parse_args()
    if options.n < 0 or not (options.n or options.figures):
        lab.fail(f"-n {options.n}: give 1 or more")
    if options.template and not options.template.is_file():
        lab.fail(f"--template {options.template}: there is no such file")
    machine = hardware()
    designs: list[tuple[str, Callable[[], Figures]]] = [("embedded", embedded)]
    if options.template:
        designs.append(("emulated", lambda: in_emulation(options.template)))
    runs: dict[str, list[Figures]] = {"emulated": [figures_of(file) for file in options.figures]}
    for design, once in designs:
        for number in range(1, options.n + 1):
            runs.setdefault(design, []).append(once())
            said = ", ".join(f"{k} {v:.1f} s" for k, v in runs[design][-1].items())
            print(f"{design} {number}/{options.n}: {said}", flush=True)
            write(machine, runs)
    for one in write(machine, runs):
        print(f"{one['design']:<9} {one['name']:<16} median {one['median']} s, p95 {one['p95']} s of {one['n']}")
    print(f"written to {HERE / 'proxmox.json'}; {machine}")


def write(machine: dict[str, Any], runs: dict[str, list[Figures]]) -> list[dict[str, Any]]:
    """Write what was measured so far, and return it."""
    results = [result for design, found in runs.items() if found for result in summed_up(design, found)]
    text = json.dumps({"hardware": machine, "results": results}, indent=1)
    (HERE / "proxmox.json").write_text(text + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    lab.run(main)
