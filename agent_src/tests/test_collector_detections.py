"""The SQLite forms of the app's detections, on recorded frames: what each finds, and what it does not take for it.

The app's SPL is not run here. Each form says what its search means; these cases try that meaning.
"""

import csv
import json
import re
import shutil
import time
from pathlib import Path

import pytest

from detection_cases import CASES, Sent, flows_at, recorded
from glasslab.collector.hec import Event
from glasslab.collector.store import Store
from glasslab.collector.web import detections, given
from glasslab.collector.web.detections import Detection
from glasslab.frames import canonical_json, event_hash
from glasslab.vocabulary import COMMON_FIELDS, KINDS
from session_sample import SESSION
from weblab import ODD

APP = Path(__file__).resolve().parents[2] / "roles/splunk/files/app"
PREFIX = "Glasslab: "
# What is true of any session alone in a log that no hypervisor writes to.
OF_ONE_SESSION = {"tool sequences seen rarely", "frames without a flow"}
OF_ANY_SOURCETYPE = {name for name in CASES if name.endswith("in the chains")} | {"frames cut off"}
NOW = time.time()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SPLUNK_HOME with the app."""
    home = tmp_path_factory.mktemp("forms")
    shutil.copytree(APP, home / "etc/apps/glasslab")
    return home


def keep(store: Store, sent: list[Sent], index: str = "agents", now: float | None = None) -> None:
    now = now or time.time()
    store.add([
        Event(now - ago, "h", "s", sourcetype, index, canonical_json(event).decode(), str(event.get("session_id")))
        for ago, sourcetype, event in flows_at(now, sent)
    ])  # fmt: skip


def found(store: Store, home: Path) -> dict[str, Detection]:
    ran = {one.title.removeprefix(PREFIX): one for one in detections.run_all(store, home)}
    assert {name: one.error for name, one in ran.items() if one.error} == {}
    return ran


@pytest.mark.parametrize("name", CASES)
def test_a_form_finds_what_it_is_for(store: Store, home: Path, name: str) -> None:
    expected, sent, _ = CASES[name]
    keep(store, sent)
    one = found(store, home)[name]
    row = dict(zip(one.columns, one.rows[0], strict=True))
    assert {column: row[column] for column in expected} == expected


@pytest.mark.parametrize("name", CASES)
def test_a_form_finds_nothing_in_what_only_seems_so(store: Store, home: Path, name: str) -> None:
    keep(store, CASES[name][2])
    keep(store, CASES[name][1], "other")  # and nothing of another index
    assert found(store, home)[name].rows == []


def test_an_honest_session_is_found_by_no_form(store: Store, home: Path) -> None:
    keep(store, recorded())
    assert {name for name, one in found(store, home).items() if one.rows} == OF_ONE_SESSION


@pytest.mark.parametrize("name", [name for name in CASES if name != "duplicates in the chains"])
def test_an_event_that_came_twice_counts_once(tmp_path: Path, home: Path, name: str) -> None:
    seen = []
    for copies in (1, 2):
        store = Store(tmp_path / f"{copies}.sqlite3")
        keep(store, CASES[name][1] * copies, now=NOW)
        seen.append(found(store, home)[name])
        store.close()
    once, twice = seen
    assert (twice.columns, twice.rows) == (once.columns, once.rows)


@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_ANY_SOURCETYPE])
def test_a_kind_is_looked_for_where_it_is_sent_to(store: Store, home: Path, name: str) -> None:
    other = {"agent:session": "agent:network", "agent:network": "agent:session"}
    sent = [(ago, other.get(sourcetype, "agent:session"), event) for ago, sourcetype, event in CASES[name][1]]
    keep(store, sent)
    assert found(store, home)[name].rows == []


@pytest.mark.parametrize("value", ["text", {"a": 1}, [1], None, 1e308, True], ids=repr)
def test_no_frame_ends_a_query(store: Store, home: Path, value: object) -> None:
    sent = [(60.0, "agent:session", {"session_id": value, "kind": value})]
    for kind in KINDS.values():
        event = dict.fromkeys((*COMMON_FIELDS, *kind.fields, *kind.optional), value)
        sent.append((60.0, kind.sourcetype, event | {"session_id": "s", "kind": kind.name}))
    keep(store, sent)
    store.add([Event(time.time(), "h", "s", "agent:llm", "agents", text, "s") for text in ODD])
    found(store, home)


# --- which searches have a form


def names(file: str) -> list[str]:
    return re.findall(r"^\[(Glasslab: .*)\]$", (APP / file).read_text(encoding="utf-8"), re.MULTILINE)


def detecting() -> set[str]:
    """The searches that are detections: those that are about a technique, and those on the view of detections."""
    with (APP / "lookups/glasslab_detections.csv").open(encoding="utf-8") as lines:
        about = {row["detection"] for row in csv.DictReader(lines)}
    view = (APP / "default/data/ui/views/detections.xml").read_text(encoding="utf-8")
    return about | set(re.findall(r'"ref": "(Glasslab: [^"]*)"', view))


def test_every_search_has_a_form_or_a_reason_why_not() -> None:
    forms = [file.read_text(encoding="utf-8").partition("\n")[0] for file in (APP / "sqlite").glob("*.sql")]
    formed = [first.removeprefix("-- ") for first in forms]
    reasons = names("sqlite/none.conf")
    assert sorted(formed + reasons) == sorted(names("default/savedsearches.conf"))
    assert {PREFIX + name for name in CASES} == set(formed)
    # Of the detections one alone: it lists what every session used.
    assert detecting() - set(formed) == {"Glasslab: tokens and cost by session and model"}


def test_a_reason_is_said_for_each_search_without_a_form(store: Store, home: Path) -> None:
    left = detections.searches(home, detections.run_all(store, home))
    assert [name for name, _, _ in left] == [n for n in names("default/savedsearches.conf") if PREFIX[:-2] in n
                                             and n in names("sqlite/none.conf")]  # fmt: skip
    assert all(description and reason for _, description, reason in left)


# --- what a form is given, and its bounds


def test_a_form_has_its_searchs_time_range_and_the_apps_macros(home: Path) -> None:
    around = given.read(home)
    assert around.macros == {
        "glasslab_index": "agents",
        "glasslab_limits": '["max_steps_reached", "max_tool_calls_reached", "max_tokens_reached", '
        '"max_cost_reached", "deadline_reached"]',
        "glasslab_rare": 2.0,
        "glasslab_genesis": "0" * 64,
    }
    ranges = ("-25h", "-30d", "-90s", "-5m", "-2w", "0", "", "@d")
    begins = [given.since({"dispatch.earliest_time": text}, 10_000_000.0) for text in ranges]
    assert begins == [9910000.0, 7408000.0, 9999910.0, 9999700.0, 8790400.0, 0.0, 0.0, 0.0]


def test_a_hash_is_that_of_the_event_as_it_was_sent() -> None:
    """The log keeps JSON with what is not ASCII escaped; a chain's hashes are of the text without escapes."""
    for text in ("plain", "\u00fc \u202e", 'a \\ "b" \\u00fc', "\n"):
        event = {"a": text, "n": 1.5}
        assert given._hash(json.dumps(event, separators=(",", ":"))) == event_hash(event)
    assert given._hash("\u00fc is no JSON") is None


