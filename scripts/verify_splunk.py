"""make verify-splunk SPLUNK_URL=https://splunk.example:8089: what only a real Splunk can show, by its REST API.

It sends the cases of tests/splunk/hec_contract.yml to the HTTP Event Collector, runs every saved search of the app and
every search behind its views, and has each detection look at frames that it is for and at frames that only seem so. It
says what it will create, and asks (CONFIRM=1 answers). The result is written as Markdown for docs/VERIFICATION.md, to
the file RESULT (verify-splunk.md). Exit code: 0 all as published, 1 something is not, 2 not run.

From the environment, secrets also as NAME_FILE: SPLUNK_URL (the management port), SPLUNK_TOKEN (may search the index
and read the app), HEC_URL (default: SPLUNK_URL's host, port 8088), HEC_TOKEN (of the agent: its one index is HEC_INDEX,
without useACK), HEC_TOKEN_ACK (the same with useACK) and HEC_TOKEN_DISABLED (a disabled one), without which their cases
are not run, HEC_INDEX (agents), HEC_CA (what certificates are verified by; default: public CAs), SPLUNK_APP (glasslab).
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import given
from lab import ROOT, fail, run

sys.path.append(str(ROOT / "tests" / "splunk"))

import requests

import contract
import meaning
from glasslab.collector.conf import parse
from liveapp import LiveError, Search, Splunk, unreachable

APP = ROOT / "roles" / "splunk" / "files" / "app" / "default"
INDEXING_SECONDS = 60.0  # that an event may take from its 200 to the index
REMEDIES = {
    1: "HEC_TOKEN is disabled; enable it, or give another",
    4: "HEC_TOKEN is none of this Splunk's",
    7: "HEC_TOKEN may not write to HEC_INDEX, or there is no such index; create it, or set HEC_INDEX",
    10: "HEC_TOKEN has useACK; give one without, and this one as HEC_TOKEN_ACK",
}
SETTLE = 0.25  # of that time, in which what should not be there may still turn up
Row = tuple[str, str, str]  # what, outcome, detail


def places() -> tuple[Splunk, contract.Target]:
    """Splunk and its HEC as the environment names them; ends with one line when something is missing."""
    url = given.https("SPLUNK_URL", "", "the management port, e.g. SPLUNK_URL=https://splunk.example:8089")
    host = urlsplit(url).hostname or ""
    here = f"https://[{host}]:8088" if ":" in host else f"https://{host}:8088"
    hec = given.https("HEC_URL", here, "the HTTP Event Collector's port, e.g. HEC_URL=https://splunk.example:8088")
    ca = given.text("HEC_CA")
    verify: str | bool = str(given.file("HEC_CA", ca, "the CA of Splunk's certificates (PEM)")) if ca else True
    names = {"agent": "HEC_TOKEN", "ack": "HEC_TOKEN_ACK", "disabled": "HEC_TOKEN_DISABLED"}
    tokens = {use: given.secret(name) for use, name in names.items()}
    searches = given.secret("SPLUNK_TOKEN")
    for name, value in (("SPLUNK_TOKEN", searches), ("HEC_TOKEN", tokens["agent"])):
        if not value:
            fail(f"no {name}: set {name}_FILE to a file that holds it")
    known = {name: value for name, value in tokens.items() if value}
    target = contract.Target(hec, known, given.text("HEC_INDEX", "agents"), verify, patience=INDEXING_SECONDS)
    return Splunk(url, searches, verify, given.text("SPLUNK_APP", "glasslab")), target


def ask(splunk: Splunk, target: contract.Target, mark: str, version: str) -> None:
    """Say what is going to happen, and have it confirmed."""
    runnable = [case for case in contract.cases() if not contract.missing(case, target)]
    events = 1 + meaning.count(mark) + sum(len(case.get("stored", [])) for case in runnable)
    print(f"{splunk.url} is {version}. This creates there, and leaves:")
    print(f"  {events} events in index {target.index}, over {target.url}; their texts or hosts hold {mark}")
    print(f"  search jobs of app {splunk.app}, which end by themselves")
    print("Nothing is configured, changed or removed. This would hide the events:")
    print(f"  index={target.index} ({mark}* OR host={mark}*) | delete")
    sys.stdout.flush()
    if not given.switch("CONFIRM") and not (sys.stdin.isatty() and input("yes, to go on: ").strip() == "yes"):
        fail("nothing was done: answer yes at a terminal, or set CONFIRM=1")


def reach(splunk: Splunk, target: contract.Target, mark: str) -> None:
    """Send one event and find it again; ends with one line where that cannot be: nothing else could be told then."""
    try:
        answer = contract.post(target, json.dumps({"event": f"{mark} one event", "index": target.index}).encode())
        said = answer.json() if isinstance(answer.json(), dict) else {}
    except requests.JSONDecodeError:
        fail(f"{target.url} answered {answer.status_code} and no JSON: is HEC_URL the HTTP Event Collector's?")
    except requests.RequestException as error:
        fail(f"{target.url}: {unreachable(error)}")
    if said.get("code") != 0:
        remedy = REMEDIES.get(said.get("code"), "the first event has to be taken")
        fail(f"{target.url}: {answer.status_code} code {said.get('code')} {said.get('text')}: {remedy}")
    until = time.monotonic() + INDEXING_SECONDS
    while not splunk.find(target.index, f"{mark} one*"):
        if time.monotonic() > until:
            fail(
                f"an event that HEC took is not found in index {target.index} within {INDEXING_SECONDS:g} s: the index "
                "is not there (a 200 does not say so), or the role of SPLUNK_TOKEN may not search it: set HEC_INDEX"
            )
        time.sleep(min(2.0, INDEXING_SECONDS / 4))


def contract_rows(splunk: Splunk, target: contract.Target, mark: str) -> list[Row]:
    """The cases of the contract: each answer compared, then what is in the index under each mark."""
    rows: list[Row] = []
    runs: list[contract.Run] = []
    for number, case in enumerate(contract.cases()):
        reason = contract.missing(case, target)
        if reason:
            rows.append((case["name"], "not run", reason))
            continue
        try:
            runs.append(contract.run(case, target, f"{mark}x{number:03}"))
        except requests.RequestException as error:
            rows.append((case["name"], "DIFFERS", unreachable(error)))
    begun = time.monotonic()
    while True:
        found = splunk.find(target.index, f"{mark}x*")
        stored = {one.mark: [item for item in found if one.mark in item.raw] for one in runs}
        lacking = [one for one in runs if len(stored[one.mark]) < len(one.case.get("stored", []))]
        passed = time.monotonic() - begun
        if passed >= INDEXING_SECONDS or (not lacking and passed >= INDEXING_SECONDS * SETTLE):
            break
        time.sleep(min(2.0, INDEXING_SECONDS / 4))
    for one in runs:
        faults = one.faults + contract.faults_of_stored(one, stored[one.mark])
        rows.append((one.case["name"], "DIFFERS" if faults else "as published", "; ".join(faults)))
    return rows


def searched(splunk: Splunk, searches: list[Search], what: str) -> list[Row]:
    """Run searches; a row each."""
    rows: list[Row] = []
    for search in searches:
        try:
            found, warned = splunk.run(search)
            rows.append((f"{what} {search.owner}", "runs", "; ".join([f"{len(found)} results", *warned])))
        except LiveError as error:
            rows.append((f"{what} {search.owner}", "FAILS", str(error)))
    return rows


def app_rows(splunk: Splunk) -> list[Row]:
    """Every saved search and view of the app, and those of this checkout that are not there."""
    rows: list[Row] = []
    file = APP / "savedsearches.conf"
    own = parse(file.read_text(encoding="utf-8")) if file.is_file() else {}
    wanted = {name for name, settings in own.items() if "search" in settings}
    folder = APP / "data" / "ui" / "views"
    views_wanted = {path.stem for path in folder.glob("*.xml")} if folder.is_dir() else set()
    try:
        saved, views = splunk.saved_searches(), splunk.views()
    except LiveError as error:
        said = f"{error}: is the app installed there, and may the role of SPLUNK_TOKEN see it?"
        return [(f"app {splunk.app}", "FAILS", said)]
    rows += [(f"search {name}", "FAILS", "is not in the app there") for name in sorted(wanted - set(saved))]
    rows += [(f"view {name}", "FAILS", "is not in the app there") for name in sorted(views_wanted - set(views))]
    rows += searched(splunk, [saved[name] for name in sorted(saved)], "search")
    for name in sorted(views):
        rows += searched(splunk, views[name], "view")
    return rows


def meaning_rows(splunk: Splunk, target: contract.Target, mark: str) -> list[Row]:
    """Each detection on frames that it is for, and on frames that only seem so."""
    saved = splunk.saved_searches()
    for one in meaning.tried(mark):
        meaning.send(one, target)
    meaning.wait(splunk, target, mark, INDEXING_SECONDS)
    faults: dict[str, list[str]] = {}
    for one in meaning.tried(mark):
        fault = meaning.outcome(splunk, saved, one)
        faults.setdefault(one.search, []).extend([fault] if fault else [])
    return [(name, "FAILS" if said else "as meant", "; ".join(dict.fromkeys(said))) for name, said in faults.items()]


def markdown(version: str, mark: str, groups: dict[str, list[Row]]) -> str:
    """The result as a section for docs/VERIFICATION.md."""
    lines = [
        f"## Splunk, {datetime.now(UTC):%Y-%m-%d %H:%MZ}",
        "",
        f"`make verify-splunk` against {version}; what it stored holds `{mark}`.",
        "A search that runs is one that Splunk parsed and ran without an error; how a view looks was not seen.",
    ]
    for title, rows in groups.items():
        lines += ["", f"### {title}: {tally(rows)}", "", "| what | outcome | detail |", "|---|---|---|"]
        lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """A text in one cell of a table, whatever Splunk put into it."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("<", "&lt;")[:500]


