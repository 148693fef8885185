"""Faults that were seeded into the Splunk app by somebody who had not seen the checker, or before it was run on them.

tests/splunk/app_seeded.jsonl has them, one a line: the file, the texts that are replaced (null: the file is taken
away), and what came of it at first (`first`), before the checker knew their kinds. `look` 1 are the 634 of somebody
who had not seen the checker; 2, 3 and 4 are of kinds that were in no list by then, by whoever writes the checker.
"""

import collections
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from splunkcheck import app

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "roles/splunk/files/app"
SEEDED = [
    json.loads(line) for line in (ROOT / "tests/splunk/app_seeded.jsonl").read_text(encoding="utf-8").splitlines()
]
# What the checker does not mind, and why.
UNMINDED = {
    "authorize2: srchTimeEarliest = -1": "it is the default: no limit",
    "csv2: line break inside quotes": "CSV has that",
    "saved2: alert.digest_mode = no": "no is one of Splunk's booleans",
    "spl3: | eval _x=1": "a field's name may begin so",
    "spl3: | eventstats count AS definition": "a field may be made anew",
    'spl3: | search kind="agent.*"': "a star is any letters there",
    "time: date": "a date is a time there",
    "view2: two datasources same name": "the name is only shown in the editor",
    "| eventstats sum(tool) AS s": "a fault: behind spath the checker does not know that it is a text",
}


def outcome(seeded: dict[str, Any], place: Path) -> str:
    """Apply an edit to the app in `place`; return whether the checker names its file, tells it elsewhere, or not."""
    file = place / seeded["file"]
    before = file.read_bytes() if file.is_file() else None
    text = (before or b"").decode("utf-8", "surrogateescape")
    if not all(old in text for old, _ in seeded["edits"] or []):
        return "gone: the app has changed"
    for old, new in seeded["edits"] or []:
        text = text.replace(old, new) if old == "\n" else text.replace(old, new, 1) if old else new
    try:
        if seeded["edits"] is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("utf-8", "surrogateescape"))
        found = [str(finding) for finding in app.check(place)]
    finally:
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)
        elif file.parent.name in ("local", "views") and not any(file.parent.iterdir()):
            file.parent.rmdir()
    if not found:
        return "nothing"
    return "named" if any(Path(seeded["file"]).stem in line for line in found) else "told of what uses it"


def test_what_was_seeded_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of rules that no other test has (`often`); all of them, with the figures, by GLASSLAB_SOAK=1."""
    place = tmp_path / "app"
    shutil.copytree(APP, place)
    whole = bool(os.environ.get("GLASSLAB_SOAK"))
    chosen = [one for one in SEEDED if whole or one.get("often")]
    now: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    unsaid, gone = [], 0
    for seeded in chosen:
        said = outcome(seeded, place)
        now[seeded["look"]][said] += 1
        gone += said.startswith("gone")
        unsaid += [seeded["name"]] if said == "nothing" else []
    with capsys.disabled():
        for look, counts in sorted(now.items()) if whole else ():
            first = collections.Counter(one["first"] for one in SEEDED if one["look"] == look)
            print(f"\nlook {look}: at first {dict(first)}; now {dict(counts)}", end="")
    assert len(chosen) > 50
    assert set(unsaid) <= set(UNMINDED)
    assert gone * 10 < len(chosen), "seed them anew: the app has changed too much"
