"""The service: its protocol, clients that go away, several questions at once, its socket, and its end."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_lab import QUESTION, ScriptedModel, lab_environment, scripted_model, turn
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab import asking
from glasslab.service import Service
from glasslab.statuses import EXIT_CODES, JSON_FIELDS, MAX_QUESTION_CHARACTERS
from tool_servers import running_parent

SCRIPT = {"turns": [turn(("list_files", "{}")), turn(content="The answer.")], "repeat_last": True}
SLOW = {"turns": [{**turn(content="Late."), "delay": 1.5}]}


@contextmanager
def serving(environment: Mapping[str, str], path: Path) -> Iterator[subprocess.Popen[str]]:
    """`glasslab serve` on a socket, once it says READY."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        notify = path.with_suffix(".notify")
        notify.unlink(missing_ok=True)
        ready.bind(str(notify))
        ready.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "glasslab.cli", "serve", "--socket", str(path)],
            env={**environment, "NOTIFY_SOCKET": str(notify)},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert ready.recv(100) == b"READY=1"
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=15)


class Lab:
    def __init__(self, hec: FaultyHec, folder: Path, models: dict[str, ScriptedModel]) -> None:
        self.hec, self.folder, self.models = hec, folder, models

    def socket(self, name: str) -> Path:
        return self.folder / f"{name}.sock"


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, running_hec: FaultyHec, certificates: Certificates
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("service")
    common = {
        **lab_environment(folder, running_hec.url, certificates.ca),
        "MCP_SERVER": f"unix:{folder}/mcp.sock",
        "MODEL": "test-model",
        "LAB_TRACE": "full",
    }
    with (
        scripted_model(SCRIPT, folder) as quick,
        scripted_model(SLOW, folder) as slow,
        running_parent(folder / "mcp.sock", common),
        serving({**common, "MODEL_BASE_URL": quick.url}, folder / "quick.sock"),
        serving({**common, "MODEL_BASE_URL": slow.url}, folder / "slow.sock"),
    ):
        yield Lab(running_hec, folder, {"quick": quick, "slow": slow})


@pytest.fixture
def lab(running: Lab, hec: FaultyHec) -> Lab:
    return running


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(str(path))
    return client


def exchange(path: Path, data: bytes, then: Callable[[socket.socket], object] | None = None) -> dict[str, Any]:
    with connect(path) as client:
        client.sendall(data)
        if then is not None:
            then(client)
        with client.makefile("rb") as lines:
            result: dict[str, Any] = json.loads(lines.readline())
    return result


def question(text: str = QUESTION) -> bytes:
    return json.dumps({"question": text}).encode() + b"\n"


def eventually(found: Callable[[], bool], seconds: float = 3) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found():
            return True
        time.sleep(0.02)
    return False


def test_one_line_in_one_object_out(lab: Lab) -> None:
    result = exchange(lab.socket("quick"), question())
    assert set(result) == {*JSON_FIELDS, "problem", "so_far", "trace", "index"}
    assert (result["answer"], result["status"], result["turns"]) == ("The answer.", "answered", 2)
    assert (result["problem"], result["trace"], result["index"]) == (None, "full", "agents")
    sessions = {event["session_id"] for post in lab.hec.posts for event in post}
    assert {one for one in sessions if not one.startswith("service-")} == {result["session_id"]}


