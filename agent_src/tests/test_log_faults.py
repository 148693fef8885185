"""Every failure of the log at every commit of the sample session, of both writers: no step without its record.

What happened is taken from records that are not the agent's: the model's, the kernel's on opened files, the log's own.
"""

import os
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest

from conftest import Certificates
from faulty_hec import ANSWERS, FaultyHec
from glasslab.frames import KINDS, Event
from glasslab.search import StoredEvent
from glasslab.statuses import EXIT_CODES
from glasslab.verify import verify_session
from sample_lab import COMMITS, POLICY, REPORT, SUMMARY_COMMITS, Lab, sample_lab

# What has happened when commit k (from 1) is not acknowledged: model calls made, documents opened.
FULL_EFFECTS = [
    (0, []), (0, []), (0, []), (1, []), (1, []), (1, []), (2, []), (2, []), (2, [REPORT]), (2, [REPORT]), (2, [REPORT]),
    (2, [REPORT, POLICY]), (2, [REPORT, POLICY]), (3, [REPORT, POLICY]),
]  # fmt: skip
SUMMARY_EFFECTS = [
    (0, []), (1, []), (1, []), (2, []), (2, [REPORT]), (2, [REPORT, POLICY]), (3, [REPORT, POLICY]),
]  # fmt: skip
SERVERS_OWN = (2, 5, 8, 9, 11, 12)  # commits of the tool server in full mode: the agent's log may still work then
EVERY: Final = [*(("full", k) for k in range(1, 15)), *(("summary", k) for k in range(1, 8))]
LONG: Final = os.environ.get("GLASSLAB_SOAK") == "1"  # every other failure at every commit too
DEADLINE: Final = 0.3  # where it is what ends the wait; else the lab's patience, so that a busy machine fails nothing
# as they are called in faulty_hec.py: the port is closed; the connection is reset; HTTP 503; HTTP 200 with code 9; the
# events are stored and the log dies while it says so; another CA's certificate; the name resolves no more
AT_ONCE = ("down", "reset", "busy", "busy_200", "killed", "other_ca", "name_gone")
REACHED = ("reset", "busy", "busy_200", "drip")  # a POST gets as far as the log

# What the files server runs with: a name that resolves as long as a file is not there.
RESOLVER = """
import pathlib, socket, sys
resolve = socket.getaddrinfo
def getaddrinfo(host, *rest, **more):
    if host == "localhost" and pathlib.Path({flag!r}).exists():
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return resolve(host, *rest, **more)
socket.getaddrinfo = getaddrinfo
from glasslab.servers.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, running_hec: FaultyHec, certificates: Certificates
) -> Iterator[Lab]:
    program = RESOLVER.format(flag=str(running_hec.name_gone))
    folder = tmp_path_factory.mktemp("faults")
    with (
        sample_lab(folder, running_hec, certificates.ca, host="localhost") as lab,
        lab.serving("full", program=program),
        lab.serving("full", DEADLINE),
        lab.serving("summary"),
        lab.serving("summary", DEADLINE),
    ):
        yield lab


@pytest.fixture
def lab(running: Lab, hec: FaultyHec, monkeypatch: pytest.MonkeyPatch) -> Lab:
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "localhost" and hec.name_gone.exists():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *rest, **more)

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    running.forget()
    return running


def check_failure(lab: Lab, trace: str, k: int, how: str, deadline: float = 20.0) -> None:
    """Ask with a log whose commit k (from 1) and all later ones fail; nothing that they release may have happened."""
    effects = (FULL_EFFECTS if trace == "full" else SUMMARY_EFFECTS)[k - 1]
    commits = COMMITS if trace == "full" else SUMMARY_COMMITS
    lab.hec.reset(k, how)
    outcome = lab.ask(trace, deadline=deadline)
    assert outcome.answer is None
    assert EXIT_CODES[outcome.status] == 4
    assert outcome.status == ("log_rejected" if how in ANSWERS else "log_unreachable")
    assert outcome.problem is not None
    assert outcome.problem.startswith("Agent stopped: Splunk HEC " + outcome.status.removeprefix("log_"))
    assert lab.url in outcome.problem
    stored = [" ".join(kinds) for kinds in lab.hec.kinds]
    assert stored == [text.format(agreed="discover") for text in commits[: k - (how != "killed")]]
    assert (lab.model.requests, lab.opens.names()) == effects
    if how in REACHED:  # nothing after the failed commit, but the agent's word on a failure of the server's log
        assert lab.hec.received == k + (trace == "full" and k in SERVERS_OWN)
    check_duplicates([event for post in lab.hec.posts for event in post])


def check_duplicates(events: list[Event]) -> None:
    """Nothing is there twice; and were the log to keep a commit twice, that would be seen, and could be undone."""
    assert len({event["event_id"] for event in events}) == len(events)
    doubled = [
        StoredEvent(float(n), KINDS[event["kind"]].sourcetype, "glasslab", "agents", "", event)
        for n, event in enumerate([*events, *events[-1:]])
    ]
    report = verify_session(events[0]["session_id"] if events else "none", doubled, {})
    found = [problem.text for writer in report.writers for problem in writer.problems if "there twice" in problem.text]
    assert len(found) == bool(events)
    once = {item.event["event_id"]: item.event for item in doubled}
    assert list(once.values()) == events


@pytest.mark.parametrize("how", AT_ONCE)
@pytest.mark.parametrize("k", range(1, 15))
def test_the_action_that_a_failed_commit_would_have_released_does_not_happen(lab: Lab, k: int, how: str) -> None:
    check_failure(lab, "full", k, how)


@pytest.mark.parametrize("how", AT_ONCE)
@pytest.mark.parametrize("k", range(1, 8))
def test_nor_does_it_in_summary_mode(lab: Lab, k: int, how: str) -> None:
    check_failure(lab, "summary", k, how)


@pytest.mark.parametrize(("trace", "k"), [*(("full", k) for k in range(1, 15)), *(("summary", k) for k in range(1, 8))])
def test_nor_when_the_log_drips(lab: Lab, trace: str, k: int) -> None:
    check_failure(lab, trace, k, "drip", DEADLINE)
    assert not lab.hec.said_all


@pytest.mark.parametrize(("trace", "k"), EVERY if LONG else [("full", 1), ("full", 9), ("summary", 7)])
@pytest.mark.parametrize("how", ["hang", "drip_head", "drop", "close"])
def test_nor_when_it_falls_silent(lab: Lab, trace: str, k: int, how: str) -> None:
    check_failure(lab, trace, k, how, DEADLINE)
    assert not lab.hec.said_all


@pytest.mark.parametrize(("trace", "k"), EVERY if LONG else [("full", 9)])
@pytest.mark.parametrize("how", sorted(set(ANSWERS) - set(AT_ONCE)))
def test_nor_when_the_log_says_anything_but_yes(lab: Lab, trace: str, k: int, how: str) -> None:
    check_failure(lab, trace, k, how)


def test_the_real_deadline(lab: Lab) -> None:
    """Once with the value that HEC_DEADLINE has by default; the agent's own commit, so that one server serves all."""
    with lab.serving("full", 5.0):
        check_failure(lab, "full", 6, "drip", 5.0)
    assert not lab.hec.said_all


def test_a_fault_that_never_comes_hinders_nothing(lab: Lab) -> None:
    """The lab itself stops nothing: what the cases above miss happens when the log works."""
    lab.hec.reset()
    outcome = lab.ask("full")
    assert (outcome.status, lab.model.requests, lab.opens.names()) == ("answered", 3, [REPORT, POLICY])
    assert len(lab.hec.kinds) == len(COMMITS)
