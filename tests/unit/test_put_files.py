"""What the roles' one program does to a machine's files: it puts right what differs, names it, and nothing else."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROLES = Path(__file__).resolve().parents[2] / "roles"
PROGRAM = ROLES / "runtime/files/put_files.py"
OWN_GROUP = grp.getgrgid(os.getegid()).gr_name
OWN_USER = pwd.getpwuid(os.geteuid()).pw_name


def ran(entries: list[dict[str, Any]], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.read_text(encoding="utf-8"), *words]
    return subprocess.run(command, input=json.dumps(entries), capture_output=True, text=True, check=False, timeout=60)


def put(entries: list[dict[str, Any]], *words: str) -> list[str]:
    """The places that it names."""
    done = ran(entries, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.fixture
def entries(tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "etc"
    return [
        {"dest": str(folder), "mode": "0750", "group": OWN_GROUP},
        {"dest": str(folder / "token"), "mode": "0600", "content": "geheim\n"},
        {"dest": str(folder / "bytes"), "mode": "0644", "data": base64.b64encode(b"\xff\x00\n").decode()},
    ]


def test_what_is_not_there_is_made_and_the_second_run_changes_nothing(
    tmp_path: Path, entries: list[dict[str, Any]]
) -> None:
    assert put(entries) == [entry["dest"] for entry in entries]
    assert (tmp_path / "etc/token").read_text() == "geheim\n"
    assert (tmp_path / "etc/bytes").read_bytes() == b"\xff\x00\n"
    assert [mode(Path(entry["dest"])) for entry in entries] == [0o750, 0o600, 0o644]
    before = {path: path.stat().st_ctime_ns for path in tmp_path.rglob("*")}
    assert put(entries) == []
    assert {path: path.stat().st_ctime_ns for path in tmp_path.rglob("*")} == before
    assert len(before) == 3, "nothing beside them, no half-written file"


def test_check_names_what_would_change_and_changes_nothing(tmp_path: Path, entries: list[dict[str, Any]]) -> None:
    entries[0]["group"] = "a-group-that-is-still-to-be-made"
    assert put(entries, "--check") == [entry["dest"] for entry in entries]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["content", "mode", "a link", "a link that leads nowhere"])
def test_what_differs_is_put_right_and_nothing_else_is_named(
    tmp_path: Path, entries: list[dict[str, Any]], how: str
) -> None:
    put(entries)
    token, other = tmp_path / "etc/token", tmp_path / "other"
    other.write_text("geheim\n")
    other.chmod(0o600)
    if how == "content":
        token.write_text("anders\n")
    elif how == "mode":
        token.chmod(0o644)
    else:
        token.unlink()
        token.symlink_to(other if how == "a link" else tmp_path / "nowhere")
    assert put(entries) == [str(token)]
    assert not token.is_symlink()
    assert (token.read_text(), mode(token)) == ("geheim\n", 0o600)
    assert (other.read_text(), (tmp_path / "nowhere").exists()) == ("geheim\n", False)


def test_a_folder_of_another_mode_is_put_right(tmp_path: Path, entries: list[dict[str, Any]]) -> None:
    put(entries)
    (tmp_path / "etc").chmod(0o777)
    assert put(entries) == [str(tmp_path / "etc")]
    assert mode(tmp_path / "etc") == 0o750


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"dest": "{}/missing/file", "content": ""}, "put_files.py: {}/missing/file: No such file or directory"),
        ({"dest": "{}/taken", "content": ""}, "put_files.py: {}/taken: Is a directory"),
        ({"dest": "{}/file"}, "put_files.py: {}/file: File exists"),
        (
            {"dest": "{}/x", "content": "", "group": "no-such-group"},
            "put_files.py: there is no group no-such-group: the role makes users and groups before their files",
        ),
    ],
)
def test_what_cannot_be_put_is_one_line(tmp_path: Path, entry: dict[str, str], says: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("a file")
    done = ran([{"mode": "0644", **entry, "dest": entry["dest"].format(tmp_path)}])
    assert (done.returncode, done.stderr) == (1, f"{says.format(tmp_path)}\n")


def test_a_folder_of_documents_arrives_as_it_is(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a folder").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a folder/ä.txt").write_bytes("Größe".encode("latin-1"))
    (source / "plain.md").write_text("plain\n")
    (source / "linked.md").symlink_to("plain.md")
    command = [sys.executable, ROLES / "runtime/files/folder_entries.py", source, target, OWN_USER, OWN_GROUP]
    order = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    put(order)
    found = {str(path.relative_to(target)): path for path in target.rglob("*")}
    assert {name for name, path in found.items() if path.is_dir()} == {"a folder", "empty"}
    held = {name: path.read_bytes() for name, path in found.items() if path.is_file()}
    assert held == {"a folder/ä.txt": b"Gr\xf6\xdfe", "plain.md": b"plain\n", "linked.md": b"plain\n"}
    assert {mode(path) for path in found.values() if path.is_file()} == {0o640}
    assert {mode(path) for path in [target, *found.values()] if path.is_dir()} == {0o750}
