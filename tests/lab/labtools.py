"""What the lab's tests share: commands on its machines, its search, the model's own record."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import lab

ROOT = lab.ROOT
LAB_ID = os.environ["LAB_ID"]
STATE, RUN = lab.STATE, lab.RUN
MODEL_RECORD = STATE / "model-record.jsonl"
LAB_PY = ROOT / "roles" / "machine" / "files" / "nspawn" / "lab.py"
Done = subprocess.CompletedProcess[str]


def on(machine: str, command: str, *, check: bool = True, stdin: str = "", seconds: float = 60) -> Done:
    """Run a shell command on a machine of the lab over SSH; with check, a failure shows what it said."""
    done = subprocess.run(
        lab.ssh(machine, command), input=stdin, text=True, capture_output=True, check=False, timeout=seconds
    )
    assert not check or done.returncode == 0, (
        f"{machine}: {command}: exit {done.returncode}: {done.stderr or done.stdout}"
    )
    return done


def ask(question: str, *options: str) -> tuple[Done, dict[str, Any]]:
    """Ask the lab's agent with --json; return the finished command and the object it printed ({} when none)."""
    done = lab.ask(question, "--json", *options)
    text = done.stdout.strip()
    return done, json.loads(text) if text.startswith("{") else {}


def events(session: str) -> list[dict[str, Any]]:
    """The session's events as the log's one search gives them, in time order."""
    done = lab.read_log("trace", session, "--json", capture=True)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["events"]
    return found


def model_calls() -> int:
    """How many chat completions the model's own record holds."""
    if not MODEL_RECORD.is_file():
        return 0
    lines = MODEL_RECORD.read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["path"].endswith("/chat/completions") for line in lines)


ANSIBLE = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "ANSIBLE_FORCE_COLOR": "0"}


def playbook(path: str, *arguments: str, **environment: str) -> Done:
    """Run a playbook of this checkout against the lab under test; `environment` is added to this process's."""
    return subprocess.run(
        [str(lab.BIN / "ansible-playbook"), path, *arguments],
        cwd=ROOT,
        env=ANSIBLE | environment,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
