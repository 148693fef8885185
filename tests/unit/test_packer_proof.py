"""packer/prove.py's machine: its clock is its own, its network cut off, and nothing of it stays when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packertools import PACKER

# Stands for QEMU: writes down how it was called, and its process id, and waits.
MACHINE = '#!/bin/sh\necho "$*" >"$PROOF_CALLED"\necho $$ >"$PROOF_CALLED.pid"\nexec sleep 60\n'
PATIENCE = 60.0


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """Programs that stand for QEMU's and do nothing; the file that says how the machine was started."""
    for name in ("qemu-img", "xorriso"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "qemu-system-x86_64").write_text(MACHINE)
    for name in ("qemu-img", "xorriso", "qemu-system-x86_64"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "agent.qcow2").touch()
    return tmp_path / "called"


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_proof_that_is_killed_leaves_nothing_running(called: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PROOF_CALLED": str(called)}
    command = [sys.executable, str(PACKER / "prove.py"), str(tmp_path / "agent.qcow2")]
    with subprocess.Popen(
        command, env=environment | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + PATIENCE
        while not Path(f"{called}.pid").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert "proof: interrupted (kept: " in said
    assert gone(int(Path(f"{called}.pid").read_text()))
    words = called.read_text().split()
    # Units have minutes to start: of the machine's own time, however little of the processor it is given.
    assert words[words.index("-icount") + 1].startswith("shift=")
    assert any(word.startswith("tcg,thread=single") for word in words)
    network = words[words.index("-netdev") + 1]
    assert "restrict=on,hostfwd=tcp:127.0.0.1:" in network
