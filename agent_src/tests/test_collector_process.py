"""The collector as a process and under strain: what is acknowledged is on disk, and no client holds up another."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from glasslab import httpserver
from glasslab.collector import store as store_module
from glasslab.collector.command import notify
from glasslab.collector.store import FILE, Store
from loglab import AGENT_TOKEN, SEARCH_TOKEN, Lab, envelope, make_home, start_lab

AUTHORIZATION = {"Authorization": f"Splunk {AGENT_TOKEN}"}


class Process:
    """`glasslab collector` on a home, started as systemd would."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify = home.parent / f"notify-{time.monotonic_ns()}"
        self.notices.bind(str(notify))
        self.notices.settimeout(10)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "glasslab.cli", "collector", "--splunk-home", str(home), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(notify)},
        )

    def ready(self) -> str:
        """Wait until it says so; return the HEC's address."""
        assert self.notices.recv(100) == b"READY=1"
        assert self.process.stdout is not None
        assert "not for production" in self.process.stdout.readline()
        return self.process.stdout.readline().split()[-1].replace("0.0.0.0", "127.0.0.1")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, float]:
        """Send a signal; return exit code, stderr and the seconds it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=10)
        self.notices.close()
        return self.process.returncode, error, time.monotonic() - begun


def session_with(ca: Path) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = str(ca)
    session.headers.update(AUTHORIZATION)
    return session


def stored(home: Path) -> list[str]:
    store = Store(home / FILE)
    try:
        return [event.raw for event in store.select("1", ())]
    finally:
        store.close()


def test_sigterm_ends_it_whatever_hangs_on_it(tmp_path: Path) -> None:
    ca = make_home(tmp_path / "splunk")
    (tmp_path / "token").write_text(f"{SEARCH_TOKEN}\n", encoding="utf-8")
    process = Process(tmp_path / "splunk", "--search-token-file", str(tmp_path / "token"))
    url = process.ready()
    with session_with(ca) as idle, socket.create_connection(("127.0.0.1", int(url.split(":")[-1]))) as silent:
        assert idle.post(f"{url}/services/collector", data=envelope("a"), timeout=5).json()["code"] == 0
        silent.sendall(b"\x16\x03\x01")
        code, error, seconds = process.end()
    assert (code, error) == (0, "")
    assert seconds < httpserver.HANDSHAKE_SECONDS
    assert stored(tmp_path / "splunk") == ["a"]


def test_a_deaf_systemd_is_said_and_does_not_stop_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    notify("READY=1")
    assert "NOTIFY_SOCKET /nonexistent/notify" in capsys.readouterr().err


class Forks:
    """Collectors on one home, one after the other, each killed by its pid."""

    def __init__(self, home: Path) -> None:
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify = home.parent / "notify"
        self.notices.bind(str(notify))
        self.notices.settimeout(20)
        self.parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_parent.py")), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(notify)},
        )

    def start(self) -> int:
        """Start the next; return its pid when it is ready."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.write("start\n")
        self.parent.stdin.flush()
        pid = int(self.parent.stdout.readline())
        assert self.notices.recv(100) == b"READY=1"
        return pid

    def close(self) -> None:
        self.parent.communicate(timeout=10)
        self.notices.close()


def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    home = tmp_path / "splunk"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ca = make_home(home, port)
    rounds = 200 if os.environ.get("GLASSLAB_SOAK") else 20
    acknowledged: list[str] = []
    forks = Forks(home)
    for round_ in range(rounds):
        pid = forks.start()
        before = len(acknowledged)

        def load(worker: int, round_: int = round_) -> None:
            with session_with(ca) as session:
                for number in range(100_000):
                    names = [f"{round_}-{worker}-{number}-{part}" for part in range(3)]
                    body = b"".join(envelope(name) for name in names)
                    try:
                        answer = session.post(f"https://127.0.0.1:{port}/services/collector", data=body, timeout=5)
                    except requests.RequestException:
                        return
                    assert answer.json()["code"] == 0
                    acknowledged.extend(names)

        threads = [threading.Thread(target=load, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 10
        while len(acknowledged) < before + 30 and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        for thread in threads:
            thread.join(timeout=10)
        assert len(acknowledged) >= before + 30
    forks.close()
    kept = stored(home)
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)


def _corrupt(home: Path) -> None:
    file = home / FILE
    store = Store(file)
    store.close()
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)


def _no_database(home: Path) -> None:
    (home / FILE).parent.mkdir(parents=True)
    (home / FILE).write_bytes(b"this is no database" * 100)


def _bad_certificate(home: Path) -> None:
    (home / "etc/auth/server.pem").write_text("no certificate", encoding="utf-8")


STARTS: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "no such home": (shutil.rmtree, [], "there is no"),
    "certificate missing": (lambda home: (home / "etc/auth/server.pem").unlink(), [], "server.pem"),
    "certificate is none": (_bad_certificate, [], "server.pem"),
    "events damaged": (_corrupt, [], "events.sqlite3"),
    "events are something else": (_no_database, [], "a new one is made"),
    "token file missing": (lambda home: None, ["--search-token-file", "/nonexistent"], "/nonexistent"),
    "token file empty": (lambda home: None, ["--search-token-file", "/dev/null"], "/dev/null is empty"),
    "address not ours": (lambda home: None, ["--host", "203.0.113.1"], "203.0.113.1"),
    "no connections": (lambda home: None, ["--max-connections", "0"], "--max-connections 0"),
}


