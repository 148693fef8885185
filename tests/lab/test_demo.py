"""`make demo` as a newcomer runs it, without terminal and stdin; it also builds the lab the scenarios share."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import lab
from labtools import ROOT, STATE, playbook

PLAIN = {k: v for k, v in os.environ.items() if k in ("HOME", "PATH", "LANG", "SUDO_USER")}

# That of a hardened machine: what the lab's machines read may not depend on it.
UMASK = 0o077


def make(*arguments: str, seconds: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments, f"LAB_ID={lab.LAB_ID}"],
        cwd=ROOT,
        env=PLAIN | {"LC_ALL": "C", "COLUMNS": "100"},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        start_new_session=True,
        umask=UMASK,
        timeout=seconds,
    )


def kill_demo_after(seconds: float) -> None:
    """Start the demo and end it with kill -9, and all that it started, in the middle of its work."""
    process = subprocess.Popen(
        ["make", "demo", f"LAB_ID={lab.LAB_ID}"],
        cwd=ROOT,
        env=PLAIN,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        umask=UMASK,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.fixture(scope="module")
def demo() -> str:
    # Another moment each time; GLASSLAB_KILL_AFTER repeats one, or takes several.
    moments = os.environ.get("GLASSLAB_KILL_AFTER") or f"{random.uniform(1, 25):.1f}"
    for seconds in moments.split():
        print(f"demo killed after {seconds} s, then run again")
        kill_demo_after(float(seconds))
    done = make("demo")
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_stages_are_shown_with_their_durations(demo: str) -> None:
    stages = re.findall(r"^  (\S.*?)\s+\d+\.\d s\b", demo, re.MULTILINE)
    assert len(stages) >= 7, demo


def test_the_answer_is_shown(demo: str) -> None:
    answer = re.search(r"^Answer: +(.+)$", demo, re.MULTILINE)
    assert answer is not None, demo
    assert "allow-list" in answer[1]
    assert len(answer[1]) == 217


def test_all_25_frames_are_shown_in_order(demo: str) -> None:
    numbers = [int(n) for n in re.findall(r"^\W*(\d+)\s.*\b(?:agent|server|mcp|llm)\.", demo, re.MULTILINE)]
    assert numbers == list(range(1, 26)), demo


def test_isolation_is_shown_and_holds(demo: str) -> None:
    receipt = json.loads((STATE / "receipts" / "latest.json").read_text(encoding="utf-8"))
    probes = receipt["probes"]
    assert len([p for p in probes if p["expected"] == "blocked"]) >= 28 + 3 + 2
    assert [p for p in probes if p["observed"] != p["expected"]] == []
    assert "blocked" in demo
    assert "reachable" in demo


def test_it_ends_with_three_things_to_try(demo: str) -> None:
    last = [line.strip() for line in demo.strip().splitlines()[-3:]]
    assert last[0].startswith("make ask ")
    assert all(line.startswith("make ") for line in last)


def test_ask_trace_and_verify_work_afterwards(demo: str) -> None:
    asked = make("ask", 'QUESTION=What was the root cause of the "September" incident? $(touch /tmp/never)\'')
    assert asked.returncode == 0, asked.stdout
    assert "allow-list" in asked.stdout
    assert make("trace").returncode == 0
    assert make("verify").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ask",), "QUESTION is empty"),
        (("ask", "QUESTION=   "), "QUESTION is empty"),
        (("trace", "SESSION=no/such;session"), "is no session id"),
        (("trace", "SESSION=00000000-0000-4000-8000-000000000000"), "00000000-0000-4000-8000-000000000000"),
    ],
)
def test_bad_input_is_one_clear_line(demo: str, arguments: tuple[str, ...], said: str) -> None:
    done = make(*arguments)
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("make")]
    assert done.returncode != 0
    assert len(lines) == 1, done.stdout
    assert said in lines[0]


def test_a_second_run_of_site_changes_nothing(demo: str) -> None:
    began = time.monotonic()
    done = playbook("site.yml")
    print(f"second ansible-playbook site.yml: {time.monotonic() - began:.1f} s")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    recap = re.findall(
        r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", done.stdout, re.MULTILINE
    )
    assert {host for host, *_ in recap} >= {"pve", "agent", "logs"}
    changed = re.findall(r"^TASK \[(.*?)\] \*+\n(?:(?!TASK).*\n)*?changed: (.*)$", done.stdout, re.MULTILINE)
    assert [row for row in recap if set(row[1:]) != {"0"}] == [], changed


def test_ctrl_c_ends_it_with_one_line(demo: str) -> None:
    process = subprocess.Popen(
        ["make", "demo", f"LAB_ID={lab.LAB_ID}"],
        cwd=ROOT,
        env=PLAIN,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    shown = ""
    while "Preflight" not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "glasslab: interrupted; the same command goes on from there" in rest
    assert "Traceback" not in rest


def test_a_checkout_in_a_path_with_a_space(demo: str, tmp_path: Path) -> None:
    place = tmp_path / "glass lab"
    shutil.copytree(
        ROOT, place, ignore=shutil.ignore_patterns(".venv", ".git", "*_cache", "__pycache__"), symlinks=True
    )
    books = [f"playbooks/{name}.yml" for name in ("network", "runtime", "services", "verify")]
    done = subprocess.run(
        [str(lab.BIN / "ansible-playbook"), *books],
        cwd=place,
        env=os.environ
        | {"ANSIBLE_CONFIG": str(place / "ansible.cfg"), "LC_ALL": "C.UTF-8", "ANSIBLE_FORCE_COLOR": "0"},
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
