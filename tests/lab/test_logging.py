"""Recording before acting, on the standing lab: what a failing log lets happen, by records not the agent's."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

import lab
from labtools import ROOT, ask, events, model_calls, on

QUESTION = "What was the root cause of the September incident?"
REPORT, POLICY = "incident-report-2026-09.md", "access-policy.md"
GATE_PORT = 18088
COMMITS = 14
REDIRECT = f"-p tcp --dport 8088 -s 10.10.10.10 -j REDIRECT --to-ports {GATE_PORT}"

TRACE = [
    "agent.start",
    "server.start",
    "mcp.discover",
    "mcp.tools_list",
    "llm.request",
    "llm.response",
    "agent.decision",
    "mcp.call_tool.request",
    "server.list_files",
    "mcp.call_tool.result",
    "llm.request",
    "llm.response",
    "agent.decision",
    "mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result",
    "mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result",
    "llm.request",
    "llm.response",
    "agent.decision",
    "agent.final",
]
SUMMARY = ["agent:session", "agent:llm", "agent:toolcall", "agent:llm", "agent:toolcall", "agent:toolcall", "agent:llm"]


def expected_after(commits: int) -> dict[str, int]:
    """What may have happened when so many commits were acknowledged: each action needs the commit that releases it."""
    return {
        "model calls": (commits >= 3) + (commits >= 6) + (commits >= 13),
        "listings": int(commits >= 4),
        REPORT: int(commits >= 8),
        POLICY: int(commits >= 11),
        "answers": int(commits >= 14),
    }


class Reader:
    """Lines of a process on a lab machine, collected until it is ended."""

    def __init__(self, machine: str, command: str) -> None:
        self.process = subprocess.Popen(
            lab.ssh(machine, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        stream: IO[str] | None = self.process.stdout
        assert stream is not None
        self.machine, self.stream = machine, stream
        word, self.pid = self.stream.readline().split()
        assert word == "ready"

    def end(self) -> list[str]:
        """End it by its own id on its machine; return what it printed."""
        on(self.machine, f"kill {int(self.pid)}", check=False)
        self.process.wait(10)
        return [line.strip() for line in self.stream.read().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    """The gate's and the watcher's files on their machines, and the redirection to the gate; all taken away again."""
    on("logs", "cat > /root/hec_gate.py", stdin=(ROOT / "tests/lab/hec_gate.py").read_text(encoding="utf-8"))
    on("agent", "cat > /root/open_watch.py", stdin=(ROOT / "tests/lab/open_watch.py").read_text(encoding="utf-8"))
    yield
    on("logs", "rm -f /root/hec_gate.py")
    on("agent", "rm -f /root/open_watch.py")


@pytest.fixture(scope="class")
def gated() -> Iterator[None]:
    """While it lasts, the agent's machine reaches the gate's port instead of the collector's."""
    on("logs", f"while iptables -t nat -D PREROUTING {REDIRECT} 2>/dev/null; do :; done")  # of a test that was killed
    try:
        on("logs", f"iptables -t nat -I PREROUTING {REDIRECT} && systemctl restart glasslab-collector")
        yield
    finally:
        on("logs", f"iptables -t nat -D PREROUTING {REDIRECT}")


@contextmanager
def gate(commits: int, mode: str, delay: float = 7.0) -> Iterator[None]:
    options = f"--port {GATE_PORT} --commits {commits} --mode {mode} --delay {delay}"
    reader = Reader("logs", f"exec /opt/glasslab/venv/bin/python /root/hec_gate.py {options}")
    try:
        yield
    finally:
        reader.end()


def observe(commits: int, mode: str) -> tuple[dict[str, int], subprocess.CompletedProcess[str], float]:
    """Ask with a log that fails after so many commits; return what happened, by records that are not the agent's."""
    calls = model_calls()
    watch = Reader("agent", "exec python3 /root/open_watch.py /srv/glasslab/documents")
    began = time.monotonic()
    with gate(commits, mode):
        done, _ = ask(QUESTION)
    seconds = time.monotonic() - began
    opened = watch.end()
    happened = {
        "model calls": model_calls() - calls,
        "listings": int("." in opened),  # one listing reads the directory more than once
        REPORT: opened.count(REPORT),
        POLICY: opened.count(POLICY),
        "answers": int("allow-list" in done.stdout),
    }
    return happened, done, seconds


