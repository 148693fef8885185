"""What `make snapshot` and the like hand to their playbooks, and how `make status` says what it found."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATUS_TEXT = ROOT / "playbooks" / "files" / "status_text.py"
NOW = 1_000_000.0


def loaded(file: Path, name: str) -> ModuleType:
    """A program that is in no package, under a name that nothing else has."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return loaded(ROOT / "scripts" / "lifecycle.py", "lifecycle_script")


@pytest.fixture(scope="module")
def status_text() -> ModuleType:
    return loaded(STATUS_TEXT, "status_text")


def test_what_is_given_becomes_the_playbooks_variables(verbs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"SNAPSHOT": " before ", "HOSTS": "agents", "REPLACE": "1", "REMOVE": "0", "REVERT": "", "PATH": "/bin"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert verbs.variables() == {
        "snapshot_name": "before",
        "lifecycle_hosts": "agents",
        "snapshot_replace": True,
    }


@pytest.mark.parametrize("name", ["REPLACE", "REMOVE", "REVERT", "CONFIRM", "FORCE", "CACHE", "CHECK", "JSON"])
def test_a_switch_that_is_neither_1_nor_0_is_one_line(
    verbs: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(words: list[str], *_: object, **__: object) -> None:
        pytest.fail(f"a playbook was started: {words}")

    monkeypatch.setattr(verbs, "child", played)
    monkeypatch.setattr(sys, "argv", ["lifecycle.py", "status"])
    monkeypatch.setenv(name, "yes")
    with pytest.raises(SystemExit) as ended:
        verbs.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"glasslab: {name}='yes': give 1, or leave it away\n"


def test_an_unknown_verb_or_inventory_is_one_line() -> None:
    for arguments, environment, said in (
        (["explode"], {}, "give one of snapshot, reset, rebuild, resize, status, destroy"),
        (["status"], {"INVENTORY": "/nowhere"}, "INVENTORY='/nowhere': there is no such inventory"),
    ):
        argv = [sys.executable, str(ROOT / "scripts/lifecycle.py"), *arguments]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 seconds"), (119, "119 seconds"), (120, "2 minutes"), (7200, "2 hours"), (2e5, "2 days")],
)
def test_an_age_is_said_in_the_largest_unit_that_it_fills_twice(
    status_text: ModuleType, seconds: float, said: str
) -> None:
    assert status_text.age(NOW - seconds, NOW) == said


def test_status_says_what_stands_and_what_could_not_be_asked(status_text: ModuleType) -> None:
    agent = {
        "machine": "agent",
        "state": "running",
        "at": NOW - 7200,
        "version": "abc",
        "snapshots": [{"name": "clean", "at": NOW - 300}],
        "predecessor": True,
    }
    found = {
        "lab_id": "x",
        "machines": [{"machine": "pve", "state": "hypervisor"}, agent],
        "unknown": ["logs"],
    }
    lines = status_text.lines(found, NOW)
    assert lines[0] == "lab x: 1 machines"
    assert lines[1].startswith(
        "  agent    running, made 2 hours ago by abc, its predecessor is kept: make rebuild LAB_ID=x goes on"
    )
    assert lines[1].endswith("snapshots: clean (5 minutes ago)")
    assert lines[2] == "  logs     could not be asked about: see above"


def test_status_works_when_nothing_stands() -> None:
    found = {"lab_id": "x", "machines": [{"machine": "agent", "state": "absent"}], "unknown": []}
    argv = [sys.executable, str(STATUS_TEXT)]
    done = subprocess.run(argv, input=json.dumps(found), capture_output=True, text=True, check=True)
    assert done.stdout == "lab x: nothing stands\n"
