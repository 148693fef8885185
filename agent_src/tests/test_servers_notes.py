"""lab-notes: one file in its folder and no other, whatever lies there; whole or not at all; bounded."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from agent_bench import Bench
from agent_lab import make_agent, make_settings, never, scripted_model, turn
from glasslab import pins
from glasslab.agent import Outcome
from glasslab.approvals import Asked, Verdict
from glasslab.assembly import toolbox_maker
from glasslab.servers.__main__ import main
from glasslab.servers.notes import FILE, MAX_BYTES, Notes
from glasslab.servers.sandbox import MAX_READ_BYTES, SandboxError
from glasslab.settings import Settings, SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    return made


@pytest.fixture
def notes(folder: Path) -> Notes:
    return Notes(folder)


def test_what_is_kept_is_what_is_read_and_takes_the_place_of_what_was(notes: Notes, folder: Path) -> None:
    assert notes.read_notes() == "There are no notes yet."
    assert notes.write_notes("a — b\n\tc") == "Kept 10 bytes."
    assert notes.read_notes() == "a — b\n\tc"
    notes.write_notes("d")
    assert notes.read_notes() == "d"
    notes.write_notes("")
    assert notes.read_notes() == ""
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) & 0o137 == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x" * (MAX_BYTES + 1), f"have {MAX_BYTES + 1} bytes, at most {MAX_BYTES}"),
        ("é" * (MAX_BYTES // 2 + 1), f"at most {MAX_BYTES}"),
        ("a\ud800", "not valid Unicode"),
        ("a\u202eb", "U+202E"),
        ("a\U000e0041", "U+E0041"),
        ("a\x1b[2J", "U+001B"),
        ("a\0", "U+0000"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_is_not_kept_leaves_what_was(notes: Notes, folder: Path, text: str, named: str) -> None:
    notes.write_notes("before")
    with pytest.raises(ToolError) as caught:
        notes.write_notes(text)
    assert named in str(caught.value)
    assert str(caught.value).endswith("nothing was kept")
    assert notes.read_notes() == "before"
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_the_largest_notes_are_read_whole(notes: Notes) -> None:
    assert MAX_BYTES < MAX_READ_BYTES
    notes.write_notes("é" * (MAX_BYTES // 2))
    assert notes.read_notes() == "é" * (MAX_BYTES // 2)


def secret(folder: Path) -> Path:
    path = folder.parent / "secret"
    path.write_text("SECRET")
    return path


PLANTED: dict[str, Any] = {
    "symlink": lambda folder: (folder / FILE).symlink_to(secret(folder)),
    "hard link": lambda folder: os.link(secret(folder), folder / FILE),
    "FIFO": lambda folder: os.mkfifo(folder / FILE),
    "dangling link": lambda folder: (folder / FILE).symlink_to(folder.parent / "nowhere"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_was_planted_is_neither_read_nor_written(notes: Notes, folder: Path, planted: str) -> None:
    PLANTED[planted](folder)
    with pytest.raises(ToolError, match="is refused"):
        notes.read_notes()
    notes.write_notes("mine")
    assert (folder / FILE).read_text() == "mine"
    assert stat.S_ISREG((folder / FILE).lstat().st_mode)
    assert not (folder.parent / "nowhere").exists()
    if (folder.parent / "secret").exists():
        assert (folder.parent / "secret").read_text() == "SECRET"


def test_a_folder_of_that_name_stays(notes: Notes, folder: Path) -> None:
    (folder / FILE).mkdir()
    with pytest.raises(ToolError, match=r"could not be written .*; nothing was kept"):
        notes.write_notes("x")
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_a_folder_that_is_swapped_for_a_link_gains_nothing(notes: Notes, folder: Path) -> None:
    away = folder.parent / "away"
    folder.rename(away)
    other = folder.parent / "other"
    other.mkdir()
    folder.symlink_to(other)
    notes.write_notes("mine")
    assert (away / FILE).read_text() == notes.read_notes() == "mine"
    assert list(other.iterdir()) == []


def test_without_room_nothing_is_left_behind(notes: Notes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.write_notes("before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space left on device"):
        notes.write_notes("after")
    assert notes.read_notes() == "before"
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_it_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        Notes(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "LAB_NOTES is not set"),
        ({"LAB_NOTES": "{home}/nowhere"}, "is no folder; create it or name another one"),
        ({"LAB_NOTES": "{home}/docs", "LAB_DOCUMENTS": "{home}/docs"}, "overlap; keep notes in a folder of their own"),
        ({"LAB_NOTES": "{home}/docs/in", "LAB_DOCUMENTS": "{home}/docs"}, "overlap"),
        ({"LAB_NOTES": "{home}/docs", "LAB_DOCUMENTS": "{home}/docs/in"}, "overlap"),
        ({"LAB_NOTES": "{home}/link", "LAB_DOCUMENTS": "{home}/docs"}, "overlap"),
    ],
)
def test_a_folder_that_will_not_do_is_one_line(
    given: dict[str, str], named: str, clean_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (clean_home / "docs/in").mkdir(parents=True)
    (clean_home / "link").symlink_to(clean_home / "docs/in")
    for name, value in given.items():
        monkeypatch.setenv(name, value.format(home=clean_home))
    assert main(["notes", "--stdio"]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    for name, value in {"HEC_URL": "https://127.0.0.1:8088", "HEC_TOKEN": "a", "HEC_TOKEN_MCP": "b"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NOTES_SERVER", "stdio")
    with pytest.raises(SettingsError, match="LAB_NOTES"):
        Settings.load()


class Approves:
    """A person who approves everything."""

    caller = 0

    def decide(self, asked: Asked, stop: object) -> Verdict:
        return Verdict(True, "terminal", 0)


def ask(bench: Bench, folder: Path, tmp_path: Path, person: Any) -> Outcome:
    """Ask a model that keeps a note and reads it, with the real server as a child."""
    keep = turn(("write_notes", '{"text": "DECIDED: no allow-list"}'))
    script = {"strict": True, "turns": [keep, turn(("read_notes", "{}")), turn(content="Kept.")]}
    with scripted_model(script, tmp_path) as model:
        how = {"notes_server": "stdio", "lab_notes": str(folder), "mcp_server": "unix:/nowhere"}
        settings = make_settings(bench.hec, bench.ca, model.url, **how)
        whole = toolbox_maker(settings)

        def without_files() -> Any:
            tools = whole()
            tools.members = [member for member in tools.members if member.key == "lab-notes"]
            return tools

        agent = make_agent(settings, without_files, pins.read_lock())
        try:
            return agent.ask("q", never(), person=person)
        finally:
            agent.close()


def test_a_note_is_a_write_that_waits_for_a_person_and_is_on_record(bench: Bench, folder: Path, tmp_path: Path) -> None:
    assert ask(bench, folder, tmp_path, Approves()).status == "answered"
    assert (folder / FILE).read_text() == "DECIDED: no allow-list"
    assert "DECIDED: no allow-list" in bench.last_request()[-1]["content"]
    assert [event["class"] for event in bench.hec.events("approval.request")] == ["write"]
    assert [event["tool"] for event in bench.hec.events("mcp.call_tool.result")] == ["write_notes", "read_notes"]