def test_the_session_is_in_the_log_as_published() -> None:
    done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    assert result["status"] == "answered"
    assert len(result["answer"]) == 217
    assert "allow-list" in result["answer"]
    found = events(result["session_id"])
    trace = [event["event"]["kind"] for event in found if event["sourcetype"] == "agent:trace"]
    summary = [event["sourcetype"] for event in found if event["sourcetype"] != "agent:trace"]
    assert trace == TRACE
    assert summary == [*SUMMARY, "agent:session"]
    assert len(found) == 33
    clocks = [event["event"]["clock"] for event in found]
    assert clocks == sorted(clocks)
    verified = lab.read_log("verify", result["session_id"], capture=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_what_a_check_finds_is_in_the_log_by_a_token_that_no_machine_of_the_lab_holds() -> None:
    session = ask(QUESTION)[1]["session_id"]
    checked = lab.verify(session, index=True, capture=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    record = checked.stderr.split()[-1]
    assert record.startswith("verifier-")
    (found,) = events(record)
    event = found["event"]
    assert found["sourcetype"] == "agent:session"
    # The fields that the app's search "what glasslab verify found" goes by.
    assert (event["kind"], event["verified_session"], event["whole"]) == ("session.verified", session, True)
    assert (event["found"], event["problems"], event["component"]) == (0, [], "verifier")
    own = lab.verify(record, capture=True)
    assert own.returncode == 0, own.stdout + own.stderr
    token = lab.verifier_environment()["HEC_TOKEN_VERIFY"]
    for machine in ("agent", "pve"):
        hunt = f"grep -rlF -e {token} -e {token.replace('-', '')} /etc /run /srv /root /var /opt 2>/dev/null"
        assert on(machine, hunt, check=False).stdout == ""
    assert token in on("logs", "cat /opt/splunk/etc/apps/glasslab/local/inputs.conf").stdout


@contextmanager
def appliance(**settings: str) -> Iterator[None]:
    """The two services with other settings, until the block ends."""
    units = ("glasslab-files.service", "glasslab-agent.service")
    text = "[Service]\n" + "".join(f"Environment={name}={value}\n" for name, value in settings.items())
    restart = f"systemctl daemon-reload && systemctl restart {' '.join(units)}"
    try:
        for unit in units:
            place = f"/run/systemd/system/{unit}.d"
            on("agent", f"mkdir -p {place} && cat > {place}/zz-test.conf", stdin=text)
        on("agent", restart)
        yield
    finally:
        on("agent", "rm -f " + " ".join(f"/run/systemd/system/{unit}.d/zz-test.conf" for unit in units))
        on("agent", restart)


@pytest.mark.parametrize(("revision", "third"), [("2025-11-25", "mcp.initialize"), ("2026-07-28", "mcp.discover")])
def test_both_revisions_of_mcp(revision: str, third: str) -> None:
    with appliance(MCP_REVISION=revision):
        done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    found = events(result["session_id"])
    trace = [event["event"]["kind"] for event in found if event["sourcetype"] == "agent:trace"]
    assert trace == [*TRACE[:2], third, *TRACE[3:]]
    (agreed,) = [event["event"] for event in found if event["event"]["kind"] == third]
    assert agreed["protocol_version"] == revision
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0


def test_summary_mode_records_no_content() -> None:
    with appliance(LAB_TRACE="summary"):
        done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    assert "LAB_TRACE" not in done.stderr
    found = events(result["session_id"])
    assert [event["sourcetype"] for event in found] == [*SUMMARY, "agent:session"]
    text = json.dumps(found)
    assert result["answer"] not in text
    assert QUESTION not in text
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0


@pytest.mark.usefixtures("gated")
class TestAFailingLog:
    @pytest.mark.parametrize("commits", range(COMMITS))
    def test_stopped_after_commit(self, commits: int) -> None:
        happened, done, _ = observe(commits, "stopped")
        assert happened == expected_after(commits)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "Agent stopped: Splunk HEC unreachable" in done.stderr

    def test_all_commits_acknowledged_answers(self) -> None:
        """The gate itself does not stop anything: with every commit passed, everything happens."""
        happened, done, _ = observe(COMMITS + 1, "busy")
        assert happened == expected_after(COMMITS)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("mode", ["late", "busy", "code9", "wrong", "drop", "drip"])
    @pytest.mark.parametrize("commits", [2, 7])
    def test_answering_wrongly(self, mode: str, commits: int) -> None:
        happened, done, seconds = observe(commits, mode)
        assert happened == expected_after(commits)
        assert done.returncode == 4, done.stdout + done.stderr
        kind = "unreachable" if mode in ("late", "drop", "drip") else "rejected"
        assert f"Agent stopped: Splunk HEC {kind}" in done.stderr
        if mode in ("late", "drip"):
            assert seconds < 12, "the deadline is by the wall clock"


def test_the_lab_answers_again_after_all_of_it() -> None:
    done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0
