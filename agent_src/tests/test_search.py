"""The search client: what it sends, what it understands, TLS, deadlines, and the SSH forward that ends with it."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glasslab.httpserver import Handler, Server
from glasslab.queries import parse_search, session_search, sessions_search
from glasslab.search import Search, SearchError, forward, parse_export, parse_time
from loglab import SEARCH_TOKEN, Lab, envelope, make_certificates, start_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("collector") / "splunk")
    lab.post(envelope({"session_id": "s1", "kind": "x"}, time=1.5, sourcetype="agent:trace", source="glasslab:agent"))
    yield lab
    lab.stop()


def test_it_reads_events(lab: Lab) -> None:
    (event,) = Search(lab.search_url, SEARCH_TOKEN, lab.ca).events("s1")
    assert event.event == {"session_id": "s1", "kind": "x"}
    assert (event.time, event.sourcetype, event.source, event.index) == (1.5, "agent:trace", "glasslab:agent", "agents")
    assert Search(lab.search_url, SEARCH_TOKEN, lab.ca).events("nobody") == []


def test_it_reads_one_sourcetype_of_all_sessions_since_a_time(lab: Lab) -> None:
    for number, sourcetype in enumerate(("agent:network", "agent:llm", "agent:network", "agent:session")):
        event = {"session_id": f"since{number}", "kind": "x"}
        lab.post(envelope(event, time=100.5 + number, sourcetype=sourcetype, source="glasslab:hypervisor"))
    search = Search(lab.search_url, SEARCH_TOKEN, lab.ca)
    network, calls, sessions = search.since_all({"agent:network": 101, "agent:llm": 100, "agent:session": 104})
    assert [item.event["session_id"] for item in network] == ["since2"]
    assert [item.event["session_id"] for item in calls] == ["since1"]
    assert sessions == []
    with pytest.raises(ValueError, match="agent:trace"):
        search.since_all({"agent:trace": 0})
    assert parse_search('search index=agents sourcetype="agent:trace" earliest=5 | sort 0 _time') is None
    assert parse_search('search index=agents sourcetype="agent:network" earliest=-5 | sort 0 _time') is None


def test_the_environment_can_neither_redirect_nor_unverify_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    assert len(Search(lab.search_url, SEARCH_TOKEN, lab.ca).events("s1")) == 1


def test_another_ca_or_none_is_refused_with_the_remedy(lab: Lab, tmp_path: Path) -> None:
    for ca in (make_certificates(tmp_path / "other"), None, tmp_path / "missing.crt"):
        with pytest.raises(SearchError, match="HEC_CA"):
            Search(lab.search_url, SEARCH_TOKEN, ca).events("s1")


class Dripping(Handler):
    """Sends a byte of an endless answer every 0.1 s."""

    def do_POST(self) -> None:
        self.read_body(10_000)
        self.answer(200, b"", "application/json", length=1000)
        for _ in range(100):
            time.sleep(0.1)
            self.wfile.write(b" ")


def test_a_dripping_log_does_not_beat_the_deadline() -> None:
    server = Server("127.0.0.1", 0, Dripping)
    server.start()
    begun = time.monotonic()
    with pytest.raises(SearchError, match="no whole answer within"):
        Search(f"http://127.0.0.1:{server.port}", "t", deadline=0.5).events("s1")
    assert time.monotonic() - begun < 8
    server.stop(seconds=0)


@pytest.mark.parametrize("body", [b"<html>", b'{"result": 1}', b"[1]", b'{"result": {"_raw": "x"}}', b"[" * 100_000])
def test_what_is_no_export_is_said(body: bytes) -> None:
    with pytest.raises(SearchError, match="no export"):
        parse_export(body, "https://log")


def test_previews_messages_and_text_events_are_understood() -> None:
    result = {"_raw": "plain text", "_time": "2026-09-21 14:13:20.123 UTC"}
    lines = [
        {"preview": True, "result": result},
        {"preview": False, "messages": [{"type": "INFO", "text": "x"}]},
        {"preview": False, "offset": 0, "lastrow": True, "result": result},
    ]
    (event,) = parse_export(b"\n".join(json.dumps(line).encode() for line in lines), "https://log")
    assert (event.raw, event.event) == ("plain text", {})


def test_times_as_splunk_writes_them() -> None:
    for text in ("1790000000.5", "2026-09-21 14:13:20.500 UTC", "2026-09-21T16:13:20.500+02:00"):
        assert parse_time(text) == 1790000000.5
    with pytest.raises(ValueError, match="yesterday"):
        parse_time("yesterday")


@pytest.mark.parametrize("text", ["", "*", "a b", 'a" OR 1=1', "a" * 200, "-a", "ä"])
def test_only_plain_ids_reach_a_search(text: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        session_search(text)


def test_the_fixed_searches_are_known_and_no_other() -> None:
    assert session_search("abc") == 'search index=agents session_id="abc" | sort 0 _time'
    known = parse_search(session_search("abc", "agents"))
    assert known is not None
    assert (known.index, known.session_id) == ("agents", "abc")
    listing = parse_search(sessions_search())
    assert listing is not None
    assert listing.session_id is None
    for text in ("", "search index=agents", session_search("abc") + " | head 1", session_search("abc").upper()):
        assert parse_search(text) is None


# --- the forward, with a stand-in for ssh that forwards as `ssh -N -L` does

FAKE_SSH = f"""#!{sys.executable}
import os, pathlib, socket, sys, threading
arguments = sys.argv[1:]
pathlib.Path(os.environ["FAKE_SSH_LOG"]).write_text(f"{{os.getpid()}}\\n" + "\\n".join(arguments))
if arguments[-1] == "refused":
    sys.exit("Warning: first\\nrefused: Permission denied (publickey).")
