"""The files server over a unix socket: both MCP revisions, what it records when, and what a failing log stops."""

import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from glasslab.frames import GENESIS, event_hash, verify_event_signature
from glasslab.toolbox import Toolbox
from glasslab.tooltypes import LogFailedAtServer, ToolServerError
from glasslab.wire import META_CLOCK, META_REFUSED, META_SESSION_ID
from hec_stub import HecStub
from tool_servers import eventually, make_documents, meta, running_parent, server_env

REVISIONS = ["auto", "2025-11-25", "2026-07-28"]


class Lab:
    """A running parent in each trace mode, its HEC and its documents."""

    def __init__(self, hec: HecStub, folder: Path) -> None:
        self.hec, self.folder, self.documents = hec, folder, folder / "documents"

    def connect(self, revision: str = "2025-11-25", trace: str = "full", **options: Any) -> Toolbox:
        """Return a toolbox on the parent that records as asked; nothing is sent yet."""
        return Toolbox(f"unix:{self.folder}/{trace}.sock", revision=revision, **options)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("files")
    hec = HecStub()
    documents = make_documents(folder)
    full, summary = (server_env(hec, documents, folder / "mcp.pem", trace, 1) for trace in ("full", "summary"))
    with running_parent(folder / "full.sock", full), running_parent(folder / "summary.sock", summary):
        yield Lab(hec, folder)
    hec.close()


@pytest.fixture
def lab(running: Lab) -> Lab:
    running.hec.reset()
    return running


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_session_in_each_revision(lab: Lab, revision: str) -> None:
    with lab.connect(revision) as tools:
        info = tools.connect(meta(clock=7))
        listed = tools.call("list_files", {}, meta(20, 1, "c1"))
        read = tools.call("read_file", {"path": "a.md"}, meta(30, 2, "c2"))
    legacy = revision == "2025-11-25"
    assert info.protocol_version == ("2025-11-25" if legacy else "2026-07-28")
    assert info.agreed_by == ("initialize" if legacy else "discover")
    assert info.name == "lab-files"
    assert info.version
    assert set(info.capabilities) == {"tools", "prompts", "resources"}
    assert not any(part.get("listChanged") for part in info.capabilities.values())
    assert (listed.text, listed.is_error) == ("a.md\nb.md", False)
    assert (read.text, read.is_error) == ("alpha — one", False)
    assert [info.meta[META_CLOCK], listed.meta[META_CLOCK], read.meta[META_CLOCK]] == [8, 21, 32]
    assert lab.hec.kinds == [["server.start"], ["server.list_files"], ["server.path_check"], ["server.read_file"]]
    start, files, check, done = (post[0] for post in lab.hec.posts)
    assert (start["sandbox"], start["step"], start["session_id"]) == (str(lab.documents), 0, "s-1")
    assert start["pid"] != os.getpid()
    assert (files["files"], files["step"], files["tool_call_id"]) == (["a.md", "b.md"], 1, "c1")
    assert (check["requested_path"], check["resolved_path"]) == ("a.md", str(lab.documents / "a.md"))
    assert (check["inside_sandbox"], check["step"], check["tool_call_id"]) == (True, 2, "c2")
    assert (done["path"], done["bytes_read"], done["bytes_total"], done["tool_call_id"]) == ("a.md", 13, 13, "c2")


def test_the_definitions_are_the_published_two(lab: Lab) -> None:
    with lab.connect() as tools:
        definitions = {item["name"]: item for item in tools.connect(meta()).definitions}
    assert sorted(definitions) == ["list_files", "read_file"]
    schema = definitions["read_file"]["inputSchema"]
    assert schema["properties"]["path"]["type"] == "string"
    assert schema["required"] == ["path"]
    assert schema["additionalProperties"] is False
    assert "outputSchema" not in definitions["read_file"]
    assert "one text file of the lab's documents" in definitions["read_file"]["description"]
    assert "list_files" in definitions["read_file"]["description"]


