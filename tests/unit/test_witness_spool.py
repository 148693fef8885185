"""What lies in the spool beside receipts, a disk that is full, a queue that is damaged: the witness goes on."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glasslab_witness import forwarder as forwarding
from glasslab_witness.spool import LARGEST, MOST
from witnessplace import Place, count, line, work


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def a_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_a_file(path: Path) -> None:
    (path.parent.parent / "elsewhere").write_text("{}")
    path.symlink_to("../elsewhere")


def a_folder(path: Path) -> None:
    (path / "with").mkdir(parents=True)


def a_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("made", [os.mkfifo, a_link, a_link_to_a_file, a_folder, a_hole])
def test_what_is_no_plain_file_is_refused_and_nothing_waits_for_it(place: Place, made: Callable[[Path], None]) -> None:
    made(place.spool / "odd.json")
    (place.spool / "receipt.json").write_text("{}")
    place.saw(line(0))
    forwarder = place.forwarder()
    for _ in range(3):
        work(forwarder)
    said = json.loads((place.spool / "done" / "odd.json").read_text())
    assert list(said) == ["refused"]
    assert said["refused"].startswith("odd.json is ")
    assert (place.spool / "odd.json").exists() == (made is a_folder)
    assert (count(place.log), len(place.log.events("network.receipt"))) == (1, 1)


def test_an_answer_is_not_written_through_a_link(place: Place) -> None:
    other = place.folder / "precious"
    other.write_text("mine")
    (place.spool / "done" / ".r.json.part").symlink_to(other)
    (place.spool / "r.json").write_text("{}")
    work(place.forwarder())
    assert other.read_text() == "mine"
    assert json.loads((place.spool / "done" / "r.json").read_text())["acknowledged"] is True


def test_more_receipts_than_there_is_memory_for_come_a_few_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3 * MOST):
        (place.spool / f"r{number:03}.json").write_text(json.dumps({"x": "y" * (LARGEST - 20)}))
    forwarder = place.forwarder(queue_bytes=1 << 30)
    saved: list[int] = []
    real = forwarder.outbox.save

    def save(state: dict[str, Any], queued: Any = ()) -> None:
        saved.append(len(queued))
        real(state, queued)

    monkeypatch.setattr(forwarder.outbox, "save", save)
    for _ in range(4):
        work(forwarder)
    assert max(saved) == MOST
    assert len(place.log.events("network.receipt")) == 3 * MOST


def test_a_receipt_that_cannot_be_removed_is_recorded_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.spool / "r.json").write_text("{}")
    place.saw(line(0))
    monkeypatch.setattr("glasslab_witness.spool.Spool.remove", lambda *_: False)
    for _ in range(2):
        forwarder = place.forwarder()
        for _ in range(3):
            work(forwarder)
            place.saw(line(None, dest_port=7))
    assert len(place.log.events("network.receipt")) == 1


def test_who_cannot_be_answered_is_no_reason_to_send_again(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.spool / "done").rmdir()
    (place.spool / "r.json").write_text("{}")
    (place.spool / "bad.json").write_text("[]")
    place.saw(line(0))
    forwarder = place.forwarder()
    for _ in range(3):
        work(forwarder)
    assert len(place.log.bodies) == len(set(place.log.bodies))
    assert (count(place.log), len(place.log.events("network.receipt"))) == (1, 1)
    assert "r.json is in the log, and nobody is told so" in capsys.readouterr().err


class Full:
    """A database on a disk that is full when `full` says so: nothing can be written, all can be read."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database, self.full = database, False

    def execute(self, statement: str, *given: Any) -> Any:
        if self.full and statement.startswith(("DELETE", "INSERT")):
            raise sqlite3.OperationalError("database or disk is full")
        return self.database.execute(statement, *given)

    def executemany(self, statement: str, *given: Any) -> Any:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return self.database.executemany(statement, *given)

    def close(self) -> None:
        self.database.close()


def on_full_disk(place: Place) -> tuple[Any, Full]:
    forwarder = place.forwarder()
    disk = forwarder.outbox._database = Full(forwarder.outbox._database)  # type: ignore[assignment]
    return forwarder, disk  # type: ignore[return-value]  # a connection, as far as it is used


def test_what_cannot_be_crossed_off_is_not_sent_again(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.saw(line(0), line(1, dest_port=1))
    forwarder, disk = on_full_disk(place)
    forwarder.read()
    disk.full = True
    for _ in range(5):
        forwarder._retry = 0
        assert not forwarder.send()
    assert len(place.log.bodies) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written (database or disk is full): make room" in said
    disk.full = False
    forwarder._retry = 0
    work(forwarder)
    place.saw(line(2, dest_port=2))
    work(forwarder)
    assert len(place.log.bodies) == len(set(place.log.bodies))
    assert place.log.whole()
    assert count(place.log) == 3


def test_what_cannot_be_kept_is_read_again_and_never_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the one process: it neither ends with a traceback nor signs what it could not keep."""
    forwarder, disk = on_full_disk(place)
    stopping: list[int] = []
    rounds = 0

    def sleep(_: float) -> None:
        nonlocal rounds
        rounds += 1
        disk.full = rounds in range(2, 6)
        place.saw(line(rounds, dest_port=rounds))
        if rounds == 12:
            stopping.append(1)

    monkeypatch.setattr(forwarding.time, "sleep", sleep)
    forwarder.run(stopping)
    said = [line for line in capsys.readouterr().err.splitlines() if "cannot be written" in line]
    assert len(said) == 1, said
    work(place.forwarder())
    assert place.log.whole()
    assert count(place.log) == 12
    assert place.log.events("network.lost") == []


def test_a_damaged_queue_is_one_line(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from witnessplace import KEY

    state = place.folder / "witness.sqlite3"
    state.write_bytes(b"no database" * 1000)
    (place.folder / "hec_token").write_text("t")
    (place.folder / "signing_key").write_bytes(
        KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )  # fmt: skip
    settings = {"hec_url": "https://log", "hec_index": "a", "hec_deadline": 1, "window": 1, "queue_bytes": 1}
    (place.folder / "settings.json").write_text(json.dumps({**settings, "state": str(state)}))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(place.folder))
    assert forwarding.main(place.folder / "settings.json") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"glasslab-witness: cannot start: {state}: file is not a database: make room there;")
    assert said.count("\n") == 1
