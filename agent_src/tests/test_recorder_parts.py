"""The recorder on a connection that only keeps what it is told: each of its steps alone, without a log."""

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from glasslab import recorder as module
from glasslab.frames import event_hash, frame
from glasslab.hec_errors import LoggingError
from glasslab.recorder import Recorder
from glasslab.settings import HecSettings

HEC = HecSettings("https://log.example:8088", "token", index="agents")
START = frame("session.start", step=0, model="m", question_sha256="0" * 64)
END = frame("session.end", step=1, status="answered", turns=1, tokens={}, answer_sha256=None)
TRACE = frame("agent.decision", step=1, decision="answer", calls=0, tools=[], reason=None)


class Connection:
    """Keeps what is asked of it; `fails` is raised by the next post or settle."""

    made: ClassVar[list["Connection"]] = []

    def __init__(self, hec: HecSettings) -> None:
        self.hec, self.posts, self.settled, self.closed = hec, list[tuple[bytes, bool]](), 0, 0
        self.broken, self.answers, self.fails = False, True, None
        self.made.append(self)

    def post(self, body: bytes, *, last: bool = False) -> None:
        self._fail()
        self.posts.append((body, last))

    def settle(self) -> None:
        self._fail()
        self.settled += 1

    def warm(self) -> bool:
        return self.answers

    def close(self) -> None:
        self.closed += 1

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails

    fails: LoggingError | None


class Watcher:
    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.closed = 0

    def observe(self, events: Any) -> None:
        self.seen.append([event["kind"] for event in events])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    monkeypatch.setattr(Connection, "made", [])
    monkeypatch.setattr(module, "HecConnection", Connection)
    return Connection.made


def error() -> LoggingError:
    return LoggingError("log_unreachable", HEC.url, "gone", "start it")


def events(connection: Connection) -> list[dict[str, Any]]:
    return [json.loads(line) for body, _ in connection.posts for line in body.split(b"\n")]


def test_what_holds_unless_it_is_said(made: list[Connection]) -> None:
    recorder = Recorder(HEC, "agent")
    log = recorder.open("s")
    assert (recorder.trace, recorder.observer, recorder.hec, recorder.component) == (False, None, HEC, "agent")
    assert (log.session_id, log.clock, log.failure, log.head) == ("s", 0, None, "0" * 64)
    assert (len(made), made[0].hec) == (1, HEC)
    assert recorder.open("t", clock=5).clock == 5


def test_connections_are_opened_ahead_and_taken(made: list[Connection]) -> None:
    recorder = Recorder(HEC, "agent")
    assert recorder.warm() is True
    assert len(made) == 1
    assert recorder.warm(2) is True
    assert [recorder.take() for _ in range(4)] == [made[2], made[1], made[0], made[3]], "and then a new one"
    recorder.open("s")
    assert len(made) == 5


def test_one_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False, True])
    monkeypatch.setattr(Connection, "warm", lambda connection: next(answers))
    assert Recorder(HEC, "agent").warm(3) is False


def test_no_more_than_eight_stay_idle_and_no_broken_one(made: list[Connection]) -> None:
    recorder = Recorder(HEC, "agent")
    for number in range(9):
        recorder.give_back(Connection(HEC))
        assert made[number].closed == (number == 8)
    broken = Connection(HEC)
    broken.broken = True
    recorder.take()
    recorder.give_back(broken)
    assert broken.closed == 1
    recorder.close()
    assert [one.closed for one in made[:7]] == [1] * 7
    recorder.close()
    assert [one.closed for one in made[:7]] == [1] * 7
    assert recorder.take() not in made[:10]


def test_the_observer_sees_what_is_acknowledged_and_is_closed(made: list[Connection]) -> None:
    recorder, told = Recorder(HEC, "agent", trace=True), list[str]()
    recorder.observer = watcher = Watcher()
    log = recorder.open("s")
    log.on_acknowledged = lambda event: told.append(event["kind"])
    log.commit(START, TRACE)
    assert (watcher.seen, told) == ([["session.start", "agent.decision"]], ["session.start", "agent.decision"])
    made[0].fails = error()
    with pytest.raises(LoggingError):
        log.commit(END)
    assert (len(watcher.seen), len(told), watcher.closed) == (1, 2, 0)
    recorder.close()
    assert watcher.closed == 1


