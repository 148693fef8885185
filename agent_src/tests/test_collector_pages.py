"""What the collector's page shows of a log: lists, a session's figures, receipts, and its bounds."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glasslab.collector.web import data, figures, receipt
from glasslab.collector.web.data import Frame
from loglab import Lab, start_lab
from session_sample import SESSION
from weblab import Elements, fill, get, send


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("pages") / "splunk")
    fill(lab)
    yield lab
    lab.stop()


def test_the_sample_session_is_shown_frame_by_frame(lab: Lab) -> None:
    answer = get(lab, f"/sessions/{SESSION}")
    page = Elements(answer.text)
    rows = [about for tag, about in page.found if tag == "li"]
    assert [row["data-key"] for row in rows] == [str(number) for number in range(1, 26)]
    for text in (
        "What was it?",
        "No allow-list.",
        "answered",
        "885",
        "All 33 events",
        "217 characters, stop; 446 + ? tokens",
    ):
        assert text in page.text
    everything = Elements(get(lab, f"/sessions/{SESSION}?all=1").text)
    assert len([1 for tag, _ in everything.found if tag == "li"]) == 33
    frame = get(lab, f"/sessions/{SESSION}/frames/14")
    assert "mcp.call_tool.request" in frame.text
    assert "&#34;path&#34;: &#34;incident-report-2026-09.md&#34;" in frame.text


def frames(*events: tuple[float, str, dict[str, Any]]) -> list[Frame]:
    return [
        Frame(number, at, sourcetype, "s", json.dumps(event)) for number, (at, sourcetype, event) in enumerate(events)
    ]


def test_the_contexts_growth_and_the_time_of_each_part() -> None:
    session = frames(
        (0.0, "agent:session", {"kind": "session.start", "component": "agent", "model": "m"}),
        (1.0, "agent:trace", {"kind": "llm.request", "component": "agent", "message_count": 2}),
        (3.0, "agent:llm", {"kind": "llm", "prompt_tokens": 100, "completion_tokens": 9, "duration_ms": 2000}),
        (4.0, "agent:trace", {"kind": "server.path_check", "component": "mcp", "inside_sandbox": False}),
        (5.0, "agent:toolcall", {"kind": "toolcall", "tool": "read_file", "duration_ms": 1000, "refused": True}),
        (6.0, "agent:trace", {"kind": "llm.request", "component": "agent", "message_count": 4}),
        (8.0, "agent:llm", {"kind": "llm", "prompt_tokens": 400, "completion_tokens": None, "duration_ms": 2000}),
        (
            10.0,
            "agent:session",
            {"kind": "session.end", "status": "max_steps_reached", "tokens": {"total": 509}, "cost": 0.5},
        ),
    )
    shown = figures.session("s", session, 1, 100, everything=False)
    assert (shown.status, shown.running, shown.seconds, shown.tokens, shown.cost) == (
        "max_steps_reached",
        False,
        10.0,
        "509",
        "0.5",
    )
    assert [(t.messages, t.prompt, t.completion, t.share) for t in shown.turns] == [
        (2, 100, 9, 25.0),
        (4, 400, None, 100.0),
    ]
    model, tools, server = shown.lanes
    assert (model.name, model.seconds, [(bar.begin, bar.width) for bar in model.bars]) == (
        "model",
        4.0,
        [(100.0, 200.0), (600.0, 200.0)],
    )
    assert [(bar.begin, bar.width, bar.bad) for bar in tools.bars] == [(400.0, 100.0, True)]
    assert [(bar.begin, bar.bad) for bar in server.bars] == [(400.0, True)]
    assert [row.bad for row in shown.rows] == [False, True, False]


def test_a_receipts_probes_are_shown_by_place_and_target() -> None:
    blocked = {"place": "agent", "target": "LAN", "expected": "blocked", "protocol": "tcp"}
    probes = [
        {**blocked, "port": 22, "observed": "blocked"},
        {**blocked, "port": 80, "observed": "reachable"},
        {**blocked, "port": None, "protocol": "ping", "observed": "blocked"},
        {
            "place": "agent",
            "target": "log",
            "expected": "reachable",
            "observed": "reachable",
            "protocol": "tcp",
            "port": 8088,
        },
    ]
    lan, log = receipt.groups({"probes": probes})
    assert (lan.tried, lan.seen, lan.as_expected) == ("tcp 22 80, ping", "2 blocked, 1 reachable", False)
    assert (log.tried, log.seen, log.as_expected) == ("tcp 8088", "1 reachable", True)
    for none in (None, [], "x", {}, {"probes": 1}, {"probes": ["x", None]}):
        assert receipt.groups(none) == []


def test_figures_that_are_none_are_none() -> None:
    bad: list[Any] = ["x", -1, True, 1e300, None, [], 10**20]
    session = frames(
        *((float(n), "agent:llm", {"kind": "llm", "prompt_tokens": b, "duration_ms": b}) for n, b in enumerate(bad))
    )
    shown = figures.session("s", session, 1, 100, everything=True)
    assert [turn.prompt for turn in shown.turns] == [None] * len(bad)
    assert all(bar.begin >= 0 and bar.begin + bar.width <= 1000 for bar in shown.lanes[0].bars)


def test_a_session_without_an_end_runs_until_nothing_more_comes(lab: Lab) -> None:
    now = time.time()
    send(lab, "agent:session", now - 1, session_id="at-work", kind="session.start", model="m")
    send(lab, "agent:session", now - 1000, session_id="died", kind="session.start", model="m")
    page = get(lab, "/sessions/at-work").text
    assert (">running<" in page, 'data-live="2"' in page, '<meta http-equiv="refresh"' in page) == (True, True, True)
    page = get(lab, "/sessions/died").text
    assert ("no end on record" in page, "data-live" in page, "live.js" in page) == (True, False, False)


def test_lists_and_sessions_are_shown_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = start_lab(tmp_path / "splunk")
    try:
        monkeypatch.setattr("glasslab.collector.web.data.PAGE", 3)
        monkeypatch.setattr("glasslab.collector.web.server.ROWS", 4)
        for number in range(7):  # three of one moment: the place in the list is more than the time
            send(lab, "agent:session", 100.0 + number // 3, session_id=f"s{number}", kind="session.start", model="m")
        seen, path = [], "/"
        for size in (3, 3, 1):
            page = Elements(get(lab, path).text)
            keys = [about["data-key"] for tag, about in page.found if tag == "tr" and "data-key" in about]
            assert len(keys) == size
            seen += keys
            links = [
                about["href"] or "" for tag, about in page.found if tag == "a" and "before" in (about["href"] or "")
            ]
            path = links[0] if links else ""
        assert (seen, path) == ([f"s{number}" for number in reversed(range(7))], "")
        assert "from before that" in get(lab, "/?before=1.0-1").text
        assert "s6" in get(lab, "/?before=nonsense").text
        for number in range(10):
            send(lab, "agent:trace", 200.0 + number, session_id="s0", kind="x", summary="y")
        page = Elements(get(lab, "/sessions/s0?from=5").text)
        assert [about["data-key"] for tag, about in page.found if tag == "li"] == ["5", "6", "7", "8"]
        monkeypatch.setattr("glasslab.collector.web.data.MOST_EVENTS", 5)
        assert "its first 5 events" in get(lab, "/sessions/s0").text
    finally:
        lab.stop()


def test_a_page_that_takes_long_is_not_taken_for_a_client_that_drips(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.httpserver.REQUEST_SECONDS", 0.2)
    sessions = data.sessions
    monkeypatch.setattr("glasslab.collector.web.data.sessions", lambda *given: (time.sleep(0.5), sessions(*given))[1])
    assert get(lab, "/").status_code == 200


def test_what_a_page_takes_into_memory_is_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FRAME_BYTES", 3000)
    monkeypatch.setattr(data, "LISTED_BYTES", 2000)
    monkeypatch.setattr(data, "MOST_BYTES", 5000)
    lab = start_lab(tmp_path / "splunk")
    try:
        send(lab, "agent:session", 100, session_id="s", kind="session.start", model="m" * 2000)
        send(lab, "agent:trace", 101, session_id="s", kind="agent.start", question="x" * 2000)
        send(lab, "agent:session", 102, session_id="s", kind="x", text="x" * 3000)
        for at in range(103, 106):
            send(lab, "agent:session", at, session_id="s", kind="x", text="x" * 500)
        for number, size in enumerate((5000, 2000, 2000, 2000)):
            send(lab, "agent:network", 200 + number, kind="network.receipt", name=f"r{number}", pad="x" * size)
        (item,) = data.sessions(lab.store).items
        assert (item.start.raw, item.question) == (data.TOO_LARGE, data.TOO_LARGE)
        frames, complete = data.session(lab.store, "s")
        assert ([frame.raw == data.TOO_LARGE for frame in frames], complete) == ([False, False, True, False], False)
        first = data.receipts(lab.store)
        assert [frame.event["name"] for frame in first.items] == ["r3", "r2"]
        page = get(lab, f"/receipts?before={first.next}").text
        assert ("r1" in page, "r0" in page, page.count(data.TOO_LARGE)) == (True, False, 1)
        assert get(lab, "/").text.count(data.TOO_LARGE) == 1
    finally:
        lab.stop()


def test_an_empty_log_says_how_to_fill_it(tmp_path: Path) -> None:
    lab = start_lab(tmp_path / "splunk")
    try:
        assert "There is no session in the log" in get(lab, "/").text
        assert "There is no receipt" in get(lab, "/receipts").text
        assert "No detection has a form" in get(lab, "/detections").text
        (lab.home / "etc/apps/glasslab/default/savedsearches.conf").write_text(
            "[one]\nsearch = x\ndescription = finds\n"
        )
        page = get(lab, "/detections").text
        assert ("one" in page, "finds" in page, "nothing here does" in page) == (True, True, True)
    finally:
        lab.stop()
