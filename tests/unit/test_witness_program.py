"""The witness's program on this machine: what it reads, counts, seals and keeps, with a log that fails on purpose."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "roles" / "witness" / "files"))

from glasslab_witness.aggregate import MOST, Aggregator  # noqa: E402
from glasslab_witness.forwarder import Forwarder, Settings  # noqa: E402
from glasslab_witness.hec import LogError  # noqa: E402
from glasslab_witness.packets import LineError, Packet, parse  # noqa: E402
from glasslab_witness.submit import submit  # noqa: E402
from glasslab_witness.tail import ONE_READ, Tail  # noqa: E402

from glasslab.frames import HYPERVISOR  # noqa: E402  (after the role's own folder, as on the hypervisor)
from glasslab.search import StoredEvent  # noqa: E402
from glasslab.verify import verify_session  # noqa: E402

KEY = Ed25519PrivateKey.generate()
NOW = 1_796_000_000


def line(number: int | None = None, *, verdict: str = "denied", flow: str = "route", **fields: Any) -> str:
    """A line as ulogd writes it."""
    value = {
        "timestamp": f"2026-11-30T03:08:22.{random.randrange(10**6):06}",
        "oob.prefix": f"glasslab {verdict} {flow}",
        "oob.time.sec": NOW,
        "oob.time.usec": 250_000,
        "oob.in": "vmbr1",
        "oob.out": "",
        "oob.family": 2,
        "oob.protocol": 2048,
        "ip.protocol": 17,
        "src_ip": "10.10.10.10",
        "dest_ip": "203.0.113.80",
        "src_port": 40_000,
        "dest_port": 9,
        "mac.saddr.str": "02:10:00:00:00:10",
        **({} if number is None else {"oob.seq.local": number}),
        **fields,
    }
    return json.dumps(value) + "\n"


def packet(**fields: Any) -> Packet:
    return parse(line(**fields).encode())


class Log:
    """Stands for the HEC: takes what comes, or fails; `lose_answer` takes it and says it did not."""

    url = "https://log"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.down = self.lose_answer = False

    def post(self, body: bytes) -> None:
        if self.down:
            raise LogError("down")
        self.bodies.append(body)
        if self.lose_answer:
            raise LogError("no answer")

    def close(self) -> None:
        """Nothing is open."""

    @property
    def stored(self) -> list[StoredEvent]:
        found = []
        for envelope in (json.loads(one) for body in self.bodies for one in body.splitlines()):
            event = envelope["event"]
            raw = json.dumps(event)
            found.append(
                StoredEvent(envelope["time"], envelope["sourcetype"], envelope["source"], "agents", raw, event)
            )
        return found

    def events(self, kind: str = "network.flow") -> list[dict[str, Any]]:
        """The events of a kind, those sent again once."""
        return list({item.raw: item.event for item in self.stored if item.event["kind"] == kind}.values())

    def whole(self) -> bool:
        streams: dict[str, list[StoredEvent]] = {}
        for item in self.stored:
            streams.setdefault(item.event["session_id"], []).append(item)
        return all(verify_session(name, one, {HYPERVISOR: KEY.public_key()}).whole for name, one in streams.items())


class Place:
    """The hypervisor's files in a temporary folder, and forwarders on them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, Log()
        self.flows, self.drift, self.spool = folder / "flows.json", folder / "drift.json", folder / "spool"
        (self.spool / "done").mkdir(parents=True)
        self.flows.touch()
        monkeypatch.setattr("glasslab_witness.forwarder.Hec", lambda *_: self.log)

    def forwarder(self, **settings: Any) -> Forwarder:
        """A forwarder that goes on from what lies on disk."""
        given = {"hec_url": "https://log", "hec_index": "agents", "hec_deadline": 1.0, "window": 10.0} | settings
        given.setdefault("queue_bytes", 1 << 20)
        places = {
            "flows": self.flows,
            "drift": self.drift,
            "spool": self.spool,
            "state": self.folder / "state" / "w.sqlite3",
        }
        return Forwarder(Settings(**given, **places, ca=self.folder / "ca"), "token", KEY)

    def saw(self, *lines: str) -> None:
        with self.flows.open("a", encoding="utf-8") as file:
            file.writelines(lines)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def work(forwarder: Forwarder) -> None:
    """Rounds until there is nothing more to do."""
    while forwarder.read():
        pass
    while forwarder.send():
        pass


