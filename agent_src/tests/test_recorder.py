"""The recorder against a HEC that fails on purpose: acknowledged by the wall clock, or an error that says which."""

import json
import os
import queue
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conftest import Certificates
from faulty_hec import ANSWERS, FaultyHec
from glasslab.frames import GENESIS, KINDS, event_hash, frame, verify_event_signature
from glasslab.recorder import LoggingError, Recorder
from glasslab.settings import HecSettings

TOKEN = "secret-token-of-the-agent"
DEADLINE = 0.6  # for what never comes
PATIENCE = 20.0  # for what comes, however busy the machine is
LAST = frame("session.end", step=1, status="answered", turns=1, tokens={}, answer_sha256=None)
END = frame("session.start", step=0, model="m", question_sha256="0")
TRACE = frame("agent.decision", step=1, decision="answer", calls=0, tools=[])


@pytest.fixture
def settings(hec: FaultyHec, certificates: Certificates) -> HecSettings:
    return HecSettings(hec.url, TOKEN, ca=certificates.ca, deadline=PATIENCE)


@pytest.fixture
def recorder(settings: HecSettings) -> Iterator[Recorder]:
    recorder = Recorder(settings, "agent", Ed25519PrivateKey.generate(), trace=True)
    yield recorder
    recorder.close()


@pytest.fixture
def hurried(hec: FaultyHec, certificates: Certificates) -> Iterator[Recorder]:
    """A recorder that waits for what does not come."""
    recorder = Recorder(HecSettings(hec.url, TOKEN, ca=certificates.ca, deadline=DEADLINE), "agent", trace=True)
    yield recorder
    recorder.close()


def failure(recorder: Recorder) -> LoggingError:
    log = recorder.open("s")
    with pytest.raises(LoggingError) as caught:
        log.commit(END)
    log.close()
    return caught.value


def test_one_post_a_commit_in_the_bytes_that_were_hashed(hec: FaultyHec, settings: HecSettings) -> None:
    key = Ed25519PrivateKey.generate()
    log = Recorder(settings, "agent", key, trace=True).open("session-1")
    log.commit(END, TRACE)
    log.commit(TRACE)
    envelopes = [json.loads(line) for body in hec.bodies for line in body.splitlines()]
    events = [envelope["event"] for envelope in envelopes]
    assert [len(body.splitlines()) for body in hec.bodies] == [2, 1]
    for envelope, kind in zip(envelopes, ("session.start", "agent.decision", "agent.decision"), strict=True):
        assert set(envelope) == {"time", "host", "source", "sourcetype", "index", "event"}
        assert (envelope["source"], envelope["index"]) == ("glasslab:agent", "agents")
        assert envelope["sourcetype"] == KINDS[kind].sourcetype
        assert envelope["event"]["kind"] == kind
    times = [re.search(rb'^\{"time":(\d+\.\d{6}),', line) for body in hec.bodies for line in body.splitlines()]
    values = [float(match[1]) for match in times if match]
    assert len(values) == 3
    assert values == sorted(set(values))
    assert abs(values[0] - time.time()) < 60
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert [event["clock"] for event in events] == [1, 2, 3]
    assert events[0]["prev"] == GENESIS
    assert [event["prev"] for event in events[1:]] == [event_hash(event) for event in events[:2]]
    assert ["sig" in event for event in events] == [False, True, True]
    assert all(verify_event_signature(event, key.public_key()) for event in events[1:])
    assert hec.handshakes == 1


def test_summary_mode_leaves_trace_frames_out_and_skips_what_is_empty(hec: FaultyHec, settings: HecSettings) -> None:
    log = Recorder(settings, "agent", None, trace=False).open("s")
    log.commit(TRACE)
    log.commit(TRACE, END, TRACE)
    assert hec.kinds == [["session.start"]]
    assert hec.events("session.start")[0]["seq"] == 1
    assert log.clock == 1


