"""The terminal table, and `glasslab trace` and `verify` against a real collector."""

import argparse
import io
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from glasslab import verified
from glasslab.frames import KINDS
from glasslab.recorder import LoggingError
from glasslab.search import StoredEvent
from glasslab.settings import HecSettings, VerifierSettings
from glasslab.verify import Problem, Report
from glasslab.views import add_parser
from glasslab.views.happened import TEMPLATES, happened, visible
from glasslab.views.table import print_table, report_lines, rows
from loglab import AGENT_TOKEN, MCP_TOKEN, SEARCH_TOKEN, Lab, start_lab
from session_sample import SESSION, is_trace, make_keys, make_session, write_public_keys

KEYS = make_keys()


def text_of(stored: list[StoredEvent], width: int | None = None) -> str:
    file = io.StringIO()
    print_table(stored, file, width)
    return file.getvalue()


def test_the_sample_session_is_25_rows() -> None:
    stored = make_session(KEYS)
    table = rows(stored)
    assert [row[0] for row in table] == [str(number) for number in range(1, 26)]
    assert [row[3] for row in table] == [item.event["kind"] for item in stored if is_trace(item)]
    assert table[0][1] == "0.000"
    assert table[1][1] == "0.020"
    said = [row[4] for row in table]
    assert said[0] == "What was it?"
    assert said[1] == "folder /srv/documents, pid 7"
    assert said[2] == "lab-files 1, MCP 2025-11-25"
    assert said[3] == "2 tools: list_files, read_file"
    assert said[4] == "turn 1: 2 messages"
    assert said[5] == "1 call: list_files; 136 + 29 tokens"
    assert said[6] == "run 1 call: list_files"
    assert said[7] == "list_files {}"
    assert said[8] == "2 files: access-policy.md, incident-report-2026-09.md"
    assert said[9] == "list_files: 43 characters in 1.5 ms"
    assert said[13] == 'read_file {"path": "incident-report-2026-09.md"}'
    assert said[14] == "incident-report-2026-09.md is inside"
    assert said[15] == "625 of 625 bytes of incident-report-2026-09.md"
    assert said[22] == "217 characters, stop; 446 + ? tokens"
    assert said[23] == "the answer is final"
    assert said[24] == "answered, 3 turns, 1.25 s: No allow-list."


def test_without_trace_the_summary_events_are_shown() -> None:
    table = rows(make_session(KEYS, full=False))
    assert [row[3] for row in table] == [
        "session.start",
        "llm",
        "toolcall",
        "llm",
        "toolcall",
        "toolcall",
        "llm",
        "session.end",
    ]
    assert table[-1][4] == "answered, 3 turns, 885 tokens"


def test_a_drift_of_the_tools_is_shown_among_trace_frames_and_without_them() -> None:
    fields = {"server": "lab-files", "changed": ["read_file"], "missing": [], "extra": ["send_mail"]}
    for full in (True, False):
        stored = make_session(KEYS, full=full)
        drift = replace(
            stored[0], sourcetype="agent:session", event={**stored[0].event, "kind": "tools.drift", **fields}
        )
        said = {row[3]: row[4] for row in rows([stored[0], drift])}
        assert said["tools.drift"] == "lab-files differs from the lock: changed read_file; extra send_mail"
        assert len(said) == 2


def test_a_session_that_ended_badly_says_why() -> None:
    event = {"kind": "agent.final", "status": "model_unreachable", "turns": 1, "seconds": 2, "detail": "refused"}
    assert happened(event) == "model_unreachable, 1 turn, 2 s, no answer: refused"


@pytest.mark.parametrize("width", [20, 80, 120, 200])
def test_every_frame_is_one_line_from_80_columns_up(width: int) -> None:
    lines = text_of(make_session(KEYS), width).splitlines()
    assert len(lines) == 26
    assert max(map(len, lines)) <= max(width, 80)
    assert not [line for line in lines if line.endswith(" ")]
    assert lines[0].split() == ["#", "seconds", "component", "event", "what", "happened"]
    assert lines[8].split()[3:5] == ["mcp.call_tool.request", "list_files"]


