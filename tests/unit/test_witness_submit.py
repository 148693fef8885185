"""Receipts handed to the witness, and its configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glasslab_witness.submit import submit
from witnessplace import ROOT, Place, work


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_receipt_is_answered_once_it_is_acknowledged(place: Place) -> None:
    place.log.down = True
    (place.spool / "r1.json").write_text('{"counts": {"blocked": 1}}')
    (place.spool / "r1.json.part").write_text("{")
    forwarder = place.forwarder()
    work(forwarder)
    assert not list((place.spool / "done").iterdir())
    place.log.down = False
    forwarder._retry = 0
    work(forwarder)
    (event,) = place.log.events("network.receipt")
    said = json.loads((place.spool / "done" / "r1.json").read_text())
    assert said == {
        "session_id": event["session_id"],
        "seq": event["seq"],
        "event_id": event["event_id"],
        "acknowledged": True,
    }
    assert event["receipt"] == {"counts": {"blocked": 1}}
    assert sorted(path.name for path in place.spool.iterdir()) == ["done", "r1.json.part"]


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, '{"x": "' + "y" * (512 * 1024) + '"}', "\udcff"])
def test_what_is_no_receipt_is_answered_and_removed(place: Place, content: str) -> None:
    (place.spool / "bad.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    work(place.forwarder())
    assert "bad.json" in json.loads((place.spool / "done" / "bad.json").read_text())["refused"]
    assert not (place.spool / "bad.json").exists()
    assert place.log.bodies == []


def test_submit_waits_for_the_answer(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    receipt = place.folder / "receipt.json"
    receipt.write_text("{}")
    assert submit(receipt, 0.1, place.spool) == 1
    assert json.loads(capsys.readouterr().out)["acknowledged"] is False
    assert submit(place.folder / "missing.json", 0.1, place.spool) == 2
    assert "missing.json" in capsys.readouterr().err


def test_configuration_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    """Run as the program that the role installs, with the modules beside it."""
    program = ROOT / "roles" / "witness" / "files" / "glasslab-witness"
    paths = f"{ROOT / 'roles' / 'witness' / 'files'}:{ROOT / 'agent_src'}"
    for settings in ("missing", "{", '{"hec_url": "x"}'):
        path = tmp_path / "settings.json"
        path.unlink(missing_ok=True)
        if settings != "missing":
            path.write_text(settings)
        done = subprocess.run(
            [sys.executable, str(program), "forward", "--settings", str(path)],
            env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("glasslab-witness: cannot start: ")
