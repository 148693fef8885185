"""The sample session, whole: scripted model, files server, log; and the log failing at each commit of it."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from agent_lab import QUESTION, Opens, ScriptedModel, make_agent, make_settings, never, unix_toolbox
from conftest import Certificates
from faulty_hec import ANSWERS, FaultyHec
from glasslab import pins, samples
from glasslab.agent import Outcome
from glasslab.frames import GENESIS, KINDS, event_hash
from glasslab.scripted import load_script
from glasslab.statuses import EXIT_CODES
from tool_servers import running_parent

SAMPLES = Path(samples.__file__).parent
REPORT, POLICY = "incident-report-2026-09.md", "access-policy.md"
DEADLINE = 0.8

TRACE_FRAMES = """agent.start server.start mcp.{agreed} mcp.tools_list llm.request llm.response agent.decision
mcp.call_tool.request server.list_files mcp.call_tool.result llm.request llm.response agent.decision
mcp.call_tool.request server.path_check server.read_file mcp.call_tool.result mcp.call_tool.request server.path_check
server.read_file mcp.call_tool.result llm.request llm.response agent.decision agent.final"""

COMMITS = [
    "agent.start session.start",
    "server.start",
    "mcp.{agreed} mcp.tools_list llm.request",
    "llm.response llm agent.decision mcp.call_tool.request",
    "server.list_files",
    "mcp.call_tool.result toolcall llm.request",
    "llm.response llm agent.decision mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result toolcall mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result toolcall llm.request",
    "llm.response llm agent.decision agent.final session.end",
]
SUMMARY_COMMITS = ["session.start", "llm", "toolcall", "llm", "toolcall", "toolcall", "llm session.end"]
# What has happened when commit k (from 1) is not acknowledged: model calls made, documents opened.
FULL_EFFECTS = [
    (0, []), (0, []), (0, []), (1, []), (1, []), (1, []), (2, []), (2, []), (2, [REPORT]), (2, [REPORT]), (2, [REPORT]),
    (2, [REPORT, POLICY]), (2, [REPORT, POLICY]), (3, [REPORT, POLICY]),
]  # fmt: skip
SUMMARY_EFFECTS = [
    (0, []), (1, []), (1, []), (2, []), (2, [REPORT]), (2, [REPORT, POLICY]), (3, [REPORT, POLICY]),
]  # fmt: skip
EVERY = [*(("full", k) for k in range(1, 15)), *(("summary", k) for k in range(1, 8))]
LONG = os.environ.get("GLASSLAB_SOAK") == "1"  # every failure at every commit; about two minutes more
SERVERS_OWN = (2, 5, 8, 9, 11, 12)  # commits of the tool server in full mode: the agent's log may still work then


@dataclass
class Lab:
    """Model, files servers and log; `ask` puts the sample question."""

    hec: FaultyHec
    model: ScriptedModel
    opens: Opens
    folder: Path
    ca: Path

    def ask(self, trace: str, revision: str = "auto", deadline: float = DEADLINE, provider: str = "openai") -> Outcome:
        settings = make_settings(
            self.hec, self.ca, self.model.url, lab_trace=trace, hec_deadline=deadline, model_provider=provider
        )
        agent = make_agent(settings, unix_toolbox(self.folder / f"{trace}.sock", revision), pins.read_lock())
        try:
            return agent.ask(QUESTION, never())
        finally:
            agent.close()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, running_hec: FaultyHec, certificates: Certificates
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("sample")
    documents = shutil.copytree(SAMPLES / "documents", folder / "documents")  # nobody else opens these
    environment = {
        "HEC_URL": running_hec.url,
        "HEC_CA": str(certificates.ca),
        "HEC_TOKEN_MCP": "token-of-the-server",
        "HEC_DEADLINE": str(DEADLINE),
        "LAB_DOCUMENTS": str(documents),
        "SIGNING_KEY_MCP": str(folder / "mcp.pem"),
    }
    model = ScriptedModel(_sample_script(), folder)
    opens = Opens(documents)
    full, summary = ({**environment, "LAB_TRACE": trace} for trace in ("full", "summary"))
    with running_parent(folder / "full.sock", full), running_parent(folder / "summary.sock", summary):
        yield Lab(running_hec, model, opens, folder, certificates.ca)
    opens.close()
    model.stop()


def _sample_script() -> object:
    load_script("sample")  # its own check of the file
    return yaml.safe_load((SAMPLES / "sample.yml").read_text())


@pytest.fixture
def lab(running: Lab, hec: FaultyHec) -> Lab:
    running.model.forget()
    running.opens.names()
    return running


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize(("revision", "agreed"), [("2025-11-25", "initialize"), ("2026-07-28", "discover")])
def test_25_trace_frames_and_8_summary_events_in_14_commits(
    lab: Lab, revision: str, agreed: str, provider: str
) -> None:
    outcome = lab.ask("full", revision, 5, provider)
    assert (outcome.status, outcome.turns, outcome.problem) == ("answered", 3, None)
    assert outcome.answer is not None
    assert "allow-list" in outcome.answer
    assert len(outcome.answer) == 217
    assert [" ".join(kinds) for kinds in lab.hec.kinds] == [text.format(agreed=agreed) for text in COMMITS]
    events = [event for post in lab.hec.posts for event in post]
    trace = [event["kind"] for event in events if KINDS[event["kind"]].is_trace]
    assert trace == TRACE_FRAMES.format(agreed=agreed).split()
    assert len(trace) == 25
    summary = [event["kind"] for event in events if not KINDS[event["kind"]].is_trace]
    assert sorted(summary) == ["llm"] * 3 + ["session.end", "session.start"] + ["toolcall"] * 3
    assert [event["clock"] for event in events] == list(range(1, 34))
    assert {event["session_id"] for event in events} == {outcome.session_id}
    assert [event["step"] for event in events if event["kind"] == "llm.request"] == [1, 2, 3]
    assert [event["step"] for event in events][:5] == [0, 0, 0, 0, 0]
    for writer in ("agent", "mcp"):
        own = [event for event in events if event["component"] == writer]
        assert [event["seq"] for event in own] == list(range(1, len(own) + 1))
        assert [event["prev"] for event in own] == [GENESIS, *map(event_hash, own[:-1])]
    assert all("sig" in post[-1] and not any("sig" in event for event in post[:-1]) for post in lab.hec.posts)
    assert lab.model.requests == 3


def test_the_counts_of_the_published_session(lab: Lab) -> None:
    outcome = lab.ask("full", deadline=5)
    requests, responses = lab.hec.events("llm.request"), lab.hec.events("llm.response")
    assert [request["message_count"] for request in requests] == [2, 4, 7]
    assert [len(request["messages"]) for request in requests] == [2, 4, 7]
    assert [response["prompt_tokens"] for response in responses] == [136, 173, 446]
    assert [response["reasoning_tokens"] for response in responses] == [13, 0, 0]
    assert [len(response["tool_calls"]) for response in responses] == [1, 2, 0]
    assert [result["characters"] for result in lab.hec.events("mcp.call_tool.result")] == [43, 623, 360]
    assert [call["bytes"] for call in lab.hec.events("toolcall")] == [43, 625, 360]
    assert outcome.usage["prompt"] == 136 + 173 + 446


def test_summary_mode_records_7_commits_without_contents(lab: Lab) -> None:
    outcome = lab.ask("summary", deadline=5)
    assert outcome.status == "answered"
    assert [" ".join(kinds) for kinds in lab.hec.kinds] == SUMMARY_COMMITS
    everything = b"".join(lab.hec.bodies).decode()
    assert QUESTION not in everything
    assert outcome.answer is not None
    assert outcome.answer not in everything
    assert "allow-list" not in everything


def _check_failure(lab: Lab, trace: str, k: int, how: str) -> None:
    effects = (FULL_EFFECTS if trace == "full" else SUMMARY_EFFECTS)[k - 1]
    commits = COMMITS if trace == "full" else SUMMARY_COMMITS
    lab.hec.reset(k, how)
    outcome = lab.ask(trace)
    assert outcome.answer is None
    assert EXIT_CODES[outcome.status] == 4
    assert outcome.status == ("log_rejected" if how in ANSWERS else "log_unreachable")
    assert outcome.problem is not None
    assert outcome.problem.startswith("Agent stopped: Splunk HEC " + outcome.status.removeprefix("log_"))
    assert lab.hec.url in outcome.problem
    acknowledged = [" ".join(kinds) for kinds in lab.hec.kinds]
    assert acknowledged == [text.format(agreed="discover") for text in commits[: k - 1]]
    assert (lab.model.requests, lab.opens.names()) == effects
    if how != "down":  # nothing after the failed commit, but the agent's word on a failure of the server's log
        assert lab.hec.received == k + (trace == "full" and k in SERVERS_OWN)


@pytest.mark.parametrize("how", ["busy", "drop", "down"])
@pytest.mark.parametrize("k", range(1, 15))
def test_the_action_that_a_failed_commit_would_have_released_does_not_happen(lab: Lab, k: int, how: str) -> None:
    _check_failure(lab, "full", k, how)


@pytest.mark.parametrize("how", ["busy", "drop", "down"])
@pytest.mark.parametrize("k", range(1, 8))
def test_nor_does_it_in_summary_mode(lab: Lab, k: int, how: str) -> None:
    _check_failure(lab, "summary", k, how)


@pytest.mark.parametrize(("trace", "k"), EVERY if LONG else [("full", 1), ("full", 4), ("full", 9), ("summary", 7)])
@pytest.mark.parametrize("how", ["hang", "drip", "drip_head", "close"] if LONG else ["hang", "drip"])
def test_nor_when_the_log_is_late(lab: Lab, trace: str, k: int, how: str) -> None:
    _check_failure(lab, trace, k, how)


@pytest.mark.parametrize(("trace", "k"), EVERY if LONG else [("full", 9)])
@pytest.mark.parametrize("how", sorted(set(ANSWERS) - {"busy"}))
def test_nor_when_the_log_says_anything_but_yes(lab: Lab, trace: str, k: int, how: str) -> None:
    _check_failure(lab, trace, k, how)


def test_the_end_is_on_record_when_only_the_servers_log_fails(lab: Lab) -> None:
    lab.hec.reset(9, "busy")

    class OneFailure(int):
        """The number of the one POST that fails: `number >= self` is true for it alone."""

        def __le__(self, number: object) -> bool:
            return number == int(self)

    lab.hec.fail_at = OneFailure(9)
    outcome = lab.ask("full")
    assert outcome.status == "log_rejected"
    assert lab.hec.kinds[-1] == ["agent.final", "session.end"]
    assert lab.hec.events("session.end")[0]["status"] == "log_rejected"
    assert lab.hec.events("session.end")[0]["reason"] == "server_log"
