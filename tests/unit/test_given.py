"""What the scripts take from the environment: each kind of value with what it is, and one line for what it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import given

ROOT = Path(__file__).resolve().parents[2]


def refused(capsys: pytest.CaptureFixture[str], ended: pytest.ExceptionInfo[SystemExit]) -> str:
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


@pytest.mark.parametrize(("value", "on"), [(None, False), ("", False), ("0", False), ("1", True), (" 1 ", True)])
def test_a_switch(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHECK", raising=False)
    if value is not None:
        monkeypatch.setenv("CHECK", value)
    assert given.switch("CHECK") is on


@pytest.mark.parametrize("value", ["yes", "no", "true", "2", "00", "1 1"])
def test_a_switch_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CHECK", value)
    with pytest.raises(SystemExit) as ended:
        given.switch("CHECK")
    assert refused(capsys, ended) == f"glasslab: CHECK={value!r}: give 1, or leave it away"


def test_no_program_takes_a_word_for_a_switch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/trace.py", "verify"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "INDEX": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "glasslab: INDEX='no': give 1, or leave it away\n")
    others = [file for file in (ROOT / "scripts").glob("*.py") if file.name != "given.py"]
    assert len(others) > 10
    own = re.compile(r"environ[^\n]*(==|!=|not in|in) *\(?[^\n]*[\"']1[\"']")
    assert [file.name for file in others if own.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["destroy", "FORCE=no"], "FORCE=no"),
        (["destroy", "CACHE=yes"], "CACHE=yes"),
        (["destroy", "INVENTORY=x", "FORCE=off"], "FORCE=off"),
        (["test-emulated", "FRESH=no"], "FRESH=no"),
    ],
)
def test_makes_own_switches_are_refused_before_anything_runs(words: list[str], said: str) -> None:
    done = subprocess.run(
        ["make", "--just-print", *words, "LAB_ID=glunit"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith(f"*** {said}: give 1, or leave it away.  Stop.\n"), done.stderr
    assert "lab.py destroy" not in done.stdout


@pytest.mark.parametrize(("value", "force"), [("1", True), ("0", False), ("", False)])
def test_make_destroy_forces_only_when_it_is_told_to(value: str, force: bool) -> None:
    words = ["make", "--just-print", "destroy", f"FORCE={value}", "LAB_ID=glunit"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("--force" in done.stdout) is force
    assert ("FORCE=1 " in done.stdout) is force


def test_make_destroy_changes_nothing_when_it_is_to_say_what_it_would() -> None:
    words = ["make", "--just-print", "destroy", "LAB_ID=glunit"]
    for more, check in (([], False), (["CHECK=0"], False), (["CHECK=1"], True)):
        done = subprocess.run([*words, *more], cwd=ROOT, capture_output=True, text=True, check=True)
        (line,) = (line for line in done.stdout.splitlines() if "lab.py destroy" in line)
        assert line.endswith(" --check") is check


@pytest.mark.parametrize("slip", ["LABID=mine", "SNAPSHOOT=before", "force=1"])
def test_make_takes_no_name_that_it_does_not_know(slip: str) -> None:
    words = ["make", "--just-print", "destroy", "LAB_ID=glunit"]
    done = subprocess.run([*words, slip], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"{slip.partition('=')[0]}=... is no setting of these verbs" in line


def test_make_knows_each_name_that_a_verb_or_a_document_gives() -> None:
    texts = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md"), *(ROOT / "scripts").glob("*.py")]
    quoted = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
    given_there = {
        name
        for file in texts
        for words in re.findall(
            r"make [a-z-]+((?: +\[?[A-Z_]+=\S*)+)", quoted.sub("q", file.read_text(encoding="utf-8"))
        )
        for name in re.findall(r"([A-Z_]+)=", words)
    }
    assert {"PROXMOX_HOST", "QUESTION", "TEMPLATE"} <= given_there
    words = [
        "make",
        "--just-print",
        "help",
        *(f"{name}=1" for name in sorted(given_there | {"LAB_ID", "PIP_INDEX_URL"})),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("value", ["web", "0", "65536", "-1", "²", "8000.0", "9" * 5000])
def test_a_port_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WEB_PORT", value)
    with pytest.raises(SystemExit) as ended:
        given.port("WEB_PORT", 8000)
    assert refused(capsys, ended) == f"glasslab: WEB_PORT={value[:40]!r}: give a port, 1 to 65535"


@pytest.mark.parametrize(
    "value", ["", "http://splunk.example:8089", "splunk.example:8089", "https://[::1", "https://a:port", "https:///x"]
)
def test_an_address_that_is_none(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPLUNK_URL", value)
    with pytest.raises(SystemExit) as ended:
        given.https("SPLUNK_URL", "", "the management port")
    assert refused(capsys, ended) == f"glasslab: SPLUNK_URL={value!r}: give the management port"


def test_what_is_right_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPLUNK_URL", "https://[2001:db8::1]:8089/")
    monkeypatch.setenv("WEB_PORT", "65535")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HEC_TOKEN_FILE", "~/token")
    monkeypatch.setenv("HEC_TOKEN_ACK", "given")
    (tmp_path / "token").write_text("  from a file\n", encoding="utf-8")
    assert given.https("SPLUNK_URL", "", "") == "https://[2001:db8::1]:8089"
    assert given.port("WEB_PORT", 8000) == 65535
    assert given.port("PROXMOX_PORT_NOT_GIVEN", 8006) == 8006
    assert given.secret("HEC_TOKEN") == "from a file"
    assert given.secret("HEC_TOKEN_ACK") == "given"
    assert given.secret("HEC_TOKEN_DISABLED_NOT_GIVEN") == ""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none", "is no file; give one that holds the secret"),
        ("folder", "is no file; give one that holds the secret"),
        ("pipe", "is no file; give one that holds the secret"),
        ("empty", "is empty; put the secret into it"),
        ("binary", "cannot be read"),
        ("~nobodyhasthisname/key", "begins with a ~ of somebody whom this machine does not know"),
        ("x" * 5000, "cannot be read"),
    ],
)
def test_a_secret_that_cannot_be_had(
    path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_text(" \n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEC_TOKEN_FILE", path)
    with pytest.raises(SystemExit) as ended:
        given.secret("HEC_TOKEN")
    line = refused(capsys, ended)
    assert line.startswith(f"glasslab: HEC_TOKEN_FILE={path}")
    assert said in line


def test_the_proxmox_token_is_taken_as_its_playbook_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "proxmox_token.yml"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PROXMOX_TOKEN_SECRET_FILE": str(file)}
    words = [sys.executable, "-c", "import verify_proxmox; print(verify_proxmox.secret())"]
    for held, said in (
        ("11-22-33\n", "11-22-33\n"),
        ('---\n# The secret of a!b.\nmachine_proxmox_token_secret: "11-22-33"\n', "11-22-33\n"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "PROXMOX_TOKEN_SECRET_FILE is encrypted; give a file"),
    ):
        file.write_text(held, encoding="utf-8")
        done = subprocess.run(words, cwd=ROOT / "scripts", env=environment, capture_output=True, text=True, check=False)
        assert said in done.stdout + done.stderr
        assert done.returncode == (2 if "ANSIBLE" in held else 0)


@pytest.mark.parametrize("value", ["0", "-1", "8785", "1.5", "day", "²", "9" * 5000])
def test_hours_that_are_none_are_one_line(value: str, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LAB_ID": "nosuchlab"}
    words = [sys.executable, "scripts/flows.py"]
    for hours, said in ((value, "give whole hours, 1 to 8784"), ("8784", "no lab nosuchlab")):
        done = subprocess.run(
            words, cwd=ROOT, env=environment | {"HOURS": hours}, capture_output=True, text=True, check=False
        )
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2
        assert said in line
