"""The sample session, whole, in the published frames; what it does when the log fails: test_log_faults.py."""

from collections.abc import Iterator

import pytest

from agent_lab import QUESTION
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab.frames import GENESIS, KINDS, event_hash
from sample_lab import COMMITS, SUMMARY_COMMITS, TRACE_FRAMES, Lab, sample_lab


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, running_hec: FaultyHec, certificates: Certificates
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("sample")
    with sample_lab(folder, running_hec, certificates.ca) as lab, lab.serving("full"), lab.serving("summary"):
        yield lab


@pytest.fixture
def lab(running: Lab, hec: FaultyHec) -> Lab:
    running.forget()
    return running


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize(("revision", "agreed"), [("2025-11-25", "initialize"), ("2026-07-28", "discover")])
def test_25_trace_frames_and_8_summary_events_in_14_commits(
    lab: Lab, revision: str, agreed: str, provider: str
) -> None:
    outcome = lab.ask("full", revision, provider=provider)
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
    outcome = lab.ask("full")
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
    outcome = lab.ask("summary")
    assert outcome.status == "answered"
    assert [" ".join(kinds) for kinds in lab.hec.kinds] == SUMMARY_COMMITS
    everything = b"".join(lab.hec.bodies).decode()
    assert QUESTION not in everything
    assert outcome.answer is not None
    assert outcome.answer not in everything
    assert "allow-list" not in everything


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
