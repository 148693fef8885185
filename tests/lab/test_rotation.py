"""A HEC token is rotated while its writer writes: no frame is lost, and the old token is dead afterwards.

For the agent's and the tool server's a question runs meanwhile; for the hypervisor's its witness records receipts.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lab
from labtools import LAB_ID, ask, events, on, playbook
from rotating import SECONDS, token, under_a_question, wait_for

QUESTION = "What was the root cause of the September incident?"
FRAMES = 33
INPUTS = "/opt/splunk/etc/apps/glasslab/local/inputs.conf"
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
RECEIPTS = """
import json, sqlite3, sys
events = sqlite3.connect("file:/opt/splunk/var/lib/splunk/glasslab/events.sqlite3?mode=ro", uri=True)
rows = events.execute("SELECT raw FROM events WHERE raw LIKE ? ORDER BY id", (f"%{sys.argv[1]}%",))
print(json.dumps([json.loads(raw) for raw, in rows]))
"""
COUNT = """
import sqlite3
events = sqlite3.connect("file:/opt/splunk/var/lib/splunk/glasslab/events.sqlite3?mode=ro", uri=True)
print(events.execute("SELECT count(*) FROM events WHERE raw LIKE '%\\"kind\\":\\"llm.request\\"%'").fetchone()[0])
"""


def log_says(value: str) -> int:
    """The code that the HEC answers an empty event with: 5 for a token that is live, 4 for one that is not."""
    return int(on("logs", f"python3 -c {shlex.quote(EMPTY)}", stdin=value).stdout)


def requests() -> int:
    """How many calls of the model are on record as about to be made."""
    return int(on("logs", f"python3 -c {shlex.quote(COUNT)}").stdout)


@pytest.mark.parametrize(("writer", "file"), [("agent", "hec_token_agent"), ("mcp", "hec_token_mcp")])
def test_a_token_is_rotated_under_a_running_question(writer: str, file: str) -> None:
    old, credential = token(file), f"cat /etc/glasslab/{writer}/hec_token"

    def still_live() -> None:
        assert log_says(old) == 5, "the old token lives while a question runs with it"

    rotated, done, result = under_a_question(
        QUESTION,
        requests,
        lambda: playbook("playbooks/rotate.yml", "-e", f"lab_id={LAB_ID}", "-e", f"splunk_rotate={writer}"),
        lambda: on("agent", credential).stdout.strip() != old,
        still_live,
    )
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


class Receipts:
    """Has the hypervisor's witness record receipts, one after the other, each with a number and this run's mark."""

    def __init__(self) -> None:
        self.mark, self.given, self.ended = f"rotation-{time.time_ns()}", 0, threading.Event()

    def give(self) -> None:
        """Until it is told that it is enough. What is not acknowledged in time stays queued there."""
        while not self.ended.is_set():
            text = json.dumps({"note": self.mark, "number": self.given})
            on("pve", "/usr/local/sbin/glasslab-witness submit --wait 1 -", check=False, stdin=text)
            self.given += 1

    def logged(self) -> list[dict[str, Any]]:
        """The frames that the log has of them."""
        found = on("logs", f"python3 -c {shlex.quote(RECEIPTS)} {self.mark}").stdout
        frames: list[dict[str, Any]] = json.loads(found)
        return frames


def test_the_hypervisors_token_is_rotated_while_it_writes() -> None:
    old, credential = token("hec_token_witness"), "cat /etc/glasslab/hypervisor/hec_token"
    receipts = Receipts()
    with ThreadPoolExecutor(1) as threads:
        giving = threads.submit(receipts.give)
        try:
            wait_for("a receipt", lambda: bool(receipts.logged()))
            rotated = playbook("playbooks/rotate.yml", "-e", f"lab_id={LAB_ID}", "-e", "splunk_rotate=hypervisor")
            before = receipts.given
            wait_for("receipts afterwards", lambda: receipts.given >= before + 3)
        finally:
            receipts.ended.set()
        giving.result(SECONDS)
    assert rotated.returncode == 0, rotated.stdout[-2000:]
    new = token("hec_token_witness")
    assert on("pve", credential).stdout.strip() == new != old
    assert (log_says(old), log_says(new)) == (4, 5)
    wait_for("every receipt", lambda: len({e["receipt"]["number"] for e in receipts.logged()}) == receipts.given)
    frames = {event["event_id"]: event for event in receipts.logged()}
    assert len(frames) == receipts.given, "one that is sent again after a restart has the same event_id"
    assert len({event["session_id"] for event in frames.values()}) == 1, "its chain goes on over the restart"


def test_a_writer_that_is_none_is_refused() -> None:
    done = playbook("playbooks/rotate.yml", "-e", f"lab_id={LAB_ID}", "-e", "splunk_rotate=nobody")
    assert done.returncode == 2
    assert "splunk_rotate=nobody: give -e splunk_rotate= one of agent, mcp, hypervisor" in done.stdout