@pytest.mark.parametrize("how", sorted(ANSWERS))
def test_an_answer_that_is_no_acknowledgement_is_rejected(hec: FaultyHec, recorder: Recorder, how: str) -> None:
    hec.reset(1, how)
    error = failure(recorder)
    assert error.status == "log_rejected"
    assert str(error).startswith(f"Agent stopped: Splunk HEC rejected: {hec.url}: HTTP {ANSWERS[how][0]}")
    assert error.remedy
    assert TOKEN not in str(error)
    assert str(error).isprintable(), "what the log says drives no terminal and makes no second line"
    assert hec.received == 1


def test_times_rise_even_when_the_clock_is_set_back(
    hec: FaultyHec, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sort 0 _time` has to give the order in which the frames were written."""
    clock = iter([2e9, 1e9, 1e9, 2e9 - 1, 2e9 + 1])
    log = recorder.open("s")
    monkeypatch.setattr("glasslab.recorder.time", SimpleNamespace(time=lambda: next(clock)))
    log.commit(END, TRACE)
    log.commit(TRACE, TRACE)
    log.commit(TRACE)
    log.close()
    times = [json.loads(line)["time"] for body in hec.bodies for line in body.splitlines()]
    assert times == [2e9, 2e9 + 1e-6, 2e9 + 2e-6, 2e9 + 3e-6, 2e9 + 1]


def test_no_two_times_are_the_same_however_long_the_clock_stands_back(
    hec: FaultyHec, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log keeps microseconds: what is lost in rounding must not add up to one."""
    clock = iter([1_790_000_000.123456, *[1e9] * 99])
    monkeypatch.setattr("glasslab.recorder.time", SimpleNamespace(time=lambda: next(clock)))
    log = recorder.open("s")
    log.commit(*[TRACE] * 99, END)
    log.close()
    times = [line.split(b",")[0][8:] for body in hec.bodies for line in body.splitlines()]
    assert times == [b"1790000000.%06d" % (123456 + number) for number in range(100)]


class HeldUp(queue.SimpleQueue[tuple[bool, object]]):
    """The results of a process that was stopped while its acknowledgement came in."""

    def get(self, block: bool = True, timeout: float | None = None) -> tuple[bool, object]:
        item = super().get(timeout=5)
        time.sleep((timeout or 0) + 0.05)
        return item


def test_an_acknowledgement_that_is_taken_too_late_is_none(
    hec: FaultyHec, hurried: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = hurried.take()
    monkeypatch.setattr(connection, "_results", HeldUp())
    hurried.give_back(connection)
    error = failure(hurried)
    assert hec.received == 1
    assert error.status == "log_unreachable"
    assert f"no acknowledgement within {DEADLINE:g} s" in str(error)


@pytest.mark.parametrize("how", ["hang", "drip", "drip_head", "drop", "close", "down"])
def test_no_complete_answer_is_unreachable_within_the_deadline(hec: FaultyHec, hurried: Recorder, how: str) -> None:
    hec.reset(1, how)
    error = failure(hurried)
    assert error.status == "log_unreachable"
    assert str(error).startswith(f"Agent stopped: Splunk HEC unreachable: {hec.url}: ")
    assert ("no acknowledgement within" in str(error)) == (how in ("hang", "drip", "drip_head"))
    assert not hec.said_all, "the wait ended by the wall clock, not with what was waited for"
    assert hec.received == (0 if how == "down" else 1)


@pytest.mark.parametrize(("how", "cause"), [("down", "refused"), ("drop", "before the answer"), ("hang", "0.6 s")])
def test_the_cause_is_named(hec: FaultyHec, hurried: Recorder, how: str, cause: str) -> None:
    hec.reset(1, how)
    assert cause in failure(hurried).cause


@pytest.mark.parametrize("left", [0, 1], ids=["not even a socket", "a socket and no CA file"])
def test_no_descriptor_left_is_no_fault_of_a_certificate(hec: FaultyHec, recorder: Recorder, left: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
    try:
        error = failure(recorder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert error.status == "log_unreachable"
    assert error.cause == "Too many open files"
    assert "ulimit -n" in error.remedy
    assert hec.received == 0


def test_another_ca_is_refused_before_anything_is_sent(hec: FaultyHec, tmp_path: Path) -> None:
    from loglab import make_certificates

    other = HecSettings(hec.url, TOKEN, ca=make_certificates(tmp_path / "other"), deadline=PATIENCE)
    error = failure(Recorder(other, "agent"))
    assert error.status == "log_unreachable"
    assert "TLS" in error.cause
    assert "HEC_CA" in error.remedy
    assert hec.received == 0


def test_a_name_that_is_not_in_the_certificate_is_refused(hec: FaultyHec, certificates: Certificates) -> None:
    named = HecSettings(hec.url.replace("127.0.0.1", "127.0.0.2"), TOKEN, ca=certificates.ca, deadline=PATIENCE)
    error = failure(Recorder(named, "agent"))
    assert error.status == "log_unreachable"
    assert hec.received == 0


def test_behind_a_forward_it_is_the_logs_own_name_that_counts(hec: FaultyHec, certificates: Certificates) -> None:
    """The certificate is for localhost and 127.0.0.1, where the forward is, and not for log.example."""
    named = HecSettings("https://log.example:8088", TOKEN, ca=certificates.ca, deadline=PATIENCE)
    named.forward = hec.url
    error = failure(Recorder(named, "agent"))
    assert (error.status, error.url) == ("log_unreachable", "https://log.example:8088")
    assert "TLS" in error.cause
    assert hec.received == 0
    named.url = "https://localhost:8088"
    Recorder(named, "agent").open("s1").commit(END)
    assert hec.received == 1


def test_the_environment_names_no_proxy_and_no_ca(
    hec: FaultyHec, settings: HecSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.devnull)
    Recorder(settings, "agent").open("s").commit(END)
    assert hec.kinds == [["session.start"]]


def test_after_a_failure_nothing_more_is_sent(hec: FaultyHec, recorder: Recorder) -> None:
    log = recorder.open("s")
    log.commit(END)
    hec.fail_at = 2
    done: list[str] = []
    with pytest.raises(LoggingError) as first:
        log.act(lambda: done.append("acted"), END)
    hec.fail_at = None
    with pytest.raises(LoggingError) as second:
        log.act(lambda: done.append("acted"), END)
    assert second.value is first.value
    assert done == []
    assert hec.received == 2


def test_act_records_first_and_takes_what_was_noted_along(hec: FaultyHec, recorder: Recorder) -> None:
    log = recorder.open("s")
    log.note(TRACE)
    assert hec.received == 0
    assert log.act(lambda: hec.kinds, END) == [["agent.decision", "session.start"]]
    log.commit(END)
    assert hec.kinds[1] == ["session.start"]


def test_an_idle_connection_that_the_server_closed_costs_neither_failure_nor_double(
    hec: FaultyHec, recorder: Recorder
) -> None:
    log = recorder.open("s")
    for _ in range(5):
        log.commit(END)
        hec.close_idle()
    assert hec.received == 5
    assert [event["seq"] for event in hec.events("session.start")] == [1, 2, 3, 4, 5]
    assert hec.handshakes == 5


def test_a_server_that_closes_after_each_answer_gets_each_event_once(hec: FaultyHec, recorder: Recorder) -> None:
    hec.reset(close_after=True)
    log = recorder.open("s")
    for _ in range(10):
        log.commit(END)
    assert [event["seq"] for event in hec.events("session.start")] == list(range(1, 11))


def test_a_connection_idle_for_long_is_not_trusted(
    hec: FaultyHec, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = recorder.open("s")
    log.commit(END)
    monkeypatch.setattr("glasslab.hec.IDLE_SECONDS", 0.0)
    log.commit(END)
    assert hec.handshakes == 2


def test_sessions_share_connections_one_after_the_other(hec: FaultyHec, recorder: Recorder) -> None:
    assert recorder.warm()
    for session in "abc":
        log = recorder.open(session)
        log.commit(END)
        log.close()
    assert hec.handshakes == 1
    assert [event["session_id"] for event in hec.events("session.start")] == ["a", "b", "c"]


def test_warming_a_dead_log_says_so_and_does_not_raise(hec: FaultyHec, recorder: Recorder) -> None:
    hec.reset(1, "down")
    assert recorder.warm() is False


def test_indexed_means_polled_within_the_same_deadline(certificates: Certificates, tmp_path: Path) -> None:
    from loglab import ACK_TOKEN, start_lab

    lab = start_lab(tmp_path / "splunk")
    try:
        settings = HecSettings(lab.hec_url, ACK_TOKEN, ca=lab.ca, index="agents", deadline=5, ack="indexed")
        log = Recorder(settings, "agent").open("s")
        log.commit(END)
        assert len(lab.rows()) == 1
        accepted = HecSettings(lab.hec_url, ACK_TOKEN, ca=lab.ca, index="agents", deadline=5)
        assert "HEC_ACK=indexed" in failure(Recorder(accepted, "agent")).remedy
    finally:
        lab.stop()


def acked(hec: FaultyHec, ca: Path, ack: Literal["indexed", "indexed_at_end"], deadline: float = PATIENCE) -> Recorder:
    return Recorder(HecSettings(hec.url, TOKEN, ca=ca, deadline=deadline, ack=ack), "agent", trace=True)


@pytest.mark.parametrize("ack", ["indexed", "indexed_at_end"])
def test_what_is_indexed_late_is_waited_for(
    hec: FaultyHec, certificates: Certificates, ack: Literal["indexed", "indexed_at_end"]
) -> None:
    hec.indexed_after = {1: 3, 2: 1}
    log = acked(hec, certificates.ca, ack).open("s")
    log.commit(TRACE)
    assert hec.polls == ({1: 3} if ack == "indexed" else {})
    log.commit(LAST)
    assert hec.polls == {1: 3, 2: 1}, "what was told is forgotten there: it is not asked for again"
    log.close()


def test_at_the_end_all_is_indexed_in_whatever_order(hec: FaultyHec, certificates: Certificates) -> None:
    hec.indexed_after = {1: 4, 2: 2, 3: 3, 4: 1}
    log = acked(hec, certificates.ca, "indexed_at_end").open("s")
    for frame_ in (END, TRACE, TRACE):
        log.commit(frame_)
    assert hec.polls == {}
    assert log.act(lambda: dict(hec.polls), LAST) == hec.indexed_after


def test_nothing_is_shown_when_one_of_all_is_never_indexed(hec: FaultyHec, certificates: Certificates) -> None:
    hec.indexed_after = {1: 1, 3: 1}
    log = acked(hec, certificates.ca, "indexed_at_end", DEADLINE).open("s")
    log.commit(END)
    log.commit(TRACE)
    shown: list[str] = []
    with pytest.raises(LoggingError, match="no acknowledgement within"):
        log.act(lambda: shown.append("the answer"), LAST)
    assert shown == []
    assert hec.polls[1] == hec.polls[3] == 1
    assert hec.polls[2] > 1


def test_a_writer_without_an_end_settles_when_it_closes(
    hec: FaultyHec, certificates: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    hec.indexed_after = {1: 2}
    recorder = acked(hec, certificates.ca, "indexed_at_end", DEADLINE)
    for session in ("indexed", "never"):
        log = recorder.open(session)
        log.commit(TRACE)
        log.close()
    assert hec.polls[1] == 2
    err = capsys.readouterr().err
    assert err.startswith("glasslab: session never: accepted, and not indexed: ")
    assert err.count("\n") == 1


def test_accepted_but_not_indexed_in_time_is_unreachable(hec: FaultyHec, certificates: Certificates) -> None:
    settings = HecSettings(hec.url, TOKEN, ca=certificates.ca, deadline=DEADLINE, ack="indexed")
    error = failure(Recorder(settings, "agent"))
    assert error.status == "log_unreachable"
    assert hec.kinds == [["session.start"]]


def test_only_whole_positive_numbers_lift_the_clock(recorder: Recorder) -> None:
    log = recorder.open("s", clock=3)
    for value in (7, 5, -1, True, "9", None, 1 << 60, 8.5):
        log.merge(value)
    assert log.clock == 7
