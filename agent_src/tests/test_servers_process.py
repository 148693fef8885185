"""The process models: a child per session, spares ahead, who may connect, how all of it ends, bad configuration."""

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glasslab.recorder import Recorder
from glasslab.servers.__main__ import main
from glasslab.servers.parent import Parent, listening_socket
from glasslab.settings import HecSettings
from glasslab.toolbox import Toolbox
from glasslab.tooltypes import ToolServerError
from hec_stub import HecStub
from tool_servers import children, eventually, make_documents, meta, open_descriptors, running_parent, server_env

SERVER = [sys.executable, "-m", "glasslab.servers", "files"]


@pytest.fixture
def hec() -> Iterator[HecStub]:
    stub = HecStub()
    yield stub
    stub.close()


@pytest.fixture
def env(hec: HecStub, tmp_path: Path) -> dict[str, str]:
    return server_env(hec, make_documents(tmp_path), tmp_path / "mcp.pem")


def test_fifty_sessions_leave_spares_and_no_zombie(env: dict[str, str], tmp_path: Path) -> None:
    with running_parent(tmp_path / "s", env, "--spares", "3") as parent:
        assert eventually(lambda: len(children(parent.pid)) == 3)
        pids = set()
        descriptors = open_descriptors()
        for number in range(50):
            with Toolbox(f"unix:{tmp_path}/s") as tools:
                tools.connect(meta(session=f"s-{number}"))
                pids |= set(children(parent.pid))
                assert tools.call("list_files", {}, meta(session=f"s-{number}")).text == "a.md\nb.md"
        assert len(pids) > 50, "every session has a process of its own"
        assert eventually(lambda: list(children(parent.pid).values()) == ["S"] * 3), children(parent.pid)
        # The HEC stub in this process holds connections of its own; fifty sessions that each lost one would show.
        assert eventually(lambda: open_descriptors() < descriptors + 10), "no descriptor is left behind"


def test_children_are_bounded_and_the_next_caller_waits(env: dict[str, str], tmp_path: Path) -> None:
    with running_parent(tmp_path / "s", env, "--spares", "1", "--children", "2") as parent:
        boxes = [Toolbox(f"unix:{tmp_path}/s", timeout=0.5) for _ in range(3)]
        try:
            boxes[0].connect(meta(session="one"))
            boxes[1].connect(meta(session="two"))
            assert len(children(parent.pid)) == 2
            with pytest.raises(ToolServerError, match="did not answer"):
                boxes[2].connect(meta(session="three"))
            assert len(children(parent.pid)) == 2
        finally:
            for box in boxes:
                box.close()
        with Toolbox(f"unix:{tmp_path}/s") as again:
            again.connect(meta(session="four"))


# modelcontextprotocol/python-sdk 2231: a server over stdio outlives who started it
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_the_parent(env: dict[str, str], tmp_path: Path, end: signal.Signals) -> None:
    with running_parent(tmp_path / "s", env) as parent, Toolbox(f"unix:{tmp_path}/s") as tools:
        tools.connect(meta())
        assert eventually(lambda: len(children(parent.pid)) == 3)  # one serving, two spares
        pids = list(children(parent.pid))
        began = time.monotonic()
        parent.send_signal(end)
        assert parent.wait(20) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
        assert time.monotonic() - began < 5, "nobody waits for a child that is told to end"
        assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        with pytest.raises(ToolServerError):
            tools.call("list_files", {}, meta())
    assert (tmp_path / "s").exists() is (end == signal.SIGKILL)


