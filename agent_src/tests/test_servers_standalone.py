"""The servers for hosts that are not this lab's agent: sessions of their own, on record as strictly as any other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from glasslab.frames import Frame
from glasslab.recorder import LoggingError
from glasslab.servers import recorded
from glasslab.servers.files import FilesServer
from glasslab.wire import LOG_FAILED, META_CLOCK, META_SESSION_ID
from tool_servers import make_documents


class Log:
    """One session's record in memory; `down` makes each commit fail."""

    down = False
    clock = 7

    def __init__(self, session_id: str) -> None:
        self.session_id, self.kinds, self.closed = session_id, list[str](), 0

    def merge(self, remote: object) -> None:
        assert remote == 0, "what a host says of the lab's clock is not heard"

    def commit(self, *frames: Frame) -> None:
        if Log.down:
            raise LoggingError("log_unreachable", "https://log", "connection refused", "start it")
        self.kinds += [frame["kind"] for frame in frames]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    monkeypatch.setattr(Log, "down", False)
    return []


@pytest.fixture
def server(logs: list[Log], tmp_path: Path) -> FilesServer:
    def opened(session_id: str) -> Log:
        logs.append(Log(session_id))
        return logs[-1]

    return FilesServer(make_documents(tmp_path), opened, standalone=True)


def talk(server: FilesServer, use: Callable[[Client], Any], mode: str = "2026-07-28") -> Any:
    async def session() -> Any:
        async with Client(server.mcp, mode=mode, read_timeout_seconds=5, cache=None) as client:
            return await use(client)

    return anyio.run(session)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_host_that_knows_nothing_of_the_lab_is_served_and_on_record(
    server: FilesServer, logs: list[Log], mode: str
) -> None:
    async def use(client: Client) -> Any:
        listed = await client.call_tool("list_files", {})
        read = await client.call_tool("read_file", {"path": "a.md"}, meta={META_SESSION_ID: "forged", META_CLOCK: 99})
        refused = await client.call_tool("read_file", {"path": "../.env"})
        return [(result.content[0].text, result.is_error, result.meta or {}) for result in (listed, read, refused)]

    results = talk(server, use, mode)
    assert [text for text, _, _ in results[:2]] == ["a.md\nb.md", "alpha — one"]
    assert "'../.env' is refused" in results[2][0]
    assert [is_error for _, is_error, _ in results] == [False, False, True]
    assert not any(key.startswith("glasslab/") for _, _, said in results for key in said)
    (log,) = logs
    assert log.session_id.startswith("host-"), "not what the host calls it"
    assert log.kinds == [
        "server.start", "server.list_files", "server.path_check", "server.read_file",
        "server.path_check", "toolcall.refused",
    ]  # fmt: skip


def test_without_its_log_a_server_does_nothing_and_with_it_again_it_begins_anew(
    server: FilesServer, logs: list[Log]
) -> None:
    async def use(client: Client) -> Any:
        assert not (await client.call_tool("list_files", {})).is_error
        Log.down = True
        for _ in range(2):
            with pytest.raises(MCPError) as caught:
                await client.call_tool("read_file", {"path": "a.md"})
            assert caught.value.error.code == LOG_FAILED
        Log.down = False
        return (await client.call_tool("read_file", {"path": "a.md"})).content[0].text

    assert talk(server, use) == "alpha — one"
    assert [log.kinds for log in logs] == [
        ["server.start", "server.list_files"],
        [],  # it could not even record its start
        ["server.start", "server.path_check", "server.read_file"],
    ]
    assert [log.closed for log in logs] == [1, 1, 0], "a session that is over holds no connection"
    assert len({log.session_id for log in logs}) == 3


def test_a_pause_begins_another_session(server: FilesServer, logs: list[Log], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(recorded.time, "monotonic", lambda: now)

    async def use(client: Client) -> None:
        nonlocal now
        for pause in (0.0, recorded.PAUSE - 1, recorded.PAUSE + 1):
            now += pause
            await client.call_tool("list_files", {})

    talk(server, use)
    listed = [log.kinds.count("server.list_files") for log in logs]
    assert listed == [2, 1]


def test_the_labs_own_server_says_how_another_host_is_served(tmp_path: Path) -> None:
    server = FilesServer(make_documents(tmp_path), Log)

    async def use(client: Client) -> Any:
        return await client.list_tools()

    with pytest.raises((MCPError, ExceptionGroup)) as caught:
        talk(server, use, "legacy")
    error = caught.value
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert "run it --standalone" in str(error)
    assert server._log is None, "nothing was opened for it"
