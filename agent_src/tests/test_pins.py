"""The lock: what it holds, what differs from it, what is shown of that and what is accepted."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_lab import LIST, READ
from glasslab import pins
from glasslab.pindiff import FILES, INSTRUCTIONS, MAX_LINES, accepted, diff, old_and_new
from glasslab.pins import compare, compare_files, file_hashes, lock_entry, read_lock
from soak import examples

LOCK = {"s": lock_entry([LIST, READ], "be kind")}
KEYS = st.sampled_from(["name", "description", "title", "inputSchema", "outputSchema", "annotations", "_meta", "icons"])


def shown(lock: pins.Lock, definitions: list[dict[str, Any]], text: str | None = "be kind") -> list[str]:
    found = compare(lock, "s", definitions, text)
    return diff(*old_and_new(lock, "s", found, definitions, text))


def test_the_packaged_lock_shows_what_it_pins() -> None:
    for entry in read_lock().values():
        definitions = list(entry["shown"]["tools"].values())
        assert lock_entry(definitions, entry["shown"]["instructions"])["tools"] == entry["tools"]


@given(st.lists(KEYS, min_size=1, max_size=3), st.text(min_size=1, max_size=5) | st.integers() | st.none())
@examples(100)
def test_any_change_anywhere_in_a_definition_is_a_difference(path: list[str], value: object) -> None:
    changed: Any = copy.deepcopy(READ)
    place = changed
    for key in path[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    place[path[-1]] = value
    if changed != READ:
        assert compare(LOCK, "s", [LIST, changed], "be kind")
    assert not compare(LOCK, "s", [READ, LIST], "be kind"), "the order of a list means nothing"


def test_a_diff_shows_the_line_that_differs_and_hides_nothing() -> None:
    lines = shown(LOCK, [LIST, {**READ, "description": "Read one\u202e file."}])
    assert lines[:2] == ["--- read_file (pinned)", "+++ read_file (now)"]
    assert '- "description": "Read one file.",' in lines
    assert '+ "description": "Read one\\u202e file.",' in lines
    assert all(line.isascii() for line in lines)
    assert not any("list_files" in line for line in lines)


def test_a_diff_of_what_is_new_gone_or_twice() -> None:
    new = shown(LOCK, [LIST, READ, {"name": "send\x1b[2J", "inputSchema": {}}])
    assert new[:2] == ["--- send\\x1b[2J (none)", "+++ send\\x1b[2J (now)"]
    assert shown(LOCK, [LIST])[:2] == ["--- read_file (pinned)", "+++ read_file (none)"]
    assert any('"name": "read_file"' in line for line in shown(LOCK, [LIST, READ, READ]) if line.startswith("+"))
    assert shown(LOCK, [LIST, READ], "be rude")[2:] == ["@@ -1 +1 @@", '-"be kind"', '+"be rude"']


def test_a_lock_of_the_older_form_is_read_and_compared() -> None:
    old = {"s": {"instructions": LOCK["s"]["instructions"], "tools": LOCK["s"]["tools"]}}
    assert not compare(old, "s", [LIST, READ], "be kind")
    assert f'- "sha256": "{LOCK["s"]["tools"]["read_file"]}"' in shown(old, [LIST, {**READ, "title": "x"}])


def test_a_diff_is_bounded() -> None:
    lines = shown(LOCK, [LIST, READ, {"name": "big", "inputSchema": {f"p{n}": "x" * 9000 for n in range(5000)}}])
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].endswith("more lines]")
    assert max(map(len, lines)) <= 500


def test_what_is_accepted_and_nothing_else() -> None:
    send = {"name": "send", "inputSchema": {}}
    now = [{**LIST, "title": "x"}, {**READ, "title": "y"}, send]
    listed = lock_entry(now, "be rude")
    one = {"s": accepted(LOCK["s"], listed, ["read_file"])}
    left = compare(one, "s", now, "be rude")
    assert (left.changed, left.extra, left.instructions_changed) == (["list_files"], ["send"], True)
    rest = {"s": accepted(one["s"], listed, ["list_files", "send", INSTRUCTIONS])}
    assert not compare(rest, "s", now, "be rude")
    assert rest["s"] == listed
    gone = {"s": accepted(LOCK["s"], lock_entry([LIST], "be kind"), ["read_file"])}
    assert not compare(gone, "s", [LIST], "be kind")
    filed = lock_entry([LIST], "be kind", {"/x": "1"})
    assert "files" not in accepted(LOCK["s"], filed, ["read_file"])
    assert accepted(LOCK["s"], filed, [FILES])["files"] == {"/x": "1"}
    assert accepted(filed, gone["s"], ["list_files"])["files"] == {"/x": "1"}


def test_files_of_a_server(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text("print(1)")
    lock = {"s": lock_entry([LIST], None, file_hashes([program]))}
    assert not compare_files(lock, "s", file_hashes([program]))
    program.write_text("print(2)")
    assert compare_files(lock, "s", file_hashes([program])).files == [str(program)]
    program.unlink()
    found = compare_files(lock, "s", file_hashes([program]))
    assert str(found) == f"files: {program}"
    assert compare_files(lock, "s", {}).files == [str(program)], "a pinned file that is no part of it any more"
    assert compare_files({"s": lock_entry([LIST], None)}, "s", {"/x": "0" * 64}).files == ["/x"]


@pytest.mark.parametrize("what", ["nothing", "folder", "pipe", "/dev/zero"])
def test_what_cannot_be_read_as_a_file_is_never_the_pinned_one(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    found = file_hashes([tmp_path / what])
    assert compare_files({"s": lock_entry([LIST], None, found)}, "s", found).files == [str(tmp_path / what)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"s": 1}', '{"s": {"tools": []}}', '{"s": {"tools": {}, "files": 7}}', "[" * 99_999]
)
def test_a_lock_that_is_none_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(pins.LockError, match="glasslab pin") as caught:
        read_lock(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(pins.LockError, match="No such file"):
        read_lock(tmp_path / "nothing.json")


def test_a_lock_is_json_that_anybody_can_read_and_check() -> None:
    assert json.loads(json.dumps(LOCK)) == LOCK