@pytest.mark.parametrize(("trace", "kinds"), [(True, ["session.start", "agent.decision"]), (False, ["session.start"])])
def test_a_commit_holds_what_the_mode_records(made: list[Connection], trace: bool, kinds: list[str]) -> None:
    log = Recorder(HEC, "agent", trace=trace).open("s")
    log.commit(START, TRACE)
    assert [item["event"]["kind"] for item in events(made[0])] == kinds
    log.commit(TRACE)
    assert len(made[0].posts) == (2 if trace else 1)
    assert log.head == event_hash(events(made[0])[-1]["event"])


def test_the_last_commit_is_said_to_be(made: list[Connection]) -> None:
    log = Recorder(HEC, "agent", trace=True).open("s")
    log.commit(START)
    log.commit(TRACE, END)
    assert [last for _, last in made[0].posts] == [False, True]


def test_after_a_failure_every_commit_is_that_failure(made: list[Connection]) -> None:
    log, failure = Recorder(HEC, "agent").open("s"), error()
    made[0].fails = failure
    for _ in range(2):
        with pytest.raises(LoggingError) as caught:
            log.commit(START)
        assert caught.value is failure
        made[0].fails = None
    assert (log.failure, made[0].posts) == (failure, [])
    log.close()
    assert made[0].settled == 0


def test_what_is_noted_goes_with_the_next_commit_and_the_action_comes_after(made: list[Connection]) -> None:
    log, done = Recorder(HEC, "agent").open("s"), list[int]()
    log.note(START)
    assert made[0].posts == []
    assert log.act(lambda: done.append(len(made[0].posts)) or "done", END) == "done"
    assert (done, [item["event"]["kind"] for item in events(made[0])]) == ([1], ["session.start", "session.end"])
    log.act(lambda: None, START)
    assert len(events(made[0])) == 3, "what was noted is noted once"
    made[0].fails = error()
    with pytest.raises(LoggingError):
        log.act(lambda: done.append(0), START)
    assert done == [1]


@pytest.mark.parametrize(
    ("heard", "clock"),
    [(1, 1), (2, 2), ((1 << 53) - 1, (1 << 53) - 1), (1 << 53, 0), (1 << 54, 0), (0, 0), (-1, 0), (2.0, 0), (True, 0),
     ("2", 0), (None, 0)],
)  # fmt: skip
def test_the_clock_takes_whole_numbers_that_every_json_reader_keeps(heard: object, clock: int) -> None:
    log = Recorder(HEC, "agent").open("s")
    log.merge(heard)
    assert log.clock == clock


def test_the_end_settles_what_is_open_and_gives_the_connection_back(
    made: list[Connection], capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(HEC, "agent")
    log = recorder.open("s")
    log.close()
    assert (made[0].settled, recorder.take(), capsys.readouterr().err) == (1, made[0], "")
    late = recorder.open("late")
    made[1].fails = error()
    late.close()
    assert capsys.readouterr().err == (
        "glasslab: session late: accepted, and not indexed: Agent stopped: Splunk HEC unreachable: "
        "https://log.example:8088: gone; start it\n"
    )
    assert recorder.take() is made[1]


def test_an_events_envelope(made: list[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.5, 0.25, 2.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: next(now)))
    monkeypatch.setattr(module, "socket", SimpleNamespace(gethostname=lambda: "here"))
    log = Recorder(HEC, "agent").open("s")
    log.commit(START, START)
    log.commit(END)
    first, second, third = events(made[0])
    assert [item["time"] for item in (first, second, third)] == [0.5, 0.500001, 2.0]
    assert {name: first[name] for name in first if name not in ("event", "time")} == {
        "host": "here",
        "source": "glasslab:agent",
        "sourcetype": "agent:session",
        "index": "agents",
    }
    assert made[0].posts[0][0].startswith(b'{"time":0.500000,"')
    assert made[0].posts[0][0].count(b"\n") == 1