def test_the_chain_is_unbroken_and_signed(lab: Lab) -> None:
    with lab.connect() as tools:
        tools.connect(meta())
        tools.call("list_files", {}, meta())
        tools.call("read_file", {"path": "link.md"}, meta())
    key = load_pem_public_key((lab.folder / "mcp.pub").read_bytes())
    previous = GENESIS
    events = [event for post in lab.hec.posts for event in post]
    assert len(events) == 4
    for number, event in enumerate(events, 1):
        assert (event["seq"], event["prev"], event["component"]) == (number, previous, "mcp")
        previous = event_hash(event)
    for post in lab.hec.posts:
        assert verify_event_signature(post[-1], key)
        assert len(base64.b64decode(post[-1]["sig"])) == 64


@pytest.mark.parametrize("path", ["../.env", "../../../etc/passwd", "/etc/passwd", "link.md"])
@pytest.mark.parametrize("trace", ["full", "summary"])
def test_the_four_path_attacks(lab: Lab, path: str, trace: str) -> None:
    with lab.connect(trace=trace) as tools:
        tools.connect(meta())
        refused = tools.call("read_file", {"path": path}, meta(5, 2, "c9"))
        after = tools.call("read_file", {"path": "b.md"}, meta(9, 3, "c10"))
    assert refused.is_error
    assert f"'{path}' is refused" in refused.text
    assert "SECRET" not in refused.text
    assert str(lab.folder) not in refused.text
    assert refused.meta[META_REFUSED]
    assert after.text == "beta"
    assert META_REFUSED not in after.meta
    events = {event["kind"]: event for post in lab.hec.posts for event in post}
    if trace == "full":
        assert lab.hec.kinds[1] == ["server.path_check", "toolcall.refused"], "one commit for both"
        assert lab.hec.posts[1][0]["inside_sandbox"] is False
    else:
        assert lab.hec.kinds == [["toolcall.refused"]], "in summary mode only the refusal is left"
    assert events["toolcall.refused"]["requested_path"] == path
    assert events["toolcall.refused"]["tool_call_id"] == "c9"


def test_what_only_the_open_finds_out_is_recorded_too(lab: Lab) -> None:
    os.mkfifo(lab.documents / "pipe.md")
    try:
        with lab.connect() as tools:
            tools.connect(meta())
            result = tools.call("read_file", {"path": "pipe.md"}, meta())
            missing = tools.call("read_file", {"path": "nowhere.md"}, meta())
    finally:
        (lab.documents / "pipe.md").unlink()
    assert "not a regular file" in result.text
    assert lab.hec.kinds[1:3] == [["server.path_check"], ["toolcall.refused"]]
    assert "does not exist" in missing.text
    assert META_REFUSED not in missing.meta, "a name that is not there is no attack"
    assert lab.hec.kinds[3:] == [["server.path_check"]]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("read_file", {}, "'path' is missing"),
        ("read_file", {"path": 5}, "must be a string, not int"),
        ("read_file", {"path": None}, "must be a string, not NoneType"),
        ("read_file", {"path": ["a.md"]}, "must be a string, not list"),
        ("read_file", {"path": "a.md", "mode": "w"}, "unknown argument 'mode'"),
        ("list_files", {"folder": "/"}, "unknown argument 'folder'"),
        ("write_file", {"path": "a.md"}, "Unknown tool 'write_file'"),
        ("read_file", {"path": "\ud800"}, "cannot be sent as JSON"),
        ("read_file", {"path": float("nan")}, "cannot be sent as JSON"),
    ],
)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_bad_calls_are_clear_errors_and_the_session_goes_on(
    lab: Lab, revision: str, tool: str, arguments: dict[str, Any], words: str
) -> None:
    with lab.connect(revision) as tools:
        tools.connect(meta())
        result = tools.call(tool, arguments, meta())
        assert result.is_error
        assert words in result.text
        assert tools.call("list_files", {}, meta()).text == "a.md\nb.md"


def test_a_name_that_is_not_utf8_leaves_the_server_alive(lab: Lab) -> None:
    name = os.fsencode(lab.documents) + b"/caf\xe9.md"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    try:
        with lab.connect() as tools:
            tools.connect(meta())
            result = tools.call("list_files", {}, meta())
            assert result.text == "a.md\nb.md\n(1 more cannot be shown)"
            assert tools.call("read_file", {"path": "b.md"}, meta()).text == "beta"
    finally:
        Path(os.fsdecode(name)).unlink()