def count(log: Log, **wanted: Any) -> int:
    """How many packets the log's flow frames stand for."""
    events = [event for event in log.events() if all(event[name] == value for name, value in wanted.items())]
    return sum(event["count"] for event in events)


def test_a_packet_is_its_header_fields_and_nothing_else() -> None:
    found = packet(number=7, **{"raw.pkt": "SECRET", "udp.csum": 5})
    assert found == Packet(
        "denied", "route", "vmbr1", None, "02:10:00:00:00:10", "10.10.10.10", 40_000, "203.0.113.80", 9, "udp",
        NOW + 0.25, 7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "protocol"),
    [
        ({"ip.protocol": 6}, "tcp"),
        ({"ip.protocol": 132}, "ip-132"),
        ({"ip.protocol": None, "oob.protocol": 2054}, "arp"),
        ({"ip.protocol": None, "oob.protocol": 0x88B5}, "ether-88b5"),
        ({"ip.protocol": None, "oob.protocol": None}, None),
    ],
)
def test_protocols_have_names(fields: dict[str, Any], protocol: str | None) -> None:
    assert packet(**fields).protocol == protocol


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[1]", b"[" * 9000, line(note="x" * 20_000).encode(), b'{"oob.prefix": "glasslab denied x"}'),
        b'{"oob.prefix": "other denied x", "oob.time.sec": 1}',
        b'{"oob.prefix": "glasslab denied x y", "oob.time.sec": 1}',
    ],
)
def test_what_is_no_packet_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(LineError):
        parse(text)


def test_the_first_packet_is_a_frame_at_once_and_the_others_are_counted() -> None:
    counting = Aggregator(10.0)
    assert (counting.add(packet()) or {})["count"] == 1
    assert [counting.add(packet(src_port=port)) for port in (40_000, 40_001, 40_002)] == [None] * 3
    assert counting.due(NOW + 5) == []
    (frame,) = counting.due(NOW + 11)
    assert (frame["count"], frame["source_port"], frame["destination_port"]) == (3, None, 9)
    assert counting.due(NOW + 22) == []
    assert (counting.add(packet()) or {})["count"] == 1, "after a quiet window it is new again"


def test_a_flood_of_all_kinds_stays_a_few_frames_and_every_packet_counts() -> None:
    counting = Aggregator(10.0)
    frames = []
    for number in range(20_000):
        source = f"10.{number % 250}.{number % 199}.1"
        made = counting.add(packet(dest_port=number, src_ip=source, **{"mac.saddr.str": f"02:{number % 97:02x}"}))
        frames += [made] if made else []
    allowed = counting.add(packet(verdict="allowed", flow="model"))
    frames += counting.due(NOW + 11)
    assert sum(frame["count"] for frame in frames) == 20_000
    assert len(frames) <= 2 * MOST["denied"] + 2 * sum(MOST.values())
    assert allowed, "a flood of denied packets hides no allowed flow"


def test_counts_survive_in_the_state() -> None:
    counting, other = Aggregator(10.0), Aggregator(10.0)
    for _ in range(5):
        counting.add(packet())
    for port in range(MOST["denied"]):
        counting.add(packet(dest_port=1000 + port))
    other.restore(json.loads(json.dumps(counting.state())))
    assert other.add(packet()) is None
    assert other.add(packet(dest_port=9999)) is None, "the kinds that are being counted are known"
    assert sorted(frame["count"] for frame in other.due(NOW + 11)) == [2, 5]