def test_a_hostile_document_cannot_drive_the_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\r\n[red]x[/red]\u202egnp.exe\u200b\u0085\ud800\U000e0041 :smile:"
    stored = make_session(KEYS)
    for number, item in enumerate(stored):
        fields = {name: hostile for name in item.event if name not in ("seq", "clock", "is_error")}
        kind = {"kind": item.event["kind"]}
        stored[number] = replace(item, event={**item.event, **fields, **kind})
    text = text_of(stored, 300)
    assert len(text.splitlines()) == 26
    letters = set(text) - {"\n"}
    assert not [letter for letter in letters if not letter.isprintable()]
    assert "\\x1b[2J" in text
    assert "[red]x[/red]" in text
    assert ":smile:" in text


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("value", [None, "text", 7, [], {}, [None, 1, {"name": 3}], {"total": None}, True])
def test_any_field_of_any_type_gives_one_short_line(kind: str, value: object) -> None:
    known = KINDS[kind]
    for event in ({"kind": kind}, {"kind": kind, **dict.fromkeys((*known.fields, *known.optional), value)}):
        line = happened(event)
        assert line
        assert line.isprintable()
        assert len(line) < 1000


def test_every_kind_has_a_template_and_an_unknown_one_its_summary() -> None:
    assert set(TEMPLATES) == set(KINDS)
    assert happened({"kind": "new.kind", "summary": "Something new"}) == "Something new"


def test_long_text_is_clipped_also_when_it_is_all_escapes() -> None:
    assert visible("a" * 1000, 10) == "a" * 10 + "…"
    assert len(visible("\U000e0041" * 10_000, 10)) <= 101
    assert visible("short") == "short"


def test_a_refused_path_and_an_error_stand_out() -> None:
    refused = {"kind": "server.path_check", "requested_path": "../.env", "inside_sandbox": False, "reason": "outside"}
    assert happened(refused) == "REFUSED: ../.env (outside)"
    failed = {"kind": "mcp.call_tool.result", "tool": "read_file", "result": "no\nway", "is_error": True}
    assert happened(failed) == "ERROR from read_file: no\\nway"


def test_where_a_session_comes_from_is_said() -> None:
    start = {"kind": "session.start", "model": "m"}
    assert happened(start) == "model m"
    assert happened({**start, "parent_session_id": "abc"}) == "model m; delegate of abc"
    assert happened({"kind": "agent.start", "question": "q", "continues": "x\ny"}) == "q; goes on with x\\ny"


def test_report_lines_escape_what_a_frame_brought() -> None:
    lines = report_lines(Report("s", [], [Problem(None, "kind \x1b[2J")]))
    assert lines == ["session: BROKEN: kind \\x1b[2J"]


# --- the commands, against a collector


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("collector") / "splunk")
    yield lab
    lab.stop()


