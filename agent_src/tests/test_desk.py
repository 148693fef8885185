"""The service's desk: who may decide, by id and once; from the command line to the message in the outbox."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_lab import lab_environment, scripted_model, turn
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab.approvals import Asked, Verdict
from glasslab.desk import AtDesk, Desk, Refused, answer
from glasslab.models import Stopped
from glasslab.peers import nobodys_id, peer_uid
from test_service import connect, exchange, question, serving
from tool_servers import eventually, running_parent

ME = os.getuid()
ARGUMENTS = {"to": "ap@lab.example", "subject": "Invoice", "body": "Gr\u00fc\u00dfe, \u0430p"}
SCRIPT = {"turns": [turn(("send_message", json.dumps(ARGUMENTS))), turn(content="Done.")]}


def asked(seconds: float = 30, shown: bytes = b'{"arguments":{},"server":"s","tool":"t"}') -> Asked:
    return Asked("s", "t", "send", "c0", 7, shown, "class send", "session-1", seconds)


def waiting(desk: Desk, one: Asked, stop: threading.Event | None = None) -> tuple[threading.Thread, list[Any]]:
    """Let a call wait in a thread of its own; what came of it is put into the list."""
    found: list[Any] = []

    def wait() -> None:
        try:
            found.append(desk.wait(one, stop or threading.Event()))
        except Stopped as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert eventually(lambda: found or desk.listed(0))
    return thread, found


def test_a_decision_is_by_id_and_counts_once() -> None:
    desk, one, other = Desk(frozenset({0, 42})), asked(), asked()
    threads = [waiting(desk, one), waiting(desk, other)]
    assert answer(desk, 42, {"approve": other.id}) is not None
    told = answer(desk, 42, {"deny": one.id, "why": "no\u202e way"})
    assert told is not None
    assert (told["decision"], told["decided"]["sha256"]) == ("denied", one.sha256)
    for thread, _ in threads:
        thread.join(5)
    assert threads[0][1] == [Verdict(False, "service", 42, "no\\u202e way")]
    assert threads[1][1] == [Verdict(True, "service", 42, "")]
    assert answer(desk, 42, {"approve": one.id}) == {
        "refused": f"no approval '{one.id}' waits; `glasslab approvals` lists those that do"
    }


def test_who_may_not_decide_may_not_look_either() -> None:
    desk, one = Desk(frozenset({0, 42, nobodys_id()})), asked()
    thread, found = waiting(desk, one)
    for uid in (43, nobodys_id()):
        for request in ({"approvals": True}, {"approve": one.id}, {"deny": one.id}):
            told = answer(desk, uid, request)
            assert told is not None
            assert f"user {uid} may not approve here" in told["refused"]
    assert found == []
    desk.decide(0, one.id, True, "")
    thread.join(5)
    assert found == [Verdict(True, "service", 0)]


def test_a_time_out_is_a_denial_and_a_cancelled_question_waits_no_longer() -> None:
    desk, stop = Desk(frozenset({0})), threading.Event()
    assert desk.wait(asked(seconds=0.01), stop) == Verdict(False, "timeout")
    assert desk.listed(0) == []
    stop.set()
    thread, found = waiting(desk, asked(), stop)
    thread.join(5)
    assert [type(item) for item in found] == [Stopped]
    with pytest.raises(Refused):
        desk.decide(0, "gone", True, "")


def test_whoever_is_told_of_a_call_may_decide_at_once() -> None:
    desk, told = Desk(frozenset({0})), list[Any]()
    person = AtDesk(desk, 7, lambda one: told.append(answer(desk, 0, {"approve": one.id})))
    assert person.decide(asked(seconds=1), threading.Event()) == Verdict(True, "service", 0)
    assert [one["decision"] for one in told] == ["approved"]
    assert desk.listed(0) == []


def test_the_kernel_says_who_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == ME


@dataclass
class Office:
    """A service with an outbox."""

    hec: FaultyHec
    socket: Path
    outbox: Path

    def glasslab(self, *words: str, status: int = 0) -> tuple[str, str]:
        command = [sys.executable, "-m", "glasslab.cli", *words, "--socket", str(self.socket)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == status, done.stderr
        return done.stdout, done.stderr

    def ask(self) -> tuple[socket.socket, dict[str, Any]]:
        """Put the question; return the connection and the call that waits."""
        client = connect(self.socket)
        client.sendall(question())
        found: list[Any] = []

        def waits() -> bool:
            found[:] = exchange(self.socket, b'{"approvals": true}\n')["approvals"]
            return bool(found)

        assert eventually(waits, 15)
        return client, found[0]

    def messages(self) -> list[str]:
        return [path.read_text() for path in self.outbox.iterdir()]


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, running_hec: FaultyHec, certificates: Certificates
) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    (folder / "outbox").mkdir()
    environment = {
        **lab_environment(folder, running_hec.url, certificates.ca),
        "MCP_SERVER": f"unix:{folder}/mcp.sock",
        "MODEL": "test-model",
        "OUTBOX_SERVER": "stdio",
        "LAB_OUTBOX": str(folder / "outbox"),
        "OUTBOX_RECIPIENTS": "*@lab.example",
    }
    with (
        scripted_model(SCRIPT, folder) as model,
        running_parent(folder / "mcp.sock", environment),
        serving({**environment, "MODEL_BASE_URL": model.url}, folder / "agent.sock"),
    ):
        yield Office(running_hec, folder / "agent.sock", folder / "outbox")


@pytest.fixture
def office(running: Office, hec: FaultyHec) -> Office:
    for path in running.outbox.iterdir():
        path.unlink()
    return running


def test_approve_from_the_command_line(office: Office) -> None:
    client, waits = office.ask()
    with client:
        out, _ = office.glasslab("approvals")
        assert waits["id"] in out
        assert "send_message of lab-outbox, class send" in out
        assert f"sha256:  {waits['sha256']}" in out
        assert "U+0430 CYRILLIC SMALL LETTER A" in out, "a letter that looks like another one is named"
        assert json.loads(waits["shown"])["arguments"] == ARGUMENTS
        assert office.messages() == []
        out, _ = office.glasslab("approve", waits["id"])
        assert out.startswith(f"approved: {waits['id']}\n")
        with client.makefile("rb") as lines:
            assert json.loads(lines.readline())["status"] == "answered"
    (message,) = office.messages()
    assert "To: ap@lab.example" in message
    assert ARGUMENTS["body"] in message
    found = office.hec.events("approval.decision")[0]
    assert (found["how"], found["by"], found["sha256"]) == ("service", ME, waits["sha256"])
    assert office.hec.events("approval.request")[0]["caller"] == ME


def test_deny_from_the_command_line_and_ask_says_that_it_waits(office: Office) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "ask", "--socket", str(office.socket), "Write to them."]
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asking.stderr is not None
    first = asking.stderr.readline()
    assert first.startswith("glasslab: a call waits for an approval (glasslab approve ")
    id_ = first.split("approve ")[1].split()[0]
    office.glasslab("deny", id_, "--why", "not to them")
    out, _ = asking.communicate(timeout=60)
    assert (asking.returncode, out.splitlines()[0]) == (0, "Done.")
    assert office.messages() == []
    found = office.hec.events("approval.decision")[0]
    assert (found["decision"], found["why"], found["by"]) == ("denied", "not to them", ME)
    assert office.glasslab("approvals") == ("nothing waits for an approval\n", "")
    out, err = office.glasslab("approve", id_, status=1)
    assert (out, err) == ("", f"glasslab: no approval '{id_}' waits; `glasslab approvals` lists those that do\n")


def test_a_client_that_goes_away_leaves_nothing_that_waits(office: Office) -> None:
    client, _ = office.ask()
    client.close()
    assert eventually(lambda: bool(office.hec.events("session.end")))
    assert office.hec.events("session.end")[0]["status"] == "cancelled"
    assert exchange(office.socket, b'{"approvals": true}\n') == {"approvals": []}
    assert office.messages() == []


def test_a_service_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "approve", "x", "--socket", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"glasslab: service at {tmp_path}/none: No such file or directory; give its --socket\n"