def test_a_flood_that_is_over_leaves_room() -> None:
    counting = Aggregator(10.0)
    for port in range(MOST["denied"]):
        assert counting.add(packet(dest_port=port))
    assert counting.due(NOW + 11) == []
    assert counting.add(packet(dest_port=9999))


def test_a_file_is_read_to_its_end_across_rotation(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text(line(1) + "half")
    assert len(tail.read()) == 1
    with path.open("a") as writer:
        writer.write(" and half\n")
        writer.flush()
        path.rename(tmp_path / "flows.json.1")
        path.touch()
        assert tail.read() == [b"half and half"]
        writer.write("into the old one\n")  # its writer has not opened the new one yet
        writer.flush()
        assert tail.read() == [b"into the old one"]
        assert tail.read() == []
    path.write_text(line(2))
    again = Tail(path).resumed(json.loads(json.dumps(tail.position.state())))
    assert len(again.read()) == 1
    assert not again.gap


def test_a_file_that_was_rotated_away_unread_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    path.write_text(line(1))
    tail = Tail(path)
    assert len(tail.read()) == 1
    path.unlink()  # its inode may be given to the next one
    path.write_text(line(2) * 3)
    assert (len(tail.read()), tail.gap) == (3, True)


def test_a_large_file_comes_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    path.write_text("x" * 99 + "\n")
    with path.open("a") as file:
        file.writelines(["y" * 999 + "\n"] * 2500)
    tail, got = Tail(path), 0
    while lines := tail.read():
        got += len(lines)
        assert sum(map(len, lines)) <= ONE_READ
    assert (got, tail.more) == (2501, False)


def test_frames_arrive_signed_and_in_order(place: Place) -> None:
    place.saw(line(0, verdict="allowed", flow="model"), line(1), line(2))
    place.drift.write_text('{"event": "drift", "found": ["x"], "outcome": "restored"}\nnot json\n')
    work(place.forwarder())
    kinds = [item.event["kind"] for item in place.log.stored]
    assert kinds == ["network.start", "network.flow", "network.flow", "network.drift", "network.drift", "network.flow"]
    assert place.log.whole()
    assert {item.sourcetype for item in place.log.stored} == {"agent:network"}
    assert count(place.log, verdict="denied") == 2
    assert place.log.events("network.drift")[1]["drift"] == {"text": "not json"}


def test_no_frame_is_sealed_twice_and_nothing_is_lost_wherever_it_dies(place: Place) -> None:
    """Killed as if by kill -9, at each step that touches disk or log and here and there: the next process goes on."""

    class Died(BaseException):
        """No exception handler of the program's catches it."""

    steps, only = 0, ("save", "sent", "_queue", "send", "answer")

    def tracer(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        if "glasslab_witness" not in frame.f_code.co_filename or (only and frame.f_code.co_name not in only):
            return None
        if event == "line":
            steps -= 1
            if steps == 0:
                raise Died
        return tracer

    place.saw(*(line(number, dest_port=number % 5) for number in range(40)))
    place.drift.write_text('{"found": ["x"]}\n' * 3)
    died = 0
    places = [(start, only) for start in range(1, 70)] + [(start, ()) for start in range(1, 4000, 97)]
    for number, where in enumerate(places):
        steps, only = where
        place.saw(line(dest_port=number), line(dest_port=number))
        (place.spool / f"r{number}.json").write_text('{"counts": {}}')
        forwarder = place.forwarder()
        sys.settrace(tracer)
        try:
            work(forwarder)
        except Died:
            died += 1
        finally:
            sys.settrace(None)
            forwarder.outbox.close()  # as the kernel closes a dead process's files
        if number % 5:  # else the next one is killed, too
            work(place.forwarder())
            assert place.log.whole(), where
    work(place.forwarder(window=0.0))  # what is still being counted, too
    assert died > 50
    assert place.log.whole()
    assert count(place.log) == 40 + 2 * len(places)
    assert (len(place.log.events("network.drift")), len(place.log.events("network.receipt"))) == (3, len(places))
    assert len(place.log.events("network.start")) == 1


def test_what_is_being_counted_outlives_the_process(place: Place) -> None:
    now = {"oob.time.sec": int(time.time())}
    place.saw(*[line(number, **now) for number in range(9)])
    work(place.forwarder())
    assert count(place.log) == 1, "the others are still being counted"
    work(place.forwarder(window=0.0))
    assert count(place.log) == 9


def test_what_the_log_took_without_saying_so_is_sent_again_in_the_same_bytes(place: Place) -> None:
    place.saw(line(0), line(1))
    place.log.lose_answer = True
    work(place.forwarder())
    place.log.lose_answer = False
    work(place.forwarder())
    assert len(place.log.bodies) > len(set(place.log.bodies))
    assert place.log.whole()
    assert count(place.log) == 2


def test_a_log_that_is_away_is_waited_for(place: Place) -> None:
    place.log.down = True
    forwarder = place.forwarder()
    for number in range(50):
        place.saw(line(number, dest_port=number))
        work(forwarder)
    assert place.log.bodies == []
    place.log.down = False
    forwarder._retry = 0
    work(forwarder)
    assert place.log.whole()
    assert count(place.log) == 50


def test_a_full_queue_says_how_much_it_could_not_hold(place: Place) -> None:
    place.log.down = True
    forwarder = place.forwarder(queue_bytes=20_000)
    for number in range(60):
        place.saw(line(number, dest_port=number))
        work(forwarder)
    (place.spool / "kept.json").write_text("{}")
    work(forwarder)
    assert forwarder.outbox.bytes < 22_000
    assert (place.spool / "kept.json").exists(), "a receipt waits rather than be lost"
    place.log.down = False
    forwarder = place.forwarder(queue_bytes=20_000)
    work(forwarder)
    work(forwarder)
    (lost,) = place.log.events("network.lost")
    assert (lost["what"], lost["reason"]) == ("frames", "the queue was full while the log was away")
    assert count(place.log) + lost["count"] == 60
    assert len(place.log.events("network.receipt")) == 1
    assert place.log.whole()


def test_what_nobody_could_hold_shows_as_a_gap_in_the_kernels_count(place: Place) -> None:
    place.saw(line(0), line(1), line(9), line(10), line(0), line(1))
    work(place.forwarder())
    work(place.forwarder())
    (lost,) = place.log.events("network.lost")
    assert (lost["what"], lost["count"]) == ("packets", 7)


def test_foreign_lines_are_counted_as_lost(place: Place) -> None:
    place.saw("nonsense\n", line(0))
    forwarder = place.forwarder()
    work(forwarder)
    assert [event["what"] for event in place.log.events("network.lost")] == ["lines"]


def test_a_flood_of_drifts_is_counted(place: Place) -> None:
    place.drift.write_text('{"found": ["x"]}\n' * 500)
    forwarder = place.forwarder(window=0.2)
    work(forwarder)
    time.sleep(0.25)
    work(forwarder)
    assert sum(event["count"] for event in place.log.events("network.drift")) == 500
    assert len(place.log.events("network.drift")) == 21


def test_each_day_has_a_stream_that_names_the_one_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.saw(line(0))
    work(place.forwarder())
    real = time.time
    monkeypatch.setattr("glasslab_witness.stream.time.time", lambda: real() + 86_400)
    place.saw(line(1, dest_port=1))
    work(place.forwarder())
    first, second = place.log.events("network.start")
    assert (first["reason"], first["previous_session"]) == ("first", None)
    assert (second["reason"], second["previous_session"]) == ("day", first["session_id"])
    monkeypatch.setattr("glasslab_witness.stream.time.time", lambda: real() - 86_400)  # a clock set back
    place.saw(line(2, dest_port=2))
    work(place.forwarder())
    assert len(place.log.events("network.start")) == 2
    assert place.log.whole()


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