def tally(rows: list[Row]) -> str:
    """How many rows had which outcome."""
    outcomes = [row[1] for row in rows]
    return ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes)) or "none there"


def main() -> None:
    """Ask, run, write."""
    splunk, target = places()
    file = Path(given.text("RESULT", "verify-splunk.md"))
    if not file.parent.is_dir():
        fail(f"RESULT={file}: there is no folder {file.parent}; make it, or name another file")
    mark = f"glasslab{uuid.uuid4().hex[:10]}"
    try:
        version = splunk.version()
    except LiveError as error:
        fail(f"{splunk.url}: {error}")
    ask(splunk, target, mark, version)
    try:
        reach(splunk, target, mark)
    except LiveError as error:
        fail(f"{splunk.url}: {error}")
    groups: dict[str, Callable[[], list[Row]]] = {
        "HEC contract": lambda: contract_rows(splunk, target, mark),
        f"App {splunk.app}": lambda: app_rows(splunk),
        "What detections find": lambda: meaning_rows(splunk, target, mark),
    }
    done: dict[str, list[Row]] = {}
    for title, work in groups.items():
        try:
            done[title] = work()
        except LiveError as error:
            done[title] = [(title, "FAILS", str(error))]
        print(f"{title}: {tally(done[title])}", flush=True)
        for row in done[title]:
            if row[1] in ("DIFFERS", "FAILS"):
                print(f"  {cell(row[0])}: {row[1]}: {cell(row[2])}")
    try:
        file.write_text(markdown(version, mark, done), encoding="utf-8")
    except OSError as error:
        fail(f"RESULT={file}: {error.strerror}")
    print(f"written to {file}")
    sys.exit(any(row[1] in ("DIFFERS", "FAILS") for rows in done.values() for row in rows))


if __name__ == "__main__":
    run(main)
