"""What a disk that is full or too large to check does to the store, and what answers its queries."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glasslab.collector import store as store_module
from glasslab.collector.ack import Acks
from glasslab.collector.retention import Keeper
from glasslab.collector.search import results
from glasslab.collector.store import KIND, LISTED, Store, StoreError
from glasslab.collector.web import data
from glasslab.queries import Query
from loglab import EVENT, FOR_EVER, Lab, envelope, start_lab, texts
from weblab import ODD


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start_lab(tmp_path / "splunk")
    yield lab
    lab.stop()


def answer(lab: Lab, body: bytes) -> tuple[int, int]:
    got = lab.post(body)
    return got.status_code, got.json()["code"]


def health(lab: Lab) -> tuple[int, int]:
    with lab.session() as session:
        got = session.get(f"{lab.hec_url}/services/collector/health", timeout=10)
    return got.status_code, got.json()["code"]


def test_a_full_disk_is_503_and_loses_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says of its own bound on pages what it says of a disk without room."""
    (pages,) = lab.store._writing.execute("PRAGMA page_count").fetchone()
    lab.store._writing.execute(f"PRAGMA max_page_count = {pages + 100}")
    accepted = []
    for number in range(40):
        status, code = answer(lab, envelope(f"{number:02} " + "x" * 20_000))
        if status == 200:
            accepted.append(f"{number:02}")
        else:
            assert (status, code) == (503, 9)
    assert 5 <= len(accepted) < 40
    assert [text[:2] for text in lab.rows()] == accepted
    # While the disk has no room, the next POST is not even tried, and the health says so.
    monkeypatch.setattr(store_module, "LEAST_FREE", 2**62)
    assert answer(lab, envelope("a")) == (503, 9)
    assert health(lab) == (503, 18)
    monkeypatch.undo()
    assert health(lab) == (200, 17)
    lab.store._writing.execute(f"PRAGMA max_page_count = {pages + 10_000}")
    assert answer(lab, envelope("room again")) == (200, 0)
    assert [text[:2] for text in lab.rows()] == [*accepted, "ro"]


def test_health_says_when_little_room_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "NEAR", 0.0)
        assert health(lab) == (200, 24)
    acks = Acks()
    lab.servers[0].acks = acks
    monkeypatch.setattr("glasslab.collector.ack.MOST_PENDING", 10)
    for number in range(10):
        assert health(lab) == (200, 25 if number >= 8 else 17)
        assert acks.full("token", "channel") is False
        acks.add("token", "channel")
    assert acks.full("token", "channel") is True


def test_a_store_too_large_to_check_in_time_is_used_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.sqlite3"
    store = Store(path)
    store.add([replace(EVENT, raw="x" * 200) for _ in range(5000)])
    store.close()
    monkeypatch.setattr(store_module, "CHECK_SECONDS", -1.0)
    store = Store(path)
    try:
        store.add([EVENT])
        assert len(texts(store)) == 5001
    finally:
        store.close()
    assert "too large to be checked whole" in capsys.readouterr().err


def test_a_damaged_store_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite3"
    store = Store(path)
    store.add([replace(EVENT, raw="x" * 3000) for _ in range(500)])
    store.close()
    data = bytearray(path.read_bytes())
    data[200_000:400_000] = b"\xff" * 200_000
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"events.sqlite3.*integrity check.*move the file away.*\.recover"):
        Store(path)


def test_every_query_is_answered_by_the_index_that_is_for_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many sessions, as SQLite's planner would otherwise choose to read, are seconds with a full store."""
    session = {"session_id": "s", "kind": "session.start"}
    store.add([replace(EVENT, sourcetype="agent:session", raw=json.dumps(session), session_id="s")])
    asked: list[str] = []
    connect = sqlite3.connect

    def watched(*given: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*given, **options)
        database.set_trace_callback(asked.append)
        return database

    monkeypatch.setattr("glasslab.collector.store.sqlite3.connect", watched)
    data.sessions(store)
    data.session(store, "s")
    data.receipts(store)
    for query in (Query("agents", "s"), Query("agents", None, "agent:llm", 5)):
        list(results(store, query))
    Keeper(FOR_EVER).look(store._writing)
    monkeypatch.undo()
    with store.reading() as database:
        plans = [" ".join(row[-1] for row in database.execute(f"EXPLAIN QUERY PLAN {query}")) for query in asked]
    assert len(plans) >= 8
    for query, plan in zip(asked, plans, strict=True):
        assert "SCAN" not in plan, (query, plan)
        assert "TEMP B-TREE" not in plan or "ORDER BY time, id" in query, (query, plan)
        if "session_id = 's'" in query:
            assert "events_by_session" in plan, (query, plan)
        if "sourcetype = 'agent:llm'" in query:
            assert "events_by_sourcetype" in plan, (query, plan)


def test_no_text_keeps_those_beside_it_from_being_stored(store: Store) -> None:
    """The list's index looks into each event: it must bear whatever a token's holder sends."""
    events = [
        replace(EVENT, sourcetype="agent:session", session_id=f"s{number}", raw=raw) for number, raw in enumerate(ODD)
    ]
    store.add([*events, replace(EVENT, raw="beside")])
    assert texts(store) == [*ODD, "beside"]
    assert data.sessions(store).items == []


def test_what_a_page_lists_is_found_by_an_index(store: Store) -> None:
    store.add(
        [replace(EVENT, sourcetype="agent:network", raw=raw) for raw in ('{"kind":"network.receipt"}', "no JSON")]
    )
    query = f"SELECT raw FROM events WHERE {LISTED} AND {KIND} = 'network.receipt' ORDER BY time DESC"
    with store.reading() as database:
        assert database.execute(query).fetchall() == [('{"kind":"network.receipt"}',)]
        plan: list[Any] = database.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("DELETE FROM events")
    assert "USING INDEX events_by_kind" in plan[0][-1]
