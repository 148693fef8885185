"""The receipt as it is written and shown, the question in it, and the folder that cannot be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import isolation_table
import receipt
from receiptworld import LAN_DOOR, VERIFY, World

ANSWERED = json.dumps({"session_id": "s1", "status": "answered"})


def found_in_log(whole: bool = True, *names: str) -> str:
    writers = [{"component": name, "frames": 5, "problems": []} for name in names or ("agent", "mcp")]
    return json.dumps({"whole": whole, "writers": writers, "problems": [] if whole else ["no frame has clock 3"]})


@pytest.mark.parametrize(
    ("asked", "found", "said", "problem"),
    [
        (ANSWERED, found_in_log(), "", None),
        (ANSWERED, found_in_log(False), "", "session s1 is not whole in the log: no frame has clock 3"),
        (ANSWERED, found_in_log(True, "agent"), "", "session s1 is not whole in the log"),
        (ANSWERED, "", "glasslab: cannot read the log", "session s1 is not whole in the log: glasslab: cannot read"),
        ("", "", "glasslab: no socket", "the question was not answered: glasslab: no socket"),
        (json.dumps({"status": "log_rejected"}), "", "", "the question was not answered: log_rejected"),
    ],
)
def test_the_question(asked: str, found: str, said: str, problem: str | None) -> None:
    world = World()
    world.order["questions"] = {"pve": {"asked": asked, "found": found, "said": said}}
    result = world.receipt()
    assert result["as_expected"] is (problem is None)
    assert problem is None or problem in "\n".join(result["problems"])
    if problem is None:
        assert result["session"] == {
            "id": "s1", "status": "answered", "frames": 10, "writers": {"agent": 5, "mcp": 5}, "whole": True
        }  # fmt: skip


@pytest.mark.parametrize(
    ("asked_at", "begun", "new"),
    [
        (1000.0, (1000.1, 1000.2), True),
        (1000.0, (998.5, 1000.2), True),  # the clocks of two machines
        (1000.0, (400.0, 400.2), False),
        (1000.0, (1000.1, 400.2), False),  # the agent writes its own times; the server's are not its to write
        (1000.0, (1000.1, None), False),
        ("1000.0", (400.0, 400.2), False),
        (None, (400.0, 400.2), True),
    ],
)
def test_an_older_session_is_no_answer(asked_at: Any, begun: tuple[float | None, ...], new: bool) -> None:
    """A compromised agent that hands out an earlier session, whole and signed as it is, is noticed."""
    world = World()
    writers = [
        {"component": n, "frames": 5, "began": t, "problems": []} for n, t in zip(("agent", "mcp"), begun, strict=True)
    ]
    found = json.dumps({"whole": True, "writers": writers, "problems": []})
    world.order["questions"] = {"pve": {"asked": ANSWERED, "found": found, "said": "", "asked_at": asked_at}}
    result = world.receipt()
    assert result["as_expected"] is new
    assert new or "session s1, which had begun before it was asked" in "\n".join(result["problems"])


def program(folder: Path, verb: str, order: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(VERIFY / "files" / "receipt.py"), verb, str(folder)]
    return subprocess.run(command, input=json.dumps(order), text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("done", "said", "code"),
    [
        ({"stdout": '{"acknowledged": true, "session_id": "h", "seq": 7}'}, "as expected", 0),
        (
            {"stdout": '{"acknowledged": false, "queued": "x"}', "stderr": ""},
            "the receipt is not in the log: not ackn",
            1,
        ),
        ({"msg": "[Errno 2] No such file"}, "the receipt is not in the log: [Errno 2] No such file: is the witness", 1),
    ],
)
def test_program_writes_shows_and_notes_where_it_is(tmp_path: Path, done: dict[str, Any], said: str, code: int) -> None:
    (tmp_path / "r").mkdir()
    receipt.write(tmp_path / "r", World().receipt())
    told = program(tmp_path / "r", "indexed", {"pve": done})
    assert told.returncode == code, told.stderr
    assert said in told.stdout
    latest = json.loads((tmp_path / "r" / "latest.json").read_text(encoding="utf-8"))
    assert latest.get("indexed") == ({"session_id": "h", "seq": 7} if code == 0 else None)
    assert latest["as_expected"] is (code == 0)
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "r").glob("2*.json")]
    assert kept == [latest]


def test_program_names_the_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = program(tmp_path / "file", "show", {})
    assert told.returncode == 2
    assert told.stdout.startswith(f"glasslab: the receipt cannot be kept in {tmp_path}/file (")
    assert told.stderr == ""


def test_table_shows_the_agents_rows_and_sums_up_the_others() -> None:
    world = World(disruptive=True)
    world.door("agent", *LAN_DOOR)["answer"] = "open"
    text = isolation_table.table(world.receipt()).splitlines()
    assert text[0].split() == ["from", "target", "probed", "expected", "observed"]
    assert " ".join(text[2].split()) == "agent hypervisor tcp 22 8006, udp 8006, ping blocked 12 blocked"
    assert any(line.split()[:1] == ["LAN"] and line.endswith("blocked    11 blocked") for line in text)
    assert any(line.endswith("blocked    1 reachable  <- differs") for line in text)
    assert [line.split()[1:3] for line in text if line.startswith("logs")] == [["10", "targets"]]
    assert max(len(line) for line in text[2:] if "<-" not in line) <= 100
    assert len(text) <= 32
    assert ": NOT as expected (" in text[-1]


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_table_of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(content, encoding="utf-8")
    command = [sys.executable, str(VERIFY / "files" / "isolation_table.py"), str(path)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "playbooks/verify.yml" in done.stderr
