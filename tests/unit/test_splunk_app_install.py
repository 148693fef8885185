"""What the role's program does to the app's folder on the log's machine."""

from __future__ import annotations

import getpass
import grp
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packertools import ROOT

FILES = ROOT / "roles/runtime/files"
OWN = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}


@pytest.fixture(name="app")
def app_of_two(tmp_path: Path) -> Path:
    """A small app, as the role carries it."""
    for name, text in (("default/app.conf", "[launcher]\n"), ("sqlite/denied.sql", "SELECT 1\n")):
        path = tmp_path / "app" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "app"


def install(app: Path, apps: Path, *, check: bool = False, **owner: str) -> subprocess.CompletedProcess[str]:
    """As the role's task runs it."""
    who = OWN | owner
    lister = [sys.executable, FILES / "folder_entries.py", app, apps / "glasslab", who["owner"], who["group"]]
    entries = subprocess.run([*lister, "default", "sqlite"], capture_output=True, text=True, check=True).stdout
    words = [sys.executable, "-c", (FILES / "put_files.py").read_text(), *(["--check"] if check else [])]
    return subprocess.run(words, input=entries, capture_output=True, text=True, check=False)


def installed(app: Path, apps: Path, *, check: bool = False) -> set[str]:
    """What it says it changes, below the apps' folder."""
    done = install(app, apps, check=check)
    assert (done.returncode, done.stderr) == (0, "")
    return {str(Path(line).relative_to(apps)) for line in done.stdout.splitlines()}


@pytest.fixture(name="apps")
def with_the_app(app: Path, tmp_path: Path) -> Path:
    """The folder with the app in it."""
    apps = tmp_path / "apps"
    apps.mkdir()
    everything = {"glasslab", *(f"glasslab/{name}" for name in ("default", "default/app.conf"))}
    everything |= {"glasslab/sqlite", "glasslab/sqlite/denied.sql"}
    assert installed(app, apps, check=True) == everything
    assert list(apps.iterdir()) == []
    assert installed(app, apps) == everything
    return apps


def test_files_and_modes_and_nothing_the_second_time(app: Path, apps: Path) -> None:
    there = {str(path.relative_to(apps)): oct(path.stat().st_mode & 0o7777) for path in apps.rglob("*")}
    assert there == {
        "glasslab": "0o750",
        "glasslab/default": "0o750",
        "glasslab/default/app.conf": "0o640",
        "glasslab/sqlite": "0o750",
        "glasslab/sqlite/denied.sql": "0o640",
    }
    assert (apps / "glasslab/sqlite/denied.sql").read_text() == "SELECT 1\n"
    assert installed(app, apps) == set()


@pytest.mark.parametrize(
    ("drift", "named"),
    [
        ("echo x >> default/app.conf", {"default/app.conf"}),
        ("chmod 644 default/app.conf", {"default/app.conf"}),
        ("chmod 700 sqlite", {"sqlite"}),
        ("rm -r sqlite", {"sqlite", "sqlite/denied.sql"}),
        ("mv default/app.conf default/a; ln -s a default/app.conf", {"default/app.conf", "default/a"}),
        ("mkdir -p sqlite/old/er; echo > sqlite/old/er/x", {"sqlite/old"}),
        ("echo > sqlite/renamed.sql", {"sqlite/renamed.sql"}),
    ],
)
def test_drift_is_told_and_put_right(app: Path, apps: Path, drift: str, named: set[str]) -> None:
    subprocess.run(drift, shell=True, cwd=apps / "glasslab", check=True)
    expected = {f"glasslab/{name}" for name in named}
    before = sorted(apps.rglob("*"))
    assert installed(app, apps, check=True) == expected
    assert sorted(apps.rglob("*")) == before
    assert installed(app, apps) == expected
    assert installed(app, apps) == set()
    test_files_and_modes_and_nothing_the_second_time(app, apps)


def test_what_users_made_stays(app: Path, apps: Path) -> None:
    theirs = [apps / "glasslab" / name for name in ("local/inputs.conf", "lookups/mine.csv", "metadata/local.meta")]
    for path in theirs:
        path.parent.mkdir()
        path.write_text("mine\n")
    assert installed(app, apps) == set()
    assert [path.read_text() for path in theirs] == ["mine\n"] * 3


@pytest.mark.parametrize("what", ["owner", "group"])
def test_an_owner_that_is_not_there(app: Path, tmp_path: Path, what: str) -> None:
    done = install(app, tmp_path, **{what: "nobody-of-that-name"})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "nobody-of-that-name: the role makes users and groups" in done.stderr
    assert not (tmp_path / "glasslab").exists()
    assert install(app, tmp_path, check=True, **{what: "nobody-of-that-name"}).stdout.count("\n") == 5