if arguments[-1] == "silent":
    threading.Event().wait(20)
    sys.exit("nobody ended it")
bind, local, host, port = arguments[arguments.index("-L") + 1].split(":")
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
with socket.create_server((bind, int(local))) as server:
    while True:
        client, _ = server.accept()
        target = socket.create_connection((host.replace("log.example", "127.0.0.1"), int(port)))
        threading.Thread(target=copy, args=(client, target), daemon=True).start()
        threading.Thread(target=copy, args=(target, client), daemon=True).start()
"""


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for ssh on the PATH; returns the file with its process id and arguments."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH_LOG", str(tmp_path / "ssh.log"))
    return tmp_path / "ssh.log"


def gone(log: Path) -> bool:
    try:
        os.kill(int(log.read_text(encoding="utf-8").split("\n")[0]), 0)
    except ProcessLookupError:
        return True
    return False


def test_the_forward_lives_for_one_search(lab: Lab, fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: pytest.fail("it goes when it is told to"))
    search = Search(lab.search_url, SEARCH_TOKEN, lab.ca, ["-F", "config", "pve"])
    assert [event.event["session_id"] for event in search.events("s1")] == ["s1"]
    arguments = fake_ssh.read_text(encoding="utf-8").split("\n")[1:]
    assert arguments[-3:] == ["-F", "config", "pve"]
    assert {"-N", "ExitOnForwardFailure=yes", "BatchMode=yes"} < set(arguments)
    assert arguments[arguments.index("-L") + 1].startswith("127.0.0.1:")
    assert arguments[arguments.index("-L") + 1].endswith(lab.search_url.removeprefix("https://127.0.0.1"))
    assert gone(fake_ssh)


def test_behind_a_forward_it_is_the_logs_own_name_that_counts(lab: Lab, fake_ssh: Path) -> None:
    """The certificate is for localhost and 127.0.0.1, where the forward is, and not for log.example."""
    url = lab.search_url.replace("127.0.0.1", "localhost")
    assert Search(url, SEARCH_TOKEN, lab.ca, ["pve"]).events("s1") != []
    url = lab.search_url.replace("127.0.0.1", "log.example")
    with pytest.raises(SearchError, match=r"log\.example:\d+: certificate verify failed; HEC_CA has to be the CA"):
        Search(url, SEARCH_TOKEN, lab.ca, ["pve"]).events("s1")
    assert gone(fake_ssh)


def test_a_forward_that_fails_is_one_line_and_leaves_nothing(fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SearchError, match=r"ssh refused ended: refused: Permission denied .*SPLUNK_SSH"):
        Search("https://10.10.10.20:8089", "t", None, ["refused"]).events("s1")
    assert gone(fake_ssh)
    with pytest.raises(SearchError, match="opened no forward in time"), forward(["silent"], "h", 1, deadline=0.5):
        pass
    assert gone(fake_ssh)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SearchError, match="cannot run ssh"):
        Search("https://10.10.10.20:8089", "t", None, ["x"]).events("s1")


def test_nothing_listens_after_an_error_inside_the_block(fake_ssh: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        with (
            pytest.raises(RuntimeError, match="inside"),
            forward(["pve"], "127.0.0.1", target.getsockname()[1]) as port,
        ):
            raise RuntimeError("inside")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)
    assert gone(fake_ssh)
