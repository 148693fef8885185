"""A HEC token is rotated while a question runs: the question ends well, no frame is lost, and the old token is dead."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import lab
from labtools import LAB_ID, MODEL_RECORD, STATE, ask, events, on, playbook

QUESTION = "What was the root cause of the September incident?"
FRAMES = 33
INPUTS = "/opt/splunk/etc/apps/glasslab/local/inputs.conf"
SECONDS = 180.0
# Run on the log machine; the token comes by stdin.
EMPTY = """
import json, ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/opt/splunk/etc/auth/glasslab/ca.pem")
headers = {"Authorization": "Splunk " + sys.stdin.read()}
asked = urllib.request.Request("https://localhost:8088/services/collector/event", b"", headers, method="POST")
try:
    answer = urllib.request.urlopen(asked, context=context, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.load(answer)["code"])
"""
COUNT = """
import sqlite3
events = sqlite3.connect("file:/opt/splunk/var/lib/splunk/glasslab/events.sqlite3?mode=ro", uri=True)
print(events.execute("SELECT count(*) FROM events WHERE raw LIKE '%\\"kind\\":\\"llm.request\\"%'").fetchone()[0])
"""


def wait_for(what: str, found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.5)


def model_process() -> int:
    """The process of the lab's model API, found by the record that it alone writes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"--record={MODEL_RECORD}".encode() in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
        except OSError:  # it ended meanwhile
            continue
    raise AssertionError("the lab's model API does not run")


@contextmanager
def silent_model() -> Iterator[None]:
    """The model API holds its answers back for a time."""
    process = model_process()
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def token(name: str) -> str:
    """A writer's token, as its file on the control node has it."""
    text = (STATE / "secrets" / name).read_text(encoding="utf-8").strip()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def log_says(value: str) -> int:
    """The code that the HEC answers an empty event with: 5 for a token that is live, 4 for one that is not."""
    return int(on("logs", f"python3 -c {shlex.quote(EMPTY)}", stdin=value).stdout)


def requests() -> int:
    """How many calls of the model are on record as about to be made."""
    return int(on("logs", f"python3 -c {shlex.quote(COUNT)}").stdout)


@pytest.mark.parametrize(("writer", "file"), [("agent", "hec_token_agent")])
def test_a_token_is_rotated_under_a_running_question(writer: str, file: str) -> None:
    old, credential = token(file), f"cat /etc/glasslab/{writer}/hec_token"
    rotate = ("playbooks/rotate.yml", "-e", f"lab_id={LAB_ID}", "-e", f"splunk_rotate={writer}")
    with ThreadPoolExecutor(2) as threads:
        with silent_model():
            before = requests()
            asking = threads.submit(ask, QUESTION)
            wait_for("a question", lambda: requests() > before)
            rotating = threads.submit(playbook, *rotate)
            wait_for("the new token at its writer", lambda: on("agent", credential).stdout.strip() != old)
            assert log_says(old) == 5, "the old token lives while a question runs with it"
        done, result = asking.result(SECONDS)
        rotated = rotating.result(SECONDS)
    assert rotated.returncode == 0, rotated.stdout[-2000:]
    assert (done.returncode, result["status"]) == (0, "answered"), done.stderr
    assert len(events(result["session_id"])) == FRAMES
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0
    new = token(file)
    assert on("agent", credential).stdout.strip() == new != old
    assert (log_says(old), log_says(new)) == (4, 5)
    assert f"{writer}-next" not in on("logs", f"cat {INPUTS}").stdout
    done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    assert len(events(result["session_id"])) == FRAMES


def test_a_writer_that_is_none_is_refused() -> None:
    done = playbook("playbooks/rotate.yml", "-e", f"lab_id={LAB_ID}", "-e", "splunk_rotate=nobody")
    assert done.returncode == 2
    assert "splunk_rotate=nobody: give -e splunk_rotate= one of agent, mcp, hypervisor" in done.stdout