def test_a_client_may_close_its_writing_half(lab: Lab) -> None:
    result = exchange(lab.socket("quick"), question(), lambda client: client.shutdown(socket.SHUT_WR))
    assert result["status"] == "answered"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\n", "not understood"),
        (b"hello\n", "not understood"),
        (b'{"question": 7}\n', "not understood"),
        (b"[" * 100_000 + b"\n", "not understood"),
        (b"\xff\xfe\n", "not understood"),
        (b"x" * 300_000, "longer than"),
        (question(" "), "empty"),
        (question("x" * (MAX_QUESTION_CHARACTERS + 1)), "characters; at most"),
        (b'{"question": "\\ud800"}\n', "not valid UTF-8"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_is_no_question_is_refused_and_nothing_happens(lab: Lab, data: bytes, problem: str) -> None:
    result = exchange(lab.socket("quick"), data)
    assert (result["status"], result["session_id"]) == ("input_refused", None)
    assert problem in result["problem"]
    assert lab.hec.received == 0


def test_a_client_that_goes_away_cancels_its_question_on_record(lab: Lab) -> None:
    with connect(lab.socket("slow")) as client:
        client.sendall(question())
        assert eventually(lambda: bool(lab.hec.events("llm.request")))
    assert eventually(lambda: bool(lab.hec.events("session.end")), 1)
    assert lab.hec.events("session.end")[0]["status"] == "cancelled"


def test_a_client_that_says_so_cancels_and_gets_the_outcome(lab: Lab) -> None:
    def cancel(client: socket.socket) -> None:
        assert eventually(lambda: bool(lab.hec.events("llm.request")))
        client.sendall(b'{"cancel": true}\n')

    result = exchange(lab.socket("slow"), question(), cancel)
    assert (result["status"], EXIT_CODES[result["status"]]) == ("cancelled", 8)
    assert lab.hec.events("session.end")[0]["session_id"] == result["session_id"]


def test_a_client_that_cancels_in_the_same_breath_is_heard(lab: Lab) -> None:
    result = exchange(lab.socket("slow"), question() + b'{"cancel": true}\n')
    assert result["status"] == "cancelled"
    assert lab.hec.events("session.end")[0]["status"] == "cancelled"
    assert not lab.hec.events("llm")


def test_ctrl_c_before_the_service_is_reached_is_told_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    stop = asking._Stop()
    stop._on_signal(signal.SIGINT, None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        stop.told = ours
        stop.tell()
        assert theirs.recv(100) == b'{"cancel": true}\n'
    stop.tell()  # the service is gone
    with pytest.raises(KeyboardInterrupt):
        stop._on_signal(signal.SIGINT, None)


def test_several_at_once_do_not_wait_for_each_other(lab: Lab) -> None:
    clients = [connect(lab.socket("slow")) for _ in range(4)]
    for client in clients:
        client.sendall(question())
    results = [json.loads(client.makefile("rb").readline()) for client in clients]
    for client in clients:
        client.close()
    assert [result["status"] for result in results] == ["answered"] * 4
    assert len({result["session_id"] for result in results}) == 4
    kinds = [kind for commit in lab.hec.kinds for kind in commit]
    assert kinds[: kinds.index("llm.response")].count("llm.request") > 1


def test_a_log_that_fails_stops_the_question_not_the_service(lab: Lab) -> None:
    lab.hec.reset(4, "busy")
    result = exchange(lab.socket("quick"), question())
    assert (result["status"], result["answer"]) == ("log_rejected", None)
    assert result["problem"].startswith("Agent stopped: Splunk HEC rejected")
    lab.hec.reset()
    assert exchange(lab.socket("quick"), question())["status"] == "answered"


def test_the_command_line_puts_its_question_to_the_service(lab: Lab) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "ask", "--socket", str(lab.socket("quick"))]
    plain = subprocess.run([*command, QUESTION], capture_output=True, text=True, check=False, timeout=60)
    assert plain.returncode == 0
    session = lab.hec.events("session.start")[0]["session_id"]
    assert plain.stdout == (
        f'The answer.\n\nsession: {session}\nsearch:  search index=agents session_id="{session}" | sort 0 _time\n'
    )
    assert plain.stderr.count("LAB_TRACE=full") == 1
    as_json = subprocess.run(
        [*command, "--json", "-"], input=QUESTION, capture_output=True, text=True, check=False, timeout=60
    )
    assert list(json.loads(as_json.stdout)) == list(JSON_FIELDS)


def test_the_command_line_goes_on_with_a_session_and_says_what_stands_beside(lab: Lab) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "ask", "--json", "--socket", str(lab.socket("quick"))]

    def ask(*words: str, given: object = None) -> dict[str, Any]:
        done = subprocess.run(
            [*command, *words], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.stdout, done.stderr
        result: dict[str, Any] = {**json.loads(done.stdout), "code": done.returncode, "stderr": done.stderr}
        return result

    first = exchange(lab.socket("quick"), question())
    second = ask("--session", first["session_id"], "And then?")
    third = ask("--request", given={"question": "And then?", "session": second["session_id"]})
    assert [one["status"] for one in (first, second, third)] == ["answered"] * 3
    continues = [event.get("continues") for event in lab.hec.events("session.start")]
    assert continues == [None, first["session_id"], second["session_id"]]
    sent = lab.hec.events("llm.request")[-1]["messages"]
    assert [message["content"] for message in sent if message["role"] == "user"] == [QUESTION, *["And then?"] * 2]
    unknown = ask("--session", "f" * 32, "And then?")
    assert (unknown["code"], unknown["status"]) == (7, "input_refused")
    assert "is none that this service has answered for user" in unknown["stderr"]
    beside = ask("--prompt", "review", "city=Bern", "--resource", "note://a")
    assert (beside["code"], beside["status"]) == (7, "input_refused")
    assert "prompt 'review': no server lists it; there are: none" in beside["stderr"]
    assert lab.hec.events("session.start")[-1]["resources"] == ["note://a"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (b"", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'{"question": "x", "session": "no id"}', "'no id' is no session id"),
        (b'"' + b"x" * 300_000 + b'"', "more than 250000 bytes"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_request_on_standard_input_that_is_none_is_one_line(tmp_path: Path, given: bytes, problem: str) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "ask", "--socket", str(tmp_path / "none"), "--request"]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")
    assert problem in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_ctrl_c_at_the_client_is_a_recorded_end(lab: Lab) -> None:
    command = [sys.executable, "-m", "glasslab.cli", "ask", "--json", "--socket", str(lab.socket("slow")), QUESTION]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: bool(lab.hec.events("llm.request")), 5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 8
    assert json.loads(out)["status"] == "cancelled"
    assert "Traceback" not in err
    assert lab.hec.events("session.end")[0]["status"] == "cancelled"


def test_a_second_service_on_the_socket_is_refused(lab: Lab) -> None:
    environment = {**os.environ, "HEC_URL": lab.hec.url, "HEC_TOKEN": "t", "HOME": str(lab.folder)}
    command = [sys.executable, "-m", "glasslab.cli", "serve", "--socket", str(lab.socket("quick"))]
    environment["MCP_SERVER"] = f"unix:{lab.folder}/mcp.sock"
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 2
    assert second.stderr == (
        f"glasslab: another service answers on {lab.socket('quick')}; stop it, or give another --socket\n"
    )
    assert exchange(lab.socket("quick"), question())["status"] == "answered"


def test_sigterm_ends_running_questions_on_record_and_a_stale_socket_is_taken_over(
    lab: Lab, certificates: Certificates
) -> None:
    path = lab.folder / "own.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    environment = {
        **lab_environment(lab.folder, lab.hec.url, certificates.ca),
        "MCP_SERVER": f"unix:{lab.folder}/mcp.sock",
        "MODEL_BASE_URL": lab.models["slow"].url,
        "LAB_TRACE": "full",
    }
    with serving(environment, path) as process, connect(path) as client:
        client.sendall(question())
        assert eventually(lambda: bool(lab.hec.events("llm.request")))
        process.send_signal(signal.SIGTERM)
        assert json.loads(client.makefile("rb").readline())["status"] == "cancelled"
        assert process.wait(timeout=10) == 0
    assert lab.hec.events("session.end")[0]["status"] == "cancelled"
    assert not path.exists()


def test_sigusr1_ends_it_once_the_running_question_is_answered(lab: Lab, certificates: Certificates) -> None:
    path = lab.folder / "drained.sock"
    environment = {
        **lab_environment(lab.folder, lab.hec.url, certificates.ca),
        "MCP_SERVER": f"unix:{lab.folder}/mcp.sock",
        "MODEL_BASE_URL": lab.models["slow"].url,
        "MODEL_CA": str(certificates.ca),
        "LAB_TRACE": "full",
    }
    before = len(lab.hec.events("llm.request"))
    with serving(environment, path) as process, connect(path) as client:
        client.sendall(question())
        assert eventually(lambda: len(lab.hec.events("llm.request")) > before)
        process.send_signal(signal.SIGUSR1)
        assert json.loads(client.makefile("rb").readline())["status"] == "answered"
        assert process.wait(timeout=10) == 0
    assert not path.exists()


def test_a_service_that_is_about_to_start_anew_takes_no_question(tmp_path: Path) -> None:
    agent: Any = None  # it is never asked
    service = Service(agent, tmp_path / "s")
    service._on_signal(signal.SIGUSR1, None)
    told = service._answer({"question": "why?"}, threading.Event(), agent)
    assert (told["status"], told["session_id"]) == ("cancelled", None)
    assert "starts anew when the questions that run are answered" in told["problem"]


def test_who_may_approve_is_heard_when_all_places_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glasslab.service.MAX_CONNECTIONS", 1)
    monkeypatch.setattr("glasslab.service.MAX_APPROVING", 2)
    agent: Any = None  # it is never asked
    taken: dict[str, Any] = {}
    for name, approvers in (("approver", frozenset({os.getuid()})), ("other", frozenset[int]())):
        service, poll = Service(agent, tmp_path / name, approvers), select.poll()
        said = [
            b"",
            b'{"approvals": true}\n',
            question(),
            b'{"approvals": true}\n',
        ]  # the first says nothing, and stays
        clients = list[socket.socket]()
        for words in said:
            clients.append(connect(tmp_path / name))
            clients[-1].sendall(words)
            service._accept(poll)
        taken[name] = [json.loads(client.makefile("rb").readline()) for client in clients[1:]]
        for client in clients:
            client.close()
    assert taken["approver"][0] == {"approvals": []}
    for refused in (*taken["approver"][1:], *taken["other"]):  # a question has no place there, nor a decision too many
        assert (refused["status"], refused["session_id"]) == ("cancelled", None)
        assert "questions waiting; ask again later" in refused["problem"]


def test_a_question_without_a_thread_to_be_had_is_let_go_and_the_service_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    agent: Any = None  # it is never asked
    service, poll = Service(agent, tmp_path / "s"), select.poll()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660, "its group may ask, others may not"
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        with connect(tmp_path / "s") as client, client.makefile("rb") as lines:
            service._accept(poll)
            service._sweep(poll)
            result = json.loads(lines.readline())
            assert (result["status"], result["session_id"]) == ("cancelled", None)
            assert "ask again later" in result["problem"]
            assert lines.readline() == b""
