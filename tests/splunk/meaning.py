"""What the app's detections mean, tried on a live Splunk: frames that each is for, and frames that only seem so.

The frames are those that the searches' SQLite forms are tried on (agent_src/tests/detection_cases.py). Of each case
they come from a host of their own, and the saved search is run on that host's alone: what else is in the index stays
out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import requests

from contract import Target, post
from liveapp import LiveError, Search, Splunk, unreachable

sys.path.append(str(Path(__file__).resolve().parents[2] / "agent_src" / "tests"))

from detection_cases import CASES, Sent, flows_at
from glasslab.frames import canonical_json

INDEX: Final = "`glasslab_index`"
PREFIX: Final = "Glasslab: "


@dataclass(frozen=True)
class Tried:
    """Frames of one case: the search that they are for, whether it has to find something, and their host."""

    search: str
    finds: bool
    host: str
    sent: list[Sent]


def tried(mark: str) -> Iterator[Tried]:
    """Yield what is to be sent."""
    for number, (name, (_, found, near)) in enumerate(CASES.items()):
        yield Tried(PREFIX + name, True, f"{mark}d{number:02}found", found)
        yield Tried(PREFIX + name, False, f"{mark}d{number:02}near", near)


def count(mark: str) -> int:
    """Return how many events that is."""
    return sum(len(one.sent) for one in tried(mark))


def send(one: Tried, target: Target) -> None:
    """Send a case's frames as their writers would: canonical JSON, which hashes are of. Raises LiveError."""
    now = time.time()
    body = b""
    for ago, sourcetype, event in flows_at(now, one.sent):
        about = {"time": f"{now - ago:.6f}", "host": one.host, "sourcetype": sourcetype, "index": target.index}
        body += json.dumps(about).encode()[:-1] + b', "event": ' + canonical_json(event) + b"}"
    try:
        answer = post(target, body)
    except requests.RequestException as error:
        raise LiveError(f"frames for {one.search}: {unreachable(error)}") from None
    if answer.status_code != 200:
        raise LiveError(f"frames for {one.search}: {answer.status_code} {answer.text[:200]}")


def wait(splunk: Splunk, target: Target, mark: str, seconds: float) -> None:
    """Wait until all that was sent is found. Raises LiveError."""
    query = f'search index={target.index} host="{mark}d*" | stats count'
    wanted, until = count(mark), time.monotonic() + seconds
    while True:
        found = int(splunk.run(Search("", query, "1", "+10y"), "search")[0][0]["count"])
        if found >= wanted:
            return
        if time.monotonic() > until:
            raise LiveError(f"of {wanted} frames {found} are in index {target.index} after {seconds:g} s")
        time.sleep(min(2.0, seconds / 4))


def outcome(splunk: Splunk, saved: dict[str, Search], one: Tried) -> str:
    """Run a search on a case's frames; return what is wrong, "" when nothing is."""
    search = saved.get(one.search)
    if search is None:
        return "is not in the app there"
    if INDEX not in search.text:
        return f"does not name {INDEX}, so it cannot be run on these frames alone"
    try:
        found, _ = splunk.run(replace(search, text=search.text.replace(INDEX, f'{INDEX} host="{one.host}"', 1)))
    except LiveError as error:
        return str(error)
    # The search of the baseline lists what is as pinned, too.
    found = [row for row in found if row.get("drift") != "as pinned"]
    if bool(found) == one.finds:
        return ""
    return "finds nothing in frames that it is for" if one.finds else f"finds {len(found)} in frames that only seem so"
