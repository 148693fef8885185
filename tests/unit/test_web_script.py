"""`make web`: where it leads, and what it says when it cannot."""

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import web

LOG = {
    "SPLUNK_URL": "https://10.9.8.7:8089",
    "SPLUNK_SSH": "-F '/run/a b/ssh_config' pve",
    "HEC_CA": "/ca.crt",
    "SPLUNK_TOKEN_FILE": "/secrets/search_token",
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "need_lab", lambda: None)
    monkeypatch.setattr(web, "log_environment", lambda: LOG)
    for name in ("WEB_PORT", "SPLUNK_WEB_PORT"):
        monkeypatch.delenv(name, raising=False)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("lab")
def test_it_leads_to_the_logs_web_port_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    @contextlib.contextmanager
    def forward(arguments: list[str], host: str, port: int, *, local: int) -> Iterator[int]:
        asked.append((arguments, host, port, local))
        yield local

    monkeypatch.setattr(web, "forward", forward)
    monkeypatch.setattr("time.sleep", interrupted)
    monkeypatch.setenv("WEB_PORT", "18000")
    web.main()
    assert asked == [(["-F", "/run/a b/ssh_config", "pve"], "10.9.8.7", 8000, 18000)]
    said = capsys.readouterr().out
    assert "https://127.0.0.1:18000/" in said
    assert "/ca.crt" in said
    assert "/secrets/search_token" in said


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("text", ["web", "0", "65536", "-1", "²"])
def test_a_port_that_is_none_is_one_line(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEB_PORT", text)
    with pytest.raises(SystemExit) as ended:
        web.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"glasslab: WEB_PORT={text!r}: give a port, 1 to 65535\n"


@pytest.mark.usefixtures("lab")
def test_a_port_in_use_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("WEB_PORT", str(port))
        with pytest.raises(SystemExit) as ended:
            web.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == f"glasslab: cannot listen on 127.0.0.1:{port}: Address already in use; give another port\n"
