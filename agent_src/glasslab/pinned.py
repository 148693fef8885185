"""The tools of a session against the lock: a difference is recorded, and ends the session."""

from __future__ import annotations

from collections.abc import Sequence

from glasslab import pins, tool_frames
from glasslab.endings import Ended
from glasslab.recorder import SessionRecorder
from glasslab.toolset import Toolset
from glasslab.tooltypes import ServerInfo


def check_files(tools: Toolset, lock: pins.Lock, log: SessionRecorder) -> None:
    """Compare what the servers are started from, before any is started. Raises Ended."""
    for key, files in tools.started_from(lock).items():
        found = pins.compare_files(lock, key, pins.file_hashes(files))
        _end_at(found, ServerInfo("", key, "", {}, None, [], "initialize", key=key), lock, log, 0)


def check_tools(servers: Sequence[ServerInfo], lock: pins.Lock, log: SessionRecorder, turn: int) -> None:
    """Compare the tools that the servers list, before the model sees anything of them. Raises Ended."""
    for server in servers:
        found = pins.compare(lock, server.pinned_as, server.definitions, server.instructions)
        _end_at(found, server, lock, log, turn)


def _end_at(found: pins.Drift, server: ServerInfo, lock: pins.Lock, log: SessionRecorder, turn: int) -> None:
    if found:
        log.note(*tool_frames.drift(turn, server, found, lock))
        remedy = "look at them with `glasslab pin --diff`, and pin them with --accept NAME if they are meant"
        text = f"tools of {server.pinned_as!r} differ from the lock: {found}; {remedy}"
        raise Ended("tool_drift", "tool_drift", text)
