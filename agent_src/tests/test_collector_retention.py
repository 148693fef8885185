"""What stays in the store, for how long, and whose goes first."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from glasslab.collector import retention as retention_module
from glasslab.collector.config import Retention, load_config
from glasslab.collector.hec import Event
from glasslab.collector.retention import Keeper
from glasslab.collector.store import Store
from loglab import EVENT, FOR_EVER, Lab, envelope, start_lab, texts

NOW = EVENT.time


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start_lab(tmp_path / "splunk")
    yield lab
    lab.stop()


def aged(days: float, index: str = "agents") -> Event:
    return replace(EVENT, time=NOW - days * 86400, index=index, raw=f"{index} {days:g}")


def test_events_older_than_their_index_keeps_them_go(store: Store) -> None:
    store.add([aged(days, index) for index in ("agents", "other") for days in (0, 5, 9, 11, 40)])
    keeper = Keeper(Retention({"agents": 10 * 86400, "other": 4 * 86400}, 2**40))
    assert keeper.look(store._writing) == 6
    assert texts(store) == ["agents 9", "agents 5", "agents 0", "other 0"]


def test_the_oldest_go_when_all_take_more_room_than_they_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "BATCH", 10)
    store.add([replace(EVENT, raw=f"{number:03} " + "x" * 20_000) for number in range(100)])
    keeper = Keeper(Retention({"agents": 10**9}, 1_000_000))
    looks = 0
    while not keeper.seconds:
        keeper.look(store._writing)
        looks += 1
    kept = [int(text[:3]) for text in texts(store)]
    assert kept == list(range(100 - len(kept), 100))
    assert 40 <= len(kept) <= 50
    assert looks >= (100 - len(kept)) // 10 + 1
    assert Keeper(FOR_EVER).look(store._writing) == 0


def test_no_more_goes_than_is_over_and_never_the_newest(store: Store) -> None:
    store.add([replace(EVENT, raw="receipt")])
    store.add([replace(EVENT, raw=f"{number} " + "x" * 1_000_000) for number in range(5)])
    store.add([replace(EVENT, raw="newest")])
    keeper = Keeper(Retention({"agents": 10**9}, 4_000_000))
    while not keeper.seconds:
        keeper.look(store._writing)
    assert [text.split()[0] for text in texts(store)] == ["2", "3", "4", "newest"]
    none = Keeper(Retention({"agents": 10**9}, 0))
    while not none.seconds:
        none.look(store._writing)
    assert texts(store) == ["newest"]


def held(store: Store) -> dict[str, int]:
    """What each writer is said to hold, after a look at whether that is so."""
    with store.reading() as database:
        said = dict(database.execute("SELECT writer, bytes FROM held WHERE bytes != 0"))
        query = "SELECT writer, sum(length(CAST(raw AS BLOB)) + 500) FROM events GROUP BY writer"
        assert said == dict(database.execute(query))
    return said


def sent(writer: str, count: int, size: int = 20_000) -> list[Event]:
    return [
        replace(EVENT, writer=writer, raw=f"{writer} {number:03} " + "\u00e9" * (size // 2)) for number in range(count)
    ]


def settle(keeper: Keeper, store: Store) -> None:
    for _ in range(1000):
        if not keeper.look(store._writing):
            return
    pytest.fail("there is no end to it")


def kept(store: Store, writer: str) -> int:
    return sum(text.startswith(f"{writer} ") for text in texts(store))


@pytest.mark.parametrize("first", ["quiet", "noisy"])
def test_a_writer_that_floods_the_log_pushes_out_its_own_alone(store: Store, first: str) -> None:
    """However much one sends: who holds no more than its share keeps all of it."""
    store.add([*sent("agent", 40), *sent("mcp", 5)] if first == "quiet" else sent("noisy", 60))
    keeper = Keeper(Retention({"agents": 10**9}, 3_000_000))
    for _ in range(10):
        store.add(sent("noisy", 60))
        settle(keeper, store)
    if first == "noisy":
        store.add([*sent("agent", 40), *sent("mcp", 5)])
        store.add(sent("noisy", 60))
        settle(keeper, store)
    assert (kept(store, "agent"), kept(store, "mcp")) == (40, 5)
    assert 60 < kept(store, "noisy") < 110
    assert sum(held(store).values()) < 3_000_000


def test_writers_that_hold_the_same_lose_the_same(store: Store) -> None:
    for _ in range(10):
        store.add([*sent("agent", 20), *sent("mcp", 20)])
    keeper = Keeper(Retention({"agents": 10**9}, 3_000_000))
    settle(keeper, store)
    assert abs(kept(store, "agent") - kept(store, "mcp")) < 20
    assert 120 < kept(store, "agent") + kept(store, "mcp") < 150
    held(store)


def test_what_a_writer_holds_follows_what_goes_by_age(store: Store) -> None:
    store.add([replace(aged(days), writer=writer) for writer in ("agent", "mcp") for days in (0, 5, 50)])
    assert Keeper(Retention({"agents": 10 * 86400}, 2**40)).look(store._writing) == 2
    assert set(held(store)) == {"agent", "mcp"}


def test_a_store_of_before_writers_were_told_apart_is_used(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite3"
    Store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("DROP INDEX events_by_writer; DROP TABLE held; ALTER TABLE events DROP COLUMN writer;")
        row = '(time, host, source, sourcetype, "index", raw, received) VALUES (1, "", "", "", "", "old", 1)'
        database.execute(f"INSERT INTO events {row}")
        database.commit()
    for _ in range(2):  # and again
        store = Store(path)
        store.add(sent("agent", 1))
        assert held(store)[""] == 503
        store.close()


def test_the_writer_is_the_token_whatever_an_event_says(lab: Lab) -> None:
    said = envelope("x", source="glasslab:mcp", host="mcp", fields={"writer": "mcp"})
    assert lab.post(said).json()["code"] == lab.post(b"a line", "/raw?source=glasslab:mcp").json()["code"] == 0
    assert lab.rows("writer")[-2:] == ["agent", "agent"]


def test_a_store_that_is_never_idle_is_kept_small_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.sqlite3", Retention({"agents": 10 * 86400}, 2**40))
    try:
        store.add([aged(20)])
        store._keeper._next = 0.0  # due again
        store.add([aged(1)])
        store.add([aged(0)])  # the writer has looked when it takes this
        assert texts(store) == ["agents 1", "agents 0"]
    finally:
        store.close()


def test_retention_is_read_from_indexes_conf(tmp_path: Path) -> None:
    from loglab import make_home

    make_home(tmp_path)
    rules = load_config(tmp_path).retention
    assert rules.seconds["agents"] == 188697600
    assert rules.total_bytes == 2 * 500_000 * 1024**2
    conf = tmp_path / "etc/apps/glasslab/local/indexes.conf"
    conf.write_text(
        "[agents]\nfrozenTimePeriodInSecs = 86400\nmaxTotalDataSizeMB = 100\n[other]\nmaxTotalDataSizeMB = 1\n"
    )
    rules = load_config(tmp_path).retention
    assert (rules.seconds["agents"], rules.seconds["other"]) == (86400, 188697600)
    assert rules.total_bytes == 101 * 1024**2