def test_a_socket_left_by_a_killed_parent_is_taken_over(env: dict[str, str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with running_parent(tmp_path / "s", env), Toolbox(f"unix:{tmp_path}/s") as tools:
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660, "for owner and group only"
        assert tools.connect(meta()).name == "lab-files"
        second = subprocess.run([*SERVER, "--socket", str(tmp_path / "s")], env=os.environ | env, capture_output=True)
        assert second.returncode == 2
        assert b"cannot listen" in second.stderr
        assert tools.call("list_files", {}, meta()).text == "a.md\nb.md"


def test_an_idle_session_is_ended(env: dict[str, str], tmp_path: Path) -> None:
    with running_parent(tmp_path / "s", env, "--idle", "1", "--spares", "1") as parent:
        with Toolbox(f"unix:{tmp_path}/s") as tools:
            tools.connect(meta())
            assert eventually(lambda: len(children(parent.pid)) == 1), "only the spare is left"
            with pytest.raises(ToolServerError):
                tools.call("list_files", {}, meta())
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(tmp_path / "s"))
            silent.settimeout(5)
            assert silent.recv(1) == b"", "a caller that never says anything is ended too"


def test_only_the_allowed_users_are_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listener = listening_socket(tmp_path / "s")
    settings = HecSettings("http://127.0.0.1:1", "token")
    allowed = {os.geteuid() + 1}
    parent = Parent(listener, tmp_path, Recorder(settings, "mcp"), allowed=allowed, spares=1, children=1, idle=1)
    accepted: list[socket.socket] = []
    child = threading.Thread(target=lambda: accepted.append(parent._accept()))
    child.start()
    with socket.socket(socket.AF_UNIX) as refused, socket.socket(socket.AF_UNIX) as served:
        refused.connect(str(tmp_path / "s"))
        refused.settimeout(5)
        assert refused.recv(1) == b"", "closed without a word"
        assert not accepted
        allowed.add(os.geteuid())
        served.connect(str(tmp_path / "s"))
        child.join(5)
        assert accepted
        accepted[0].close()
    listener.close()
    assert f"user {os.geteuid()} was refused" in capsys.readouterr().err


def test_systemd_socket_activation(env: dict[str, str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        code = (
            "import os,sys; os.dup2(int(sys.argv[1]), 3); "
            "os.execve(sys.executable, [sys.executable, '-m', 'glasslab.servers', 'files'], "
            "{**os.environ, 'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})"
        )
        number = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(number)], pass_fds=[number], env=os.environ | env, close_fds=True
        )
    try:
        with Toolbox(f"unix:{tmp_path}/s") as tools:
            assert tools.connect(meta()).name == "lab-files"
            assert tools.call("read_file", {"path": "b.md"}, meta()).text == "beta"
    finally:
        process.terminate()
    assert process.wait(5) == 0
    assert (tmp_path / "s").exists(), "the socket is systemd's to remove"


def test_the_process_memory_is_closed_to_its_own_user(env: dict[str, str]) -> None:
    code = (
        "import ctypes, sys; from glasslab.servers import __main__, process;"
        "process.serve_stdio = lambda *_, **__: sys.exit(f'dumpable {ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)}');"
        "__main__.main(['files', '--stdio'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True)
    assert done.stderr == "dumpable 0\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"LAB_DOCUMENTS": "/nowhere/at/all"}, "LAB_DOCUMENTS"),
        ({"LAB_DOCUMENTS": "/etc/passwd"}, "LAB_DOCUMENTS"),
        ({"HEC_TOKEN_MCP": ""}, "HEC_TOKEN_MCP"),
        ({"HEC_URL": "not a url"}, "HEC_URL"),
        ({"SIGNING_KEY_MCP": "/dev/null"}, "signing key"),
    ],
)
def test_bad_configuration_is_one_line_and_exit_2(
    env: dict[str, str],
    change: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in (env | change).items():
        monkeypatch.setenv(name, value)
    assert main(["files", "--stdio"]) == 2
    line = capfd.readouterr().err
    assert line.startswith("glasslab-mcp: ")
    assert words in line
    assert line.count("\n") == 1
    assert "token-of-the-server" not in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "systemd passed no socket"),
        (["--socket", "/nowhere/at/all/s"], "cannot listen on /nowhere/at/all/s"),
        (["--socket", "{tmp}/s", "--allow-uid", "no-such-user"], "no-such-user"),
    ],
)
def test_a_socket_that_cannot_be_had_is_one_line_and_exit_2(
    env: dict[str, str],
    tmp_path: Path,
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("glasslab.servers.__main__.protect", lambda: None)  # these tests' own process stays as it is
    assert main(["files", *(option.format(tmp=tmp_path) for option in options)]) == 2
    line = capfd.readouterr().err
    assert words in line
    assert line.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_a_log_that_is_down_does_not_hold_up_the_start(env: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as deaf:  # takes connections and never answers
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        silent = {"HEC_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}", "HEC_DEADLINE": "300"}
        began = time.monotonic()
        with running_parent(tmp_path / "s", env | silent) as parent:
            assert time.monotonic() - began < 100
            assert eventually(lambda: len(children(parent.pid)) == 2)


def test_spares_that_keep_dying_end_the_parent(env: dict[str, str], tmp_path: Path) -> None:
    with running_parent(tmp_path / "s", env, "--spares", "1") as parent:
        for _ in range(100):
            for pid in children(parent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if parent.poll() is not None:
                break
            time.sleep(0.05)
        assert parent.returncode == 1
        assert parent.stderr
        assert parent.stderr.read() == "glasslab-mcp: children end before they serve; giving up\n"


def test_a_fork_that_fails_is_said_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with listening_socket(tmp_path / "s") as listener:
        recorder = Recorder(HecSettings("http://127.0.0.1:1", "token"), "mcp")
        parent = Parent(listener, tmp_path, recorder, allowed=set(), spares=2, children=2, idle=1)
        monkeypatch.setattr(os, "fork", refuse)
        parent._fork_spares()
        assert parent._early_deaths == 1
    assert capsys.readouterr().err == "glasslab-mcp: cannot fork: Resource temporarily unavailable\n"
