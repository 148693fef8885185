"""Shared by the tools' tests: a HEC, documents, and the files server in both of its process models."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glasslab.wire import META_CLOCK, META_SESSION_ID, META_STEP, META_TOOL_CALL_ID
from hec_stub import HecStub


def meta(clock: int = 0, step: int = 0, call: str | None = None, session: str = "s-1") -> dict[str, Any]:
    """The `_meta` of one request."""
    return {META_SESSION_ID: session, META_STEP: step, META_CLOCK: clock, META_TOOL_CALL_ID: call}


def server_env(hec: HecStub, documents: Path, key: Path, trace: str = "full", deadline: float = 5) -> dict[str, str]:
    """The environment that the files server reads."""
    return {
        "HEC_URL": hec.url,
        "HEC_TOKEN_MCP": "token-of-the-server",
        "HEC_DEADLINE": str(deadline),
        "LAB_TRACE": trace,
        "LAB_DOCUMENTS": str(documents),
        "SIGNING_KEY_MCP": str(key),
    }


def make_documents(folder: Path) -> Path:
    """Two small documents, a secret beside them and a link to it."""
    documents = folder / "documents"
    documents.mkdir()
    (documents / "a.md").write_text("alpha — one")
    (documents / "b.md").write_text("beta")
    (folder / ".env").write_text("SECRET=1")
    (documents / "link.md").symlink_to(folder / ".env")
    return documents


@contextmanager
def running_parent(
    path: Path, env: dict[str, str], *options: str, program: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """The preloaded parent on a socket, ready for connections; `program` is Python to run in its module's place."""
    start = ["-c", program] if program else ["-m", "glasslab.servers"]
    command = [sys.executable, *start, "files", "--socket", str(path), *options]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(path.with_suffix(".notify")))
        ready.settimeout(60)
        process = subprocess.Popen(
            command,
            env={**os.environ, **env, "NOTIFY_SOCKET": str(path.with_suffix(".notify"))},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert ready.recv(100) == b"READY=1"
            yield process
        finally:
            process.terminate()
            process.wait(10)
            assert process.stderr
            process.stderr.close()


def children(pid: int) -> dict[int, str]:
    """The children of a process: pid -> state (S, R, Z, ...)."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found[int(stat.parent.name)] = fields[0]
    return found


def open_descriptors() -> int:
    """How many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def eventually(condition: Any, seconds: float = 5) -> bool:
    """Return whether a condition comes true within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
