"""A real model through the relay, with a scripted one on this machine's loopback in its place; then back again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from labtools import ROOT, ask, on
from test_demo import PLAIN

KEY = "sk-test-of-the-relay-0123456789"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path, subprocess.Popen[bytes]]]:
    """A model API on loopback, outside the lab: its port, what it was asked, its process."""
    path = tmp_path_factory.mktemp("model") / "record.jsonl"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(lab.BIN / "glasslab"), "scripted", "sample", "--port", str(port), "--record", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield port, path, process
    process.terminate()
    process.wait(10)


def demo(**settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "demo", f"LAB_ID={lab.LAB_ID}", *(f"{k}={v}" for k, v in settings.items() if k != "MODEL_API_KEY")],
        cwd=ROOT,
        env=PLAIN | {k: v for k, v in settings.items() if k == "MODEL_API_KEY"},
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=300,
    )


def test_demo_with_a_model_on_this_machine(outside: tuple[int, Path, subprocess.Popen[bytes]]) -> None:
    port, path, _ = outside
    done = demo(MODEL_BASE_URL=f"http://127.0.0.1:{port}/v1", MODEL="somebody/else", MODEL_API_KEY=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allow-list" in done.stdout
    asked = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    chats = [request for request in asked if request["path"].endswith("/chat/completions")]
    assert len(chats) == 3
    assert all(request["authorization"] for request in chats)
    assert KEY not in done.stdout + done.stderr
    assert on("agent", "cat /etc/glasslab/agent/model_api_key").stdout.strip() == KEY
    assert KEY not in subprocess.run(["ps", "axww"], text=True, capture_output=True, check=True).stdout


def test_a_model_that_is_gone_is_one_clear_line(outside: tuple[int, Path, subprocess.Popen[bytes]]) -> None:
    outside[2].terminate()
    outside[2].wait(10)
    done, result = ask("What was the root cause of the September incident?")
    assert done.returncode == 6, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if "LAB_TRACE" not in line]
    assert len(lines) == 1
    assert "model" in lines[0]
    assert result["status"] == "model_unreachable"


def test_back_to_the_scripted_model_and_its_own_key() -> None:
    assert os.environ.get("MODEL_BASE_URL") is None
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allow-list" in done.stdout
    assert on("agent", "cat /etc/glasslab/agent/model_api_key").stdout.strip() != KEY
