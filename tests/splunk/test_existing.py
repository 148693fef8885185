"""Mode `existing`: the lab against somebody's Splunk, two indexers behind a load balancer, in the lab's internet.

Behind the tests the lab writes to its own log again. GLASSLAB_SOAK=1: a second run, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elsewhere import LOOSE, NAME, STICKY, Elsewhere, inventory
from enterprise import one_line
from labtools import ANSIBLE, LAB_ID, ROOT, STATE, Done, ask, on, playbook

SOAK = os.environ.get("GLASSLAB_SOAK") == "1"
QUESTION = "What was the root cause of the September incident?"
FRAMES = 33


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """It stands, and afterwards the lab has its own log again."""
    elsewhere = Elsewhere(tmp_path_factory.mktemp("elsewhere"))
    try:
        elsewhere.begin()
        yield elsewhere
    finally:
        elsewhere.end()
    done = playbook("site.yml", "-e", f"lab_id={LAB_ID}")
    assert done.returncode == 0, one_line(done)[-2000:]


@pytest.fixture(scope="module")
def changed_inventory(there: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inventory(tmp_path_factory.mktemp("inventory"), there)


def play(path: str, place: Path, *words: str) -> Done:
    return playbook(path, "-i", str(place), "-e", f"lab_id={LAB_ID}", *words)


def script(verb: str, place: Path, session: str, **more: str) -> Done:
    """`make trace` or `make verify` with INVENTORY."""
    words = [sys.executable, "scripts/trace.py", verb]
    environment = ANSIBLE | {"INVENTORY": str(place), "SESSION": session, "LAB_ID": LAB_ID} | more
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_without_sticky_sessions_it_is_refused_before_anything_is_built(
    there: Elsewhere, changed_inventory: Path
) -> None:
    there.balance(LOOSE)
    try:
        done = play("site.yml", changed_inventory)
    finally:
        there.balance(STICKY)
    assert done.returncode == 2
    assert f"https://{NAME}:8088, writer agent, index agents: what it took is not acknowledged within 10 s" in one_line(
        done
    )
    assert "turn on sticky sessions (by cookie) there" in one_line(done)
    assert "TASK [network" not in done.stdout


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two addresses": ({"splunk_existing_hec_url": f"https://{NAME}:8088,https://b:8088"}, "give one address"),
    "a token of nobody": (
        {"splunk_existing_tokens": {"agent": "x"}},
        "in splunk_existing_tokens the HEC tokens of agent, mcp",
    ),
    "an index": (
        {"splunk_index": "others"},
        "code 7 (Incorrect index): the index is not there, or the token may not write",
    ),
    "another CA": ({"splunk_existing_ca": str(STATE / "ca/ca.crt")}, "see splunk_existing_ca"),
    "a flow to the log machine": (
        {
            "network_flows": [
                {"name": "log", "from": "agent", "to": "logs", "protocol": "tcp", "ports": [8088], "why": "-"}
            ]
        },
        f"in network_flows give the flow log names: [{NAME}], ports: [8088]",
    ),
    "a log machine": (
        {"splunk_mode": "collector"},
        "has no log machine in logservers: put one there, or set splunk_mode",
    ),
}


@pytest.mark.parametrize(("settings", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_work_is_one_line(settings: dict[str, Any], said: str, changed_inventory: Path) -> None:
    done = play("playbooks/existing.yml", changed_inventory, "-e", json.dumps(settings))
    assert done.returncode == 2
    assert said in one_line(done)


def test_a_token_is_rotated_there_and_not_here(changed_inventory: Path) -> None:
    done = play("playbooks/rotate.yml", changed_inventory, "-e", "splunk_rotate=agent")
    assert done.returncode == 2
    assert "splunk_mode is existing: a token is made and ended there" in one_line(done)


def test_the_lab_is_built_against_it_and_a_session_is_there(there: Elsewhere, changed_inventory: Path) -> None:
    before = set(there.served())
    done = play("site.yml", changed_inventory)
    assert done.returncode == 0, one_line(done)[-3000:]
    assert not [line for line in done.stdout.splitlines() if line.startswith("logs ")], "no log machine"
    assert "its administrator installs it" in one_line(done).lower()
    assert (STATE / "glasslab.spl").is_file()
    answered, result = ask(QUESTION)
    assert answered.returncode == 0, answered.stderr
    shown = script("verify", changed_inventory, result["session_id"])
    assert shown.returncode == 0, shown.stdout + shown.stderr
    noted = script("verify", changed_inventory, result["session_id"], INDEX="1")
    assert noted.returncode == 0, noted.stdout + noted.stderr
    traced = script("trace", changed_inventory, result["session_id"])
    assert traced.returncode == 0, traced.stderr
    served = {channel: indexers for channel, indexers in there.served().items() if channel not in before}
    assert {len(indexers) for indexers in served.values()} == {1}, served
    assert set().union(*served.values()) == {"a", "b"}, "the balancer spreads its clients"
    knock = "timeout 3 bash -c '</dev/tcp/10.10.10.20/8088'"
    assert on("agent", knock, check=False).returncode != 0, "the flow leads to that Splunk alone"


def test_the_receipt_has_its_row(changed_inventory: Path) -> None:
    done = play("playbooks/verify.yml", changed_inventory, "-e", "verify_disruptive=false")
    assert done.returncode == 0, one_line(done)[-3000:]
    latest = max((STATE / "receipts").glob("*.json"), key=lambda path: path.stat().st_mtime)
    receipt = json.loads(latest.read_text(encoding="utf-8"))
    rows = [row for row in receipt["probes"] if row["target"] == "log"]
    assert {(row["place"], row["address"], row["port"], row["observed"]) for row in rows} == {
        (place, "192.0.2.30", 8088, "reachable") for place in ("agent", "agent's sandbox", "tools' sandbox")
    }


if SOAK:

    def test_a_second_run_changes_nothing(changed_inventory: Path) -> None:
        done = play("site.yml", changed_inventory)
        recap = [line for line in done.stdout.splitlines() if "changed=" in line]
        assert done.returncode == 0, one_line(done)[-3000:]
        assert [line for line in recap if "changed=0" not in line] == []
