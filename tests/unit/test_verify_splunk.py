"""`make verify-splunk` against the collector's HEC and a double of Splunk's management port."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "agent_src" / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "splunk"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import loglab
import meaning
import verify_splunk
from detection_cases import CASES
from glasslab.collector.conf import parse
from glasslab.collector.store import FILE
from liveapp import LiveError, searches_of
from splunkdouble import TOKEN, VIEWS, SplunkDouble

APP = verify_splunk.ROOT / "roles/splunk/files/app/default"


SHOWN = "rules that drifted"


@dataclass
class Place:
    lab: loglab.Lab
    double: SplunkDouble
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *, meanings: int = 1, **changed: str) -> tuple[int, str, str]:
        """Run it as make would, but for most of the detections' cases; return exit code, stdout and stderr."""
        self.monkeypatch.setattr(
            meaning, "CASES", dict(sorted(CASES.items(), key=lambda one: one[0] != SHOWN)[:meanings])
        )
        environment = {
            "SPLUNK_URL": f"https://127.0.0.1:{self.double.port}",
            "SPLUNK_TOKEN": TOKEN,
            "HEC_URL": self.lab.hec_url,
            "HEC_TOKEN": loglab.AGENT_TOKEN,
            "HEC_TOKEN_ACK": loglab.ACK_TOKEN,
            "HEC_TOKEN_DISABLED": loglab.DISABLED_TOKEN,
            "HEC_CA": str(self.lab.ca),
            "RESULT": str(self.folder / "result.md"),
            "CONFIRM": "1",
            **changed,
        }
        for name in [name for name in os.environ if name.startswith(("SPLUNK", "HEC"))]:
            self.monkeypatch.delenv(name)
        for name, value in environment.items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.setattr(verify_splunk, "INDEXING_SECONDS", 0.05)
        self.monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as ended:
            verify_splunk.main()
        return int(ended.value.code or 0), *self.capsys.readouterr()

    def result(self) -> str:
        return (self.folder / "result.md").read_text(encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    lab = loglab.start_lab(tmp_path / "splunk")
    own = parse((APP / "savedsearches.conf").read_text(encoding="utf-8"))
    saved = {name: settings["search"] for name, settings in own.items() if "search" in settings}
    double = SplunkDouble(lab.home / "etc/auth/server.pem", lab.home / FILE, saved, tmp_path / "app")
    shutil.copytree(APP.parent, tmp_path / "app/etc/apps/glasslab")
    double.views |= {path.stem: VIEWS["simple"] for path in (APP / "data/ui/views").glob("*.xml")}
    yield Place(lab, double, tmp_path, monkeypatch, capsys)
    double.stop(seconds=0.2)
    lab.stop()


def test_all_as_published_is_written_down(place: Place) -> None:
    code, said, errors = place.run(meanings=99)
    assert (code, errors) == (0, "")
    assert "events in index agents" in said
    text = place.result()
    assert "enterprise 10.4.4 (build abc)" in text
    assert "| one event | as published |  |" in text
    assert "| a few kilobytes of gzip that unpack to more than a body may hold | not run |" in text
    assert "| view of_studio: chained | runs | 1 results |" in text
    assert "DIFFERS" not in text
    assert "### What detections find: 23 as meant\n" in text
    assert "| Glasslab: broken links in the chains | as meant |  |" in text
    searches = [text for text, _ in place.double.searches]
    assert "search index=agents * | stats count" in searches
    assert ("search index=agents * | table a", "-1h") in place.double.searches
    assert "search index=x" not in searches  # another app's
    assert len(place.lab.rows()) == int(said.split(" events in index")[0].split()[-1])  # no more than was said


def test_what_differs_is_named_and_exits_1(place: Place) -> None:
    name = sorted(place.double.saved)[0]
    del place.double.saved[name]
    place.double.fails = "| table a"
    # A token that may write elsewhere than its cases say: what they expect refused is taken.
    code, said, _ = place.run(HEC_TOKEN=loglab.ANY_TOKEN)
    assert code == 1
    assert "an index that the token may not write to: DIFFERS: status is 200, not 400" in said
    assert f"search {name}: FAILS: is not in the app there" in said
    assert "view simple: FAILS: 400 FATAL: Unknown search command \\| 'sats'." in said
    assert "| one event | DIFFERS | stored are [], not [" in place.result()


@pytest.mark.parametrize(
    ("rows", "said"),
    [([], "finds nothing in frames that it is for"), ([{"a": "1"}], "finds 1 in frames that only seem so")],
)
def test_a_detection_that_means_something_else_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, str]], said: str
) -> None:
    formed = SplunkDouble._formed

    def other(double: SplunkDouble, text: str, host: str) -> list[dict[str, str]]:
        return rows if "network.drift" in text else formed(double, text, host)

    monkeypatch.setattr(SplunkDouble, "_formed", other)
    assert place.run(meanings=2)[0] == 1
    assert f"| Glasslab: rules that drifted | FAILS | {said} |" in place.result()
    assert place.result().count(" as meant |") == 1


