"""make test: everything that proves the lab, step by step with durations; `test.py STEP ...` runs some of it.

With --soak the long forms of the steps that have one.

Each step's output goes to a file in a temporary directory that the last lines name; of a failed step what it failed of
and its end are shown. The last line counts the steps: `N passed, N failed`; the exit code is 1 when one failed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from children import child
from lab import BIN, ROOT
from lab import run as run_script

TEST_LAB = "gltest"
LAB_PY = "roles/machine/files/nspawn/lab.py"
PYTEST = [str(BIN / "pytest"), "--color=no", "-p", "no:cacheprovider"]
# A file's tests share what they start; whole files go to two processes, since many of them wait more than they work.
TWO_AT_ONCE = ["-n", "2", "--dist", "loadfile"]
HEARTBEAT_SECONDS = 60.0
# What names a failure: pytest's summary and assertions, Ansible's errors; also inside another's quoted output.
SAYS_WHY = re.compile(r"^\W*(FAILED|ERROR) |^\s*E   |\[ERROR\]:|^\s*fatal: |Traceback ")
SAID_LINES = 40
LAST_LINES = 60
# Every failure of the log at every commit; the demo killed at each of these seconds in turn, then run to its end.
SOAK = {"GLASSLAB_SOAK": "1", "GLASSLAB_KILL_AFTER": "1 2 3 5 8 12 16 20 25 30 35 40"}

Step = tuple[str, list[str]]


def steps() -> list[Step]:
    """Every step in the order that finds most soonest; the steps from `demo` to `untouched` share one lab."""
    fingerprint = [sys.executable, "tests/nspawn/machine_fingerprint.py"]
    before = Path(tempfile.gettempdir()) / f"glasslab-fingerprint-{os.getpid()}"
    return [
        ("lint: ruff", [str(BIN / "ruff"), "check", "--no-cache", "."]),
        ("lint: ruff format", [str(BIN / "ruff"), "format", "--no-cache", "--check", "."]),
        ("lint: mypy", [str(BIN / "mypy"), "--config-file", "agent_src/pyproject.toml", "agent_src/glasslab"]),
        ("lint: yamllint", [str(BIN / "yamllint"), "--strict", "."]),
        ("lint: ansible-lint", [str(BIN / "ansible-lint"), "-q"]),
        ("lint: roles' tables", [sys.executable, "scripts/role_tables.py", "--check"]),
        ("lint: Splunk app", [sys.executable, "scripts/splunk_app.py", "check"]),
        ("lint: Splunk app's page", [sys.executable, "scripts/splunk_app.py", "docs", "--check"]),
        ("lint: splunk-appinspect", [sys.executable, "scripts/splunk_app.py", "inspect"]),
        ("unit: glasslab", [*PYTEST, *TWO_AT_ONCE, "agent_src/tests"]),
        ("unit: scripts and roles", [*PYTEST, "tests/unit"]),
        ("web: the log's page in a browser", [*PYTEST, "tests/web"]),
        ("unit: nspawn backend", [*PYTEST, "tests/nspawn", "--ignore", "tests/nspawn/test_lifecycle.py"]),
        ("unit: MCP conformance", [sys.executable, "tests/conformance/conformance.py"]),
        ("lab: cleared", [sys.executable, LAB_PY, "destroy", "--lab-id", TEST_LAB, "--force"]),
        ("lab: fingerprint", [*fingerprint, "--output", str(before)]),
        ("lab: lifecycle", [*PYTEST, "tests/nspawn/test_lifecycle.py"]),
        ("lab: demo", [*PYTEST, "tests/lab/test_demo.py"]),
        ("lab: a model beyond the lab", [*PYTEST, "tests/lab/test_model_relay.py"]),
        ("lab: lifecycle plays", [*PYTEST, "tests/lab/test_lifecycle_plays.py"]),
        ("molecule", [str(BIN / "molecule"), "test", "--all"]),
        ("lab: removed", [sys.executable, LAB_PY, "destroy", "--lab-id", TEST_LAB, "--force"]),
        ("lab: machine untouched", [*fingerprint, "--compare", str(before)]),
    ]


def soak_steps() -> list[Step]:
    """What only the soak runs, beside the long forms: an hour's work that tells of the tests, not of the lab."""
    return [("mutants", [sys.executable, "tests/mutants.py"])]


def excerpt(lines: Iterable[str]) -> list[str]:
    """Of a failed step's log what it failed of, at most SAID_LINES, and its last lines.

    Molecule ends with a recap of every scenario: its last lines alone do not name the test that failed.
    """
    said: list[str] = []
    last: deque[str] = deque(maxlen=LAST_LINES)
    # Ansible quotes a command's whole output in one line.
    for line in (part.rstrip() for whole in lines for part in whole.replace("\\n", "\n").splitlines()):
        if len(last) == LAST_LINES and SAYS_WHY.search(last[0]) and len(said) < SAID_LINES:
            said.append(last[0])
        last.append(line)
    return [*said, *(["[...]"] if said else []), *last]


def run(name: str, command: list[str], log: Path) -> bool:
    """Run one step; show its duration, a sign of life each minute, and of a failure the last lines."""
    environment = os.environ | {
        "LAB_ID": TEST_LAB,
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "NO_COLOR": "1",
    }
    for name_of_secret in ("MODEL_BASE_URL", "MODEL", "MODEL_API_KEY", "MODEL_API_KEY_FILE", "OPENAI_API_KEY"):
        environment.pop(name_of_secret, None)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as out, child(command, environment, out=out) as process:
        while True:
            try:
                code = process.wait(HEARTBEAT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                print(f"    {name} ({time.monotonic() - began:.0f} s so far; {log})", flush=True)
    print(f"{'ok  ' if code == 0 else 'FAIL'} {name:<32} {time.monotonic() - began:6.1f} s", flush=True)
    if code:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in excerpt(lines):
                print(f"     | {line}", flush=True)
    return code == 0


def main() -> None:
    """Run the steps whose name begins with one of the arguments, or all of them."""
    # A background job begins with SIGINT ignored and its children inherit that; some of the tests interrupt theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = [word for word in sys.argv[1:] if word != "--soak"]
    every = steps()
    if "--soak" in sys.argv[1:]:
        os.environ |= SOAK
        every += soak_steps()
        wanted = wanted or ["unit", "lab: cleared", "lab: demo", "molecule", "lab: removed", "mutants"]
    chosen = [step for step in every if not wanted or any(step[0].startswith(word) for word in wanted)]
    if not chosen:
        sys.exit(f"test.py: no step begins with {' or '.join(wanted)}; there are: {', '.join(n for n, _ in every)}")
    logs = Path(tempfile.mkdtemp(prefix="glasslab-test-"))
    began = time.monotonic()
    outcome = []
    for number, (name, command) in enumerate(chosen):
        label = "".join(c if c.isalnum() else "-" for c in name)
        outcome.append(run(name, command, logs / f"{number:02}-{label}.log"))
    print(f"{time.monotonic() - began:.0f} s in all; the steps' output is in {logs}")
    print(f"{sum(outcome)} passed, {len(outcome) - sum(outcome)} failed")
    sys.exit(not all(outcome))


if __name__ == "__main__":
    run_script(main)