@pytest.fixture
def configured(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The environment that `trace` and `verify` read."""
    write_public_keys(tmp_path / "keys", KEYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {
        "SPLUNK_URL": lab.search_url,
        "SPLUNK_TOKEN": SEARCH_TOKEN,
        "HEC_CA": str(lab.ca),
        "VERIFY_KEYS": str(tmp_path / "keys"),
    }.items():
        monkeypatch.setenv(name, value)
    return lab


def send(lab: Lab, stored: list[StoredEvent]) -> None:
    for item in stored:
        token = AGENT_TOKEN if item.event["component"] == "agent" else MCP_TOKEN
        body = {"event": item.event, "time": f"{item.time:.6f}", "sourcetype": item.sourcetype, "source": item.source}
        assert lab.post(json.dumps(body).encode(), "", f"Splunk {token}").json()["code"] == 0


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(arguments)
    return int(args.run(args))


def test_trace_and_verify_read_the_session_back(configured: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stored = make_session(KEYS)
    send(configured, stored)
    assert command("trace", SESSION) == 0
    assert len(capsys.readouterr().out.splitlines()) == 26
    assert command("trace", SESSION, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [item["event"] for item in printed["events"]] == [item.event for item in stored]
    assert [item["sourcetype"] for item in printed["events"]] == [item.sourcetype for item in stored]
    assert printed["events"][1]["_time"] == pytest.approx(stored[1].time, abs=0.001)
    assert command("verify", SESSION) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"session {SESSION}",
        "agent: 27 frames, 8 signatures: unbroken",
        "mcp: 6 frames, 6 signatures: unbroken",
    ]


def test_the_last_session_is_the_one_that_started_last(configured: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    later = "f" * 32
    send(configured, [replace(i, time=i.time + 1000) for i in make_session(KEYS, full=False, session_id=later)])
    assert command("trace", "--last", "--json") == 0
    assert json.loads(capsys.readouterr().out)["session_id"] == later


def test_verify_names_the_writer_and_the_frame(configured: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    broken = "b" * 32
    stored = make_session(KEYS, session_id=broken)
    stored[4] = replace(stored[4], event={**stored[4].event, "step": 9})
    send(configured, stored)
    assert command("verify", broken) == 1
    assert "agent: 27 frames, 8 signatures: BROKEN: seq 5 prev is not the hash" in capsys.readouterr().out
    assert command("verify", broken, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["whole"] is False
    assert report["writers"][0]["problems"][0]["seq"] == 5


def test_what_verify_finds_is_in_the_log_by_a_writer_of_its_own(
    configured: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEC_URL", configured.hec_url)
    monkeypatch.setenv("SIGNING_KEY_VERIFY", str(tmp_path / "keys" / "verifier.pem"))
    broken = "c" * 32
    stored = make_session(KEYS, session_id=broken)
    send(configured, [item for item in stored if (item.event["component"], item.event["seq"]) != ("agent", 3)])
    assert command("verify", broken, "--index") == 2
    assert "HEC_TOKEN_VERIFY is not set" in capsys.readouterr().err
    monkeypatch.setenv("HEC_TOKEN_VERIFY", MCP_TOKEN)
    assert command("verify", broken, "--index") == 1
    record = capsys.readouterr().err.split()[-1]
    assert command("trace", record, "--json") == 0
    (item,) = json.loads(capsys.readouterr().out)["events"]
    event = item["event"]
    assert (event["kind"], event["component"], event["verified_session"]) == ("session.verified", "verifier", broken)
    assert (event["whole"], event["found"]) == (False, len(event["problems"]))
    assert any("missing: 3" in problem for problem in event["problems"])
    monkeypatch.setenv("VERIFY_KEYS", str(tmp_path / "keys"))
    assert command("verify", record) == 0, "the record of a check can be checked"


def test_through_a_forward_it_is_the_log_that_is_meant_and_the_way_there_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: list[HecSettings] = []

    def no_recorder(hec: HecSettings, *_: object) -> None:
        taken.append(hec)
        raise LoggingError("log_unreachable", hec.url, "that is enough", "none")

    monkeypatch.setattr(verified, "forward", lambda ssh, host, port: nullcontext(2222))
    monkeypatch.setattr(verified, "Recorder", no_recorder)
    settings = VerifierSettings.load(
        hec_url="https://log.example:8088",
        hec_token_verify="t",
        signing_key_verify=tmp_path / "verifier.pem",
        splunk_ssh="pve",
    )
    with pytest.raises(LoggingError):
        verified.index(Report(SESSION, [], []), settings)
    assert (taken[0].url, taken[0].forward) == ("https://log.example:8088", "https://127.0.0.1:2222")


def test_an_id_that_begins_as_an_option_is_no_option(configured: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("verify", "--json", "--", "-h") == 2
    assert capsys.readouterr().err == "glasslab: '-h' is no session id; copy it from the end of `glasslab ask`\n"


@pytest.mark.parametrize("name", ["trace", "verify"])
def test_what_cannot_be_done_is_one_line_and_exit_2(
    name: str, configured: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(named: str, *arguments: str) -> None:
        assert command(name, *arguments) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("glasslab: ")
        assert named in output.err
        assert output.err.count("\n") == 1

    fails("session " + "0" * 32 + " is not in the log", "0" * 32)
    fails("is no session id", 'x" | delete')
    fails("give one of SESSION")
    fails("give one of SESSION", SESSION, "--last")
    monkeypatch.setenv("SPLUNK_TOKEN", "wrong")
    fails("check SPLUNK_TOKEN", SESSION)
    monkeypatch.setenv("SPLUNK_TOKEN", SEARCH_TOKEN)
    monkeypatch.setenv("SPLUNK_SSH", "pve'")
    fails('SPLUNK_SSH: "pve\'": No closing quotation', SESSION)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nprintf 'gone \\033[2J\\n' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SPLUNK_SSH", "pve")
    fails(r"ssh pve ended: gone \x1b[2J; check SPLUNK_SSH", SESSION)
    monkeypatch.delenv("SPLUNK_SSH")
    monkeypatch.setenv("SPLUNK_URL", "https://127.0.0.1:1")
    fails("https://127.0.0.1:1", SESSION)
    monkeypatch.delenv("SPLUNK_URL")
    fails("SPLUNK_URL", SESSION)


def test_verify_without_keys_is_one_line_and_exit_2(
    configured: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = "e" * 32
    send(configured, make_session(KEYS, session_id=session, full=False))
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("VERIFY_KEYS", str(tmp_path / "empty"))
    assert command("verify", session) == 2
    assert "VERIFY_KEYS" in capsys.readouterr().err