def test_a_tool_that_is_as_pinned_is_no_finding(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splunk's search of the baseline lists it; the form in SQLite, which answers here, does not."""
    name = "tool baseline and drift"
    monkeypatch.setattr(f"{__name__}.SHOWN", name)
    formed = SplunkDouble._formed
    monkeypatch.setattr(SplunkDouble, "_formed", lambda *given: [*formed(*given), {"drift": "as pinned"}])
    place.run()
    assert f"| Glasslab: {name} | as meant |  |" in place.result()


def test_what_splunk_warns_of_is_said(place: Place) -> None:
    place.double.warns = "glasslab_tools"
    assert place.run()[0] == 0
    assert "| search Glasslab: tool baseline and drift | runs | 1 results; WARN: The lookup table" in place.result()


def test_an_event_that_is_not_found_again_is_one_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Splunk takes an event for an index that does not exist, or that the reader may not search."""
    monkeypatch.setattr(SplunkDouble, "results", lambda *_: [])
    code, _, errors = place.run()
    assert (code, errors.count("\n")) == (2, 1)
    assert "is not found in index agents within 0.05 s" in errors
    assert len(place.lab.rows()) == 1


def test_an_app_that_is_not_there_is_said(place: Place) -> None:
    code, said, _ = place.run(SPLUNK_APP="another")
    assert code == 1
    assert "app another: FAILS: 404 ERROR: Not Found: is the app installed there" in said


def test_a_saved_searchs_own_value_stands_for_everything(place: Place) -> None:
    place.run()
    assert 'search index=agents session_id="*" | sort 0 _time' in [text for text, _ in place.double.searches]


def test_cases_without_their_token_are_not_run(place: Place) -> None:
    assert place.run(HEC_TOKEN_ACK="", HEC_TOKEN_DISABLED="")[0] == 0
    assert "| a disabled token | not run | no token of the kind disabled was given |" in place.result()
    assert "| what is indexed is told once | not run | no token of the kind ack was given |" in place.result()


REFUSALS = {
    "not asked": ({"CONFIRM": ""}, "nothing was done"),
    "no URL": ({"SPLUNK_URL": ""}, "SPLUNK_URL=''"),
    "plain http": ({"HEC_URL": "http://127.0.0.1:8088"}, "HEC_URL='http://127.0.0.1:8088': give the HTTP Event"),
    "no address": ({"SPLUNK_URL": "https://[::1"}, "SPLUNK_URL='https://[::1': give the management port"),
    "no folder for the result": (
        {"RESULT": "/nowhere/result.md"},
        "RESULT=/nowhere/result.md: there is no folder /nowhere",
    ),
    "a switch that is none": ({"CONFIRM": "no"}, "CONFIRM='no': give 1"),
    "no CA": ({"HEC_CA": "/nonexistent"}, "HEC_CA=/nonexistent"),
    "another CA": ({"HEC_CA": ""}, "certificate; set HEC_CA to the CA (PEM)"),
    "no token": ({"HEC_TOKEN": ""}, "no HEC_TOKEN"),
    "a token's file that is not there": ({"SPLUNK_TOKEN_FILE": "/nonexistent"}, "SPLUNK_TOKEN_FILE=/nonexistent"),
    "a wrong token": (
        {"SPLUNK_TOKEN": "other"},
        "401 WARN: call not properly authenticated: SPLUNK_TOKEN is not one of this Splunk's",
    ),
    "a HEC token of another Splunk": (
        {"HEC_TOKEN": "0a000000-0000-4000-8000-00000000ffff"},
        "403 code 4 Invalid token: HEC_TOKEN is none of this Splunk's",
    ),
    "a disabled HEC token": ({"HEC_TOKEN": loglab.DISABLED_TOKEN}, "403 code 1 Token disabled: HEC_TOKEN is disabled"),
    "a HEC token with useACK": ({"HEC_TOKEN": loglab.ACK_TOKEN}, "code 10 Data channel is missing: HEC_TOKEN has"),
    "an index that is not there": ({"HEC_INDEX": "nowhere"}, "code 7 Incorrect index: HEC_TOKEN may not write to"),
    "no HEC": ({"HEC_URL": "https://127.0.0.1:1"}, "https://127.0.0.1:1: no answer: "),
    "a place that is no Splunk": (
        {"SPLUNK_URL": "HEC"},
        "404 ",
    ),
    "no Splunk": ({"SPLUNK_URL": "https://127.0.0.1:1"}, "Connection refused"),
}


@pytest.mark.parametrize(("changed", "named"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_run_is_one_line_and_stores_nothing(place: Place, changed: dict[str, str], named: str) -> None:
    changed = {name: place.lab.hec_url if value == "HEC" else value for name, value in changed.items()}
    code, _, errors = place.run(**changed)
    assert code == 2
    assert named in errors
    assert errors.count("\n") == 1
    assert place.lab.rows() == []
    assert not (place.folder / "result.md").exists()


@pytest.mark.parametrize("source", ["<a>", "<dashboard><definition>no JSON</definition></dashboard>"])
def test_a_view_that_cannot_be_read_is_said(source: str) -> None:
    with pytest.raises(LiveError, match="view v cannot be read"):
        list(searches_of("v", source))