def test_requests_without_the_labs_meta_are_refused_and_start_nothing(lab: Lab) -> None:
    for bad in ({}, meta(session="../x"), {**meta(), META_CLOCK: -1}, {**meta(), META_SESSION_ID: 5}):
        with lab.connect() as tools, pytest.raises(ToolServerError, match="_meta"):
            tools.connect(bad)
    with lab.connect() as tools:
        tools.connect(meta())
        result = tools.call("list_files", {}, meta(session="s-2"))
        assert result.is_error
        assert "another session" in result.text
    assert lab.hec.kinds == [["server.start"]]


class Canary:
    """A FIFO as a document: its writer's `open` returns only when somebody opens it for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened = False
        os.mkfifo(path)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        os.close(os.open(self.path, os.O_WRONLY))
        self.opened = True

    def release(self) -> bool:
        """Return whether it had been opened; then let the writer go and remove the file."""
        eventually(lambda: self.opened, 0.3)
        was = self.opened
        if not was:
            reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            self._thread.join(5)
            os.close(reader)
        self.path.unlink()
        return was


@pytest.mark.parametrize("how", ["busy", "close", "hang"])
@pytest.mark.parametrize("trace", ["full", "summary"])
def test_no_file_is_opened_before_its_check_is_acknowledged(lab: Lab, how: str, trace: str) -> None:
    """The same call with the log up opens the canary, so its silence with the log down means something."""
    canary = Canary(lab.documents / "canary.md")
    try:
        lab.hec.reset(fail_at=2 if trace == "full" else 1, how=how)
        with lab.connect(trace=trace) as tools:
            tools.connect(meta())
            attack = "canary.md" if trace == "full" else "../canary.md"
            with pytest.raises(LogFailedAtServer) as caught:
                tools.call("read_file", {"path": attack}, meta())
            assert caught.value.status == ("log_rejected" if how == "busy" else "log_unreachable")
            assert caught.value.url == lab.hec.url
            assert caught.value.cause
            with pytest.raises(LogFailedAtServer):
                tools.call("no_such_tool", {}, meta())  # needs no commit, and is not answered all the same
        assert lab.hec.kinds == ([["server.start"]] if trace == "full" else [])
    finally:
        was_opened = canary.release()
    assert not was_opened


def test_the_canary_sings_when_the_log_is_up(lab: Lab) -> None:
    canary = Canary(lab.documents / "canary.md")
    try:
        with lab.connect() as tools:
            tools.connect(meta())
            assert tools.call("read_file", {"path": "canary.md"}, meta()).is_error
    finally:
        was_opened = canary.release()
    assert was_opened


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_first_request_is_not_answered_when_the_start_is_not_recorded(lab: Lab, revision: str) -> None:
    lab.hec.reset(fail_at=1)
    with lab.connect(revision) as tools, pytest.raises(LogFailedAtServer) as caught:
        tools.connect(meta())
    assert caught.value.status == "log_rejected"
    assert "code 9" in caught.value.cause
    assert lab.hec.posts == []


@pytest.mark.parametrize(("tool", "arguments", "at"), [("list_files", {}, 2), ("read_file", {"path": "a.md"}, 3)])
def test_no_content_is_returned_before_it_is_recorded(lab: Lab, tool: str, arguments: dict[str, Any], at: int) -> None:
    lab.hec.reset(fail_at=at)
    with lab.connect() as tools:
        tools.connect(meta())
        with pytest.raises(LogFailedAtServer) as caught:
            tools.call(tool, arguments, meta())
    assert "alpha" not in str(caught.value)
    assert len(lab.hec.posts) == at - 1


@pytest.mark.parametrize("revision", ["auto", "2025-11-25", "2026-07-28"])
def test_a_folder_that_went_away_is_one_clear_error(lab: Lab, revision: str) -> None:
    lab.documents.rename(lab.folder / "parked")
    said = rf"documents folder '{lab.documents}' cannot be opened: No such file or directory; .*LAB_DOCUMENTS"
    try:
        with lab.connect(revision) as tools, pytest.raises(ToolServerError, match=said):
            tools.connect(meta())
    finally:
        (lab.folder / "parked").rename(lab.documents)
    assert lab.hec.posts == []
