"""The outbox by itself: who may be written to, what a message is, and that nothing is half written."""

import email
import email.policy
import os
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types.version import LATEST_MODERN_VERSION

from glasslab.servers import outbox
from glasslab.servers.__main__ import main
from glasslab.servers.outbox import Outbox


@pytest.fixture
def box(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path, "*@lab.example, anna@other.example")


def test_a_message_is_one_whole_file(box: Outbox, tmp_path: Path) -> None:
    said = box.send_message("ap@lab.example", "Gr\u00fc\u00dfe", "One line.\n.\nFrom here \u2014 another.\n")
    (path,) = tmp_path.iterdir()
    message = email.message_from_bytes(path.read_bytes(), policy=email.policy.SMTPUTF8)
    assert (message["To"], message["Subject"]) == ("ap@lab.example", "Gr\u00fc\u00dfe")
    assert message.get_content().replace("\r\n", "\n") == "One line.\n.\nFrom here \u2014 another.\n"
    assert said == f"Sent to ap@lab.example: {path.name}, {path.stat().st_size} bytes."
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("thief@evil.example", "not on the allow-list"),
        ("ap@lab.example.evil.example", "not on the allow-list"),
        ("ap@lab.example, thief@evil.example", "is no address"),
        ("ap@lab.example\nBcc: thief@evil.example", "is no address"),
        ("AP <ap@lab.example>", "is no address"),
        ("\u0430p@lab.example", "is no address"),
        ("", "is no address"),
    ],
    ids=ascii,
)
def test_who_is_not_on_the_list_gets_nothing(box: Outbox, tmp_path: Path, to: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem) as caught:
        box.send_message(to, "Hello", "Text")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_list_nobody_may_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="not on the allow-list"):
        Outbox(tmp_path, "").send_message("ap@lab.example", "Hello", "Text")


def test_a_subject_adds_no_header(box: Outbox, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="one line"):
        box.send_message("ap@lab.example", "Hello\nBcc: thief@evil.example", "Text")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_more(box: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_MESSAGES", 1)
    box.send_message("ap@lab.example", "Hello", "Text")
    with pytest.raises(ToolError, match="holds 1 messages; nothing was sent"):
        box.send_message("ap@lab.example", "Hello", "Text")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outbox, "MAX_MESSAGES", 9)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match=r"could not be written \(No space left on device\); nothing was sent"):
        box.send_message("ap@lab.example", "Hello", "Text")
    assert len(list(tmp_path.iterdir())) == 1, "neither a message nor a part of one"


@pytest.mark.parametrize("mode", ["legacy", LATEST_MODERN_VERSION])
def test_arguments_are_checked_for_any_host(box: Outbox, tmp_path: Path, mode: str) -> None:
    good = {"to": "ap@lab.example", "subject": "Hello", "body": "Text"}

    async def calls() -> list[tuple[bool | None, str]]:
        found = []
        async with Client(box.mcp, mode=mode, read_timeout_seconds=10, cache=None) as client:
            for arguments in ({**good, "cc": "x"}, {**good, "to": ["a"]}, {"to": "a"}, {**good, "subject": "x" * 201}):
                result = await client.call_tool("send_message", arguments)
                found.append((result.is_error, result.content[0].text))
            result = await client.call_tool("send_message", good)
            found.append((result.is_error, result.content[0].text))
        return found

    found = anyio.run(calls)
    assert [is_error for is_error, _ in found] == [True] * 4 + [False]
    assert "cc" in found[0][1]
    assert "to" in found[1][1]
    assert "subject" in found[2][1]
    assert "subject" in found[3][1]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "environment", "problem"),
    [
        (["outbox", "--stdio"], {"LAB_OUTBOX": "/no/such/folder"}, "LAB_OUTBOX: '/no/such/folder' is no folder"),
        (["weather"], {}, "serves stdin and stdout only"),
    ],
)
def test_bad_configuration_is_one_line(
    words: list[str],
    environment: dict[str, str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("\n") == 1
