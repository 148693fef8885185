"""The receipt: what counts as blocked, reachable and unproven, and what the table shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

VERIFY = Path(__file__).resolve().parents[2] / "roles" / "verify"
sys.path.insert(0, str(VERIFY / "files"))

import isolation_table  # noqa: E402  (the role's files are no package; found by the line above)
import probe as prober  # noqa: E402
import receipt  # noqa: E402

TARGETS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))["verify_targets"]


def seen(
    blocked: str = "silent", control: str | None = "open", needed: str = "open"
) -> dict[str, list[dict[str, Any]]]:
    """What three places saw of one target that must be blocked and one that must be reachable."""
    shut = {"target": "LAN", "address": "192.0.2.1", "protocol": "tcp", "port": 22, "expected": "blocked"}
    flow = {"target": "log", "address": "192.0.2.2", "protocol": "tcp", "port": 8088, "expected": "reachable"}
    controls = [{**shut, "control": "controller", "answer": control}] if control else []
    return {
        "agent": [
            {**shut, "control": "controller", "answer": blocked},
            {**flow, "control": "hypervisor", "answer": needed},
        ],
        "controller": controls,
        "hypervisor": [{**flow, "control": "hypervisor", "answer": "open"}],
    }


@pytest.mark.parametrize(
    ("blocked", "control", "observed"),
    [
        ("silent", "open", "blocked"),
        ("silent", "refused", "blocked"),
        ("silent", "silent", "unproven"),
        ("silent", "error: no route", "unproven"),
        ("silent", None, "unproven"),
        ("open", "open", "reachable"),
        ("open", "silent", "reachable"),
        ("refused", "open", "reachable"),
        ("error: no socket", "open", "unproven"),
    ],
)
def test_verdict_on_what_must_be_blocked(blocked: str, control: str | None, observed: str) -> None:
    result = receipt.receipt("x", seen(blocked, control))
    assert result["probes"][0]["observed"] == observed
    assert result["as_expected"] is (observed == "blocked")


@pytest.mark.parametrize(
    ("needed", "observed"), [("open", "reachable"), ("refused", "unproven"), ("silent", "blocked")]
)
def test_verdict_on_a_needed_flow(needed: str, observed: str) -> None:
    places = seen(needed=needed)
    other = {**places["agent"][1], "address": "192.0.2.3", "answer": "open"}
    places["agent"].append(other)
    result = receipt.receipt("x", places)
    assert result["probes"][1]["observed"] == observed
    assert result["as_expected"] is (needed == "open")


def test_a_machine_without_network_is_not_called_isolated() -> None:
    rows = receipt.judge(seen(needed="silent"))
    assert [row["observed"] for row in rows] == ["unproven", "unproven"]


def test_no_probes_at_all_is_not_as_expected() -> None:
    assert receipt.receipt("x", {"agent": []})["as_expected"] is False


@pytest.mark.parametrize(("needed", "code"), [("open", 0), ("silent", 1)])
def test_program_writes_and_tells(tmp_path: Path, needed: str, code: int) -> None:
    order = json.dumps({"lab_id": "x", "places": seen(needed=needed)})
    program = [sys.executable, str(VERIFY / "files" / "receipt.py"), str(tmp_path / "r")]
    done = subprocess.run(program, input=order, text=True, capture_output=True, check=False)
    assert done.returncode == code
    latest = json.loads((tmp_path / "r" / "latest.json").read_text(encoding="utf-8"))
    assert latest["as_expected"] is (code == 0)
    assert len(list((tmp_path / "r").glob("2*.json"))) == 1
    assert ("log: 192.0.2.2 tcp 8088: expected reachable" in done.stdout) is (code == 1)


def test_program_names_the_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    order = json.dumps({"lab_id": "x", "places": seen()})
    program = [sys.executable, str(VERIFY / "files" / "receipt.py"), str(tmp_path / "file")]
    done = subprocess.run(program, input=order, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith(f"glasslab: the receipt cannot be written to {tmp_path}/file (")
    assert done.stderr == ""


def test_defaults_are_the_published_probes_and_what_the_lab_needs() -> None:
    doors = [door for target in TARGETS for door in prober.probes(target)]
    published = [
        (address, "tcp", port) for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1") for port in (22, 8006)
    ]
    published += [
        (address, kind, port)
        for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1")
        for kind, port in (("ping", None), ("udp", 8006))
    ]
    for address in ("192.168.50.10", "192.168.50.1"):
        published += [(address, "tcp", port) for port in (22, 80, 445, 8006, 443)] + [(address, "ping", None)]
    published += [("10.20.20.10", "tcp", port) for port in (22, 80, 8088)] + [("10.20.20.10", "ping", None)]
    shut = {(door["address"], door["protocol"], door["port"]) for door in doors if door["expected"] == "blocked"}
    assert len(published) == 28
    assert shut == {
        *published,
        ("203.0.113.80", "tcp", 80),
        ("203.0.113.80", "tcp", 443),
        ("203.0.113.80", "ping", None),
        ("10.10.10.20", "tcp", 22),
        ("10.10.10.20", "tcp", 8089),
    }


def test_table_has_a_row_a_target_and_marks_what_differs() -> None:
    text = isolation_table.table(receipt.receipt("x", seen(blocked="open"))).splitlines()
    assert text[0].split() == ["target", "probed", "expected", "observed"]
    assert text[2].split() == ["LAN", "tcp", "22", "blocked", "1", "reachable", "<-", "differs"]
    assert text[3].split() == ["log", "tcp", "8088", "reachable", "1", "reachable"]
    assert text[4].startswith("2 probes, 0 blocked, 2 reachable, 0 unproven: NOT as expected (")


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_table_of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(content, encoding="utf-8")
    program = [sys.executable, str(VERIFY / "files" / "isolation_table.py"), str(path)]
    done = subprocess.run(program, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "playbooks/verify.yml" in done.stderr


def test_probe_tells_open_refused_and_silent() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as served, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [served.getsockname()[1], closed.getsockname()[1]]
        target = {"name": "x", "addresses": ["127.0.0.1"], "tcp": ports, "expected": "blocked", "control": "controller"}
        answers = [prober.knock(door, 0.2)["answer"] for door in prober.probes(target)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            answers.append(prober.udp("127.0.0.1", mute.getsockname()[1], 0.2))
    assert answers == ["open", "refused", "silent"]
