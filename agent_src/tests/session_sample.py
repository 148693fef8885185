"""The sample session as its two writers would send it: 25 trace frames and 8 summary events in 14 commits."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from glasslab.frames import KINDS, TRACE, Chain, frame
from glasslab.search import StoredEvent

SESSION = "0123456789abcdef0123456789abcdef"
FIRST = 1_790_000_000.0

REPORT, POLICY = "incident-report-2026-09.md", "access-policy.md"
READ_REPORT, READ_POLICY = {"path": REPORT}, {"path": POLICY}

# writer, step, then kinds with those of their fields that the table shows
COMMITS: list[tuple[str, int, list[tuple[str, dict[str, Any]]]]] = [
    ("agent", 0, [("agent.start", {"question": "What was it?"}), ("session.start", {"model": "m"})]),
    ("mcp", 0, [("server.start", {"sandbox": "/srv/documents", "pid": 7})]),
    (
        "agent",
        1,
        [
            ("mcp.initialize", {"server_name": "lab-files", "server_version": "1", "protocol_version": "2025-11-25"}),
            ("mcp.tools_list", {"tools": [{"name": "list_files"}, {"name": "read_file"}]}),
            ("llm.request", {"turn": 1, "message_count": 2}),
        ],
    ),
    (
        "agent",
        1,
        [
            ("llm.response", {"tool_calls": [{"name": "list_files"}], "prompt_tokens": 136, "completion_tokens": 29}),
            ("llm", {"prompt_tokens": 136, "completion_tokens": 29}),
            ("agent.decision", {"decision": "run_tools", "calls": 1, "tools": ["list_files"]}),
            ("mcp.call_tool.request", {"tool": "list_files", "arguments": {}}),
        ],
    ),
    ("mcp", 1, [("server.list_files", {"files": [POLICY, REPORT]})]),
    (
        "agent",
        2,
        [
            ("mcp.call_tool.result", {"tool": "list_files", "characters": 43, "is_error": False, "duration_ms": 1.5}),
            ("toolcall", {"tool": "list_files", "arguments": {}, "bytes": 43, "is_error": False, "refused": False}),
            ("llm.request", {"turn": 2, "message_count": 4}),
        ],
    ),
    (
        "agent",
        2,
        [
            ("llm.response", {"tool_calls": [{"name": "read_file"}] * 2, "prompt_tokens": 173, "completion_tokens": 9}),
            ("llm", {}),
            ("agent.decision", {"decision": "run_tools", "calls": 2, "tools": ["read_file", "read_file"]}),
            ("mcp.call_tool.request", {"tool": "read_file", "arguments": READ_REPORT}),
        ],
    ),
    ("mcp", 2, [("server.path_check", {"requested_path": REPORT, "inside_sandbox": True})]),
    ("mcp", 2, [("server.read_file", {"path": REPORT, "bytes_read": 625, "bytes_total": 625})]),
    (
        "agent",
        2,
        [
            ("mcp.call_tool.result", {"tool": "read_file", "characters": 623, "is_error": False, "duration_ms": 2}),
            ("toolcall", {}),
            ("mcp.call_tool.request", {"tool": "read_file", "arguments": READ_POLICY}),
        ],
    ),
    ("mcp", 2, [("server.path_check", {"requested_path": POLICY, "inside_sandbox": True})]),
    ("mcp", 2, [("server.read_file", {"path": POLICY, "bytes_read": 360, "bytes_total": 360})]),
    (
        "agent",
        3,
        [
            ("mcp.call_tool.result", {"tool": "read_file", "characters": 360, "is_error": False, "duration_ms": 2}),
            ("toolcall", {}),
            ("llm.request", {"turn": 3, "message_count": 7}),
        ],
    ),
    (
        "agent",
        3,
        [
            ("llm.response", {"content": "x" * 217, "finish_reason": "stop", "prompt_tokens": 446}),
            ("llm", {}),
            ("agent.decision", {"decision": "answer"}),
            ("agent.final", {"status": "answered", "turns": 3, "seconds": 1.25, "answer": "No allow-list."}),
            ("session.end", {"status": "answered", "turns": 3, "tokens": {"total": 885}}),
        ],
    ),
]


def make_keys() -> dict[str, Ed25519PrivateKey]:
    """Return a new signing key for each writer."""
    return {name: Ed25519PrivateKey.generate() for name in ("agent", "mcp")}


def write_public_keys(folder: Path, keys: Mapping[str, Ed25519PrivateKey]) -> None:
    """Write WRITER.pub for each key."""
    folder.mkdir()
    for name, key in keys.items():
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(pem)


def make_session(
    keys: Mapping[str, Ed25519PrivateKey], *, full: bool = True, session_id: str = SESSION
) -> list[StoredEvent]:
    """Return the session's events in the order of the log; without `full` only the summary events."""
    chains = {name: Chain(session_id, name, keys[name]) for name in ("agent", "mcp")}
    stored: list[StoredEvent] = []
    for writer, step, kinds in COMMITS:
        frames = [
            frame(kind, step=step, **{**dict.fromkeys(KINDS[kind].fields), **given})
            for kind, given in kinds
            if full or not KINDS[kind].is_trace
        ]
        other = chains["mcp" if writer == "agent" else "agent"]
        chains[writer].merge(other.clock)
        for event in chains[writer].seal(frames):
            sourcetype = KINDS[event["kind"]].sourcetype
            stored.append(StoredEvent(FIRST + len(stored) / 100, sourcetype, f"glasslab:{writer}", "agents", "", event))
    return stored


def is_trace(item: StoredEvent) -> bool:
    """Whether an event is a trace frame."""
    return item.sourcetype == TRACE


def fresh_signature() -> str:
    """Return something that looks like a signature."""
    return base64.b64encode(bytes(64)).decode()