@pytest.mark.parametrize(("spoil", "arguments", "named"), STARTS.values(), ids=STARTS.keys())
def test_a_start_that_cannot_be_is_one_line_and_exit_2(
    spoil: Callable[[Path], object],
    arguments: list[str],
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from glasslab.cli import main

    # What would be a process of its own in earnest runs here: these all end before they serve.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    make_home(tmp_path / "splunk")
    spoil(tmp_path / "splunk")
    assert main(["collector", "--splunk-home", str(tmp_path / "splunk"), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("glasslab: ")
    assert named in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_one_line_and_exit_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        make_home(tmp_path / "splunk", port)
        process = Process(tmp_path / "splunk", "--host", "127.0.0.1")
        _, error = process.process.communicate(timeout=10)
    process.notices.close()
    assert process.process.returncode == 2
    assert error.startswith(f"glasslab: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert error.count("\n") == 1


# --- in this process


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start_lab(tmp_path / "splunk", max_connections=20)
    yield lab
    lab.stop()


def test_many_clients_at_once_share_commits_and_lose_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = []
    commit = Store._commit
    monkeypatch.setattr(Store, "_commit", lambda self, taken: (commits.append(len(taken)), commit(self, taken)))

    def load(worker: int) -> int:
        with session_with(lab.ca) as session:
            url = f"{lab.hec_url}/services/collector"
            answers = [session.post(url, data=envelope(f"{worker}-{n}"), timeout=10).json() for n in range(40)]
        return sum(answer["code"] == 0 for answer in answers)

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(load, range(10))) == 400
    assert sorted(lab.rows()) == sorted(f"{worker}-{n}" for worker in range(10) for n in range(40))
    assert sum(commits) == 400
    assert len(commits) < 400
    for worker in range(10):  # and each client's events are in its own order
        own = [text for text in lab.rows() if text.startswith(f"{worker}-")]
        assert own == [f"{worker}-{n}" for n in range(40)]


def test_clients_that_stall_hold_up_nobody_else(lab: Lab) -> None:
    address = ("127.0.0.1", lab.servers[0].port)
    silent = [socket.create_connection(address) for _ in range(10)]
    context = ssl.create_default_context(cafile=str(lab.ca))
    halves = []
    for _ in range(5):
        # Who is held up gives up before the silent ones are let go, and fails this test.
        waiting = socket.create_connection(address, timeout=httpserver.HANDSHAKE_SECONDS - 1)
        half = context.wrap_socket(waiting, server_hostname="localhost")
        half.sendall(b"POST /services/collector HTTP/1.1\r\nContent-Length: 100\r\n")
        halves.append(half)
    begun = time.monotonic()
    assert lab.post(envelope("a")).json()["code"] == 0
    assert time.monotonic() - begun < httpserver.HANDSHAKE_SECONDS
    for stalled in (*silent, *halves):
        stalled.close()


def test_connections_are_bounded_and_slots_come_back(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    address = ("127.0.0.1", lab.servers[0].port)
    held = [socket.create_connection(address) for _ in range(20)]
    with pytest.raises(requests.ConnectionError):
        lab.post(envelope("too many"))
    assert "20 are open" in capfd.readouterr().err
    for one in held:
        one.close()
    until = time.monotonic() + 5
    while lab.servers[0]._deadlines and time.monotonic() < until:
        time.sleep(0.02)
    assert lab.post(envelope("a")).json()["code"] == 0
    assert lab.rows() == ["a"]


def client_hello(ca: Path) -> bytes:
    """Return the first message of a TLS handshake, which only takes its time to arrive."""
    sent = ssl.MemoryBIO()
    half = ssl.create_default_context(cafile=str(ca)).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    return sent.read()


def drip(connection: socket.socket, drops: bytes) -> None:
    for drop in drops[:100]:
        connection.sendall(bytes([drop]))
        time.sleep(0.05)


@pytest.mark.parametrize("stage", ["handshake", "header", "body"])
def test_a_client_that_drips_is_broken_off_by_the_wall_clock(
    stage: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpserver, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(httpserver, "REQUEST_SECONDS", 0.5)
    connection = socket.create_connection(("127.0.0.1", lab.servers[0].port), timeout=5)
    if stage != "handshake":
        context = ssl.create_default_context(cafile=str(lab.ca))
        connection = context.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(b"POST /services/collector HTTP/1.1\r\n")
        if stage == "body":
            head = f"Authorization: Splunk {AGENT_TOKEN}\r\nContent-Length: 1000\r\n\r\n"
            connection.sendall(head.encode())
    drops = client_hello(lab.ca) if stage == "handshake" else b"x" * 200
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"[Pp]ipe|reset|EOF"):
        drip(connection, drops)
    assert 0.4 < time.monotonic() - begun < 8
    connection.close()
    assert lab.rows() == []


def test_no_place_is_kept_for_a_client_without_a_request_or_without_the_token(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpserver, "FIRST_SECONDS", 0.3)
    context = ssl.create_default_context(cafile=str(lab.ca))

    def connected(server: int = 2) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", lab.servers[server].port), timeout=5)
        return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=True)

    def asks(connection: ssl.SSLSocket, token: str) -> bytes:
        connection.sendall(f"HEAD / HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return connection.recv(65_536)

    with connected() as silent, connected() as stranger, connected() as known:
        assert b" 200 " in asks(known, SEARCH_TOKEN)
        assert b" 401 " in asks(stranger, "none")
        assert stranger.recv(1) == b""
        assert silent.recv(1) == b""
        assert b" 200 " in asks(known, SEARCH_TOKEN)
    for server, path in ((0, "/services/collector"), (1, "/services/search/v2/jobs/export")):
        for scheme in ("Bearer", "Splunk"):  # neither is a token: 401 and 403
            with connected(server) as stranger:
                head = f"POST {path} HTTP/1.1\r\nAuthorization: {scheme} none\r\nContent-Length: 1\r\n\r\n"
                stranger.sendall(f"{head}x".encode())
                assert b" 40" in stranger.recv(65_536)
                assert stranger.recv(1) == b""


def test_what_does_not_fit_into_memory_waits_outside(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk hangs, POSTs up to the bound wait for it and the rest is told that the server is busy."""
    monkeypatch.setattr(store_module, "MOST_WAITING", 2)
    hang = threading.Event()
    commit = Store._commit
    monkeypatch.setattr(Store, "_commit", lambda self, taken: (hang.wait(10), commit(self, taken)))
    with ThreadPoolExecutor(6) as pool:
        answers = []
        for number in range(6):
            answers.append(pool.submit(lab.post, envelope(str(number))))
            time.sleep(0.1)
        until = time.monotonic() + 5
        while sum(answer.done() for answer in answers) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        hang.set()
        codes = [answer.result().json()["code"] for answer in answers]
    # One is with the writer, two wait, three are refused; and what was refused is not stored.
    assert codes == [0, 0, 0, 9, 9, 9]
    assert lab.rows() == ["0", "1", "2"]


def test_stopping_waits_for_a_post_that_was_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Store._commit
    monkeypatch.setattr(Store, "_commit", lambda self, taken: (time.sleep(0.4), commit(self, taken)))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lab.post, envelope("a"))
        time.sleep(0.2)
        lab.servers[0].stop(seconds=2)
        assert answer.result().json()["code"] == 0
    assert lab.rows() == ["a"]


def test_events_are_synced_before_the_answer(lab: Lab) -> None:
    (mode,) = lab.store._writing.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = lab.store._writing.execute("PRAGMA synchronous").fetchone()
    assert (mode, synchronous) == ("wal", 2)
    assert json.loads(lab.post(envelope("a")).text)["code"] == 0
    assert lab.rows() == ["a"]


def test_sighup_takes_new_tokens_and_keeps_the_old_ones_when_it_cannot_read(tmp_path: Path) -> None:
    ca = make_home(tmp_path / "splunk")
    inputs, fresh = tmp_path / "splunk/etc/apps/glasslab/local/inputs.conf", "0a000000-0000-4000-8000-0000000000ff"
    collector = Process(tmp_path / "splunk", "--host", "127.0.0.1")
    url = f"{collector.ready()}/services/collector"
    text = inputs.read_text(encoding="utf-8")

    def answer(token: str) -> int:
        with session_with(ca) as session:
            headers = {"Authorization": f"Splunk {token}"}
            return session.post(url, data=envelope({"n": 1}), headers=headers, timeout=10).status_code

    def told(stream: Any) -> str:
        collector.process.send_signal(signal.SIGHUP)
        line: str = stream.readline()
        return line

    assert (answer(AGENT_TOKEN), answer(fresh)) == (200, 403)
    inputs.write_text(
        f"{text}\n[http://agent-next]\ntoken = {fresh}\nindex = agents\nindexes = agents\n", encoding="utf-8"
    )
    assert (answer(AGENT_TOKEN), answer(fresh)) == (200, 403), "the file alone changes nothing"
    while "search" in (line := told(collector.process.stdout)) or "page" in line:
        pass
    assert line.startswith("tokens read anew: ")
    assert "agent-next" in line
    assert (answer(AGENT_TOKEN), answer(fresh)) == (200, 200)
    inputs.write_text("[http]\ndisabled = perhaps\n", encoding="utf-8")
    assert "not read anew: inputs.conf [http] disabled = perhaps" in told(collector.process.stderr)
    assert (answer(AGENT_TOKEN), answer(fresh)) == (200, 200)
    inputs.write_text(text.replace(AGENT_TOKEN, fresh), encoding="utf-8")
    told(collector.process.stdout)
    assert (answer(AGENT_TOKEN), answer(fresh)) == (403, 200)
    assert collector.end()[0] == 0
