"""What the witness sends: signed, in order, once, with a log that fails and at each of its own deaths."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from witnessplace import Place, count, line, work


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


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


@pytest.mark.parametrize("offset", range(10))
def test_no_two_frames_of_a_batch_have_the_same_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    monkeypatch.setattr("glasslab_witness.stream.time.time", lambda: 1796069568.086781 + offset * 1.2e-7)
    place.saw(*(line(number, dest_port=number + 1) for number in range(60)))
    work(place.forwarder())
    times = [item.time for item in place.log.stored]
    assert len(times) > 60
    assert [f"{when:.6f}" for when in times] == sorted({f"{when:.6f}" for when in times})


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