def test_an_index_of_another_name_is_the_macros(store: Store, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "renamed")
    (tmp_path / "renamed/etc/apps/glasslab/local").mkdir()
    (tmp_path / "renamed/etc/apps/glasslab/local/macros.conf").write_text("[glasslab_index]\ndefinition = index=mine\n")
    keep(store, CASES["guardrail findings"][1], "mine")
    assert len(found(store, tmp_path / "renamed")["guardrail findings"].rows) == 1
    assert found(store, home)["guardrail findings"].rows == []


def test_an_event_is_looked_for_by_an_index(store: Store, home: Path) -> None:
    with store.reading() as database:
        given.prepare(database, given.read(home), 1000.0)
        for view, where, index in (
            ("frames", "sourcetype = 'agent:llm' AND kind = 'llm'", "events_by_sourcetype (sourcetype=? AND time>?)"),
            ("listed", "sourcetype = 'agent:session' AND kind = 'guardrail'", "events_by_kind (<expr>=? AND time>?)"),
            ("chains", "clock > 0", "events_by_age (index=? AND time>?)"),
        ):
            plan = database.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE {where}").fetchall()
            assert index in plan[0][3], plan


def test_detections_read_within_bounds(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc/apps/a/sqlite"
    folder.mkdir(parents=True)
    keep(store, recorded())
    monkeypatch.setattr(detections, "SECONDS", 0.2)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    forms = {
        "a": "-- Sessions\nSELECT session_id, count(*) AS frames FROM events GROUP BY 1 HAVING count(*) > 30",
        "b": "SELECT 1 WHERE 0",
        "c": f"{endless} SELECT x FROM n",
        "d": f"{endless} SELECT max(x) FROM n",
        "e": "DELETE FROM events",
        "f": "ATTACH 'x.db' AS x",
        "g": "SELECT 1; SELECT 2",
    }
    for name, text in forms.items():
        (folder / f"{name}.sql").write_text(text)
    (folder / "h.sql").write_bytes(b"\xff")
    ran = {one.name: one for one in detections.run_all(store, tmp_path)}
    assert (ran["a"].title, ran["a"].columns, ran["a"].rows[0][0]) == (
        "Sessions",
        ["session_id", "frames"],
        SESSION,
    )
    assert (ran["b"].rows, ran["b"].error) == ([], "")
    assert (len(ran["c"].rows), ran["c"].more) == (detections.MOST_ROWS, True)
    assert ran["d"].error == "took more than 0.2 s"
    assert [bool(ran[name].error) for name in "efgh"] == [True] * 4
    store.add([Event(time.time(), "h", "s", "x", "agents", "the store is as it was, and takes more")])
    monkeypatch.setattr(detections, "ALL_SECONDS", 0.0)
    assert next(one.error for one in detections.run_all(store, tmp_path) if one.name == "d") == "took more than 0 s"
