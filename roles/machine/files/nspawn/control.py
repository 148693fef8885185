"""Talking to a lab's supervisor, and starting it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import cgroups
import keys
import machine
import state
from errors import LabError
from topology import Lab

HERE = Path(__file__).resolve().parent


def socket_path(lab: Lab) -> Path:
    """Where the supervisor listens."""
    return lab.runtime / "supervisor.sock"


def ask(lab: Lab, timeout: float = 60.0, **request: Any) -> dict[str, Any]:
    """Send one request and return the answer. Raises LabError when there is none or when it is an error."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(socket_path(lab)))
            client.sendall(json.dumps(request).encode() + b"\n")
            with client.makefile() as answer:
                reply = json.loads(answer.readline() or "{}")
    except (OSError, ValueError) as error:
        raise LabError(f"supervisor of lab {lab.lab_id}: {error}: see {lab.logs / 'supervisor.log'}") from None
    if "error" in reply or not isinstance(reply, dict):
        raise LabError(f"supervisor of lab {lab.lab_id}: {reply.get('error')}")
    return reply


@contextmanager
def frozen(lab: Lab, machines: list[str], seconds: float = 120.0) -> Iterator[None]:
    """Hold the machines still during the block, all from one moment on.

    The supervisor lets them go on when the block ends, when this program dies, and after `seconds` in any case: then
    the block's work was in vain, and LabError is raised.
    """
    request = {"verb": "freeze", "machines": machines, "seconds": seconds}
    with socket.socket(socket.AF_UNIX) as client, client.makefile() as answers:
        client.settimeout(30.0)
        _say(lab, client, answers, json.dumps(request), connect=True)
        yield
        if not _say(lab, client, answers, "go on").get("held"):
            raise LabError(f"{', '.join(machines)} could not be held still for long enough ({seconds:.0f} s)")


def _say(lab: Lab, client: socket.socket, answers: TextIO, line: str, *, connect: bool = False) -> dict[str, Any]:
    try:
        if connect:
            client.connect(str(socket_path(lab)))
        client.sendall(line.encode() + b"\n")
        reply = json.loads(answers.readline() or "{}")
    except (OSError, ValueError) as error:
        raise LabError(f"supervisor of lab {lab.lab_id}: {error}: see {lab.logs / 'supervisor.log'}") from None
    if "error" in reply or not reply:
        raise LabError(f"supervisor of lab {lab.lab_id}: {reply.get('error', 'it has gone away')}")
    return dict(reply)


def install(lab: Lab) -> None:
    """Copy this program beside the lab's sockets, so that the lab does not depend on the checkout that built it."""
    target = lab.runtime / "program"
    target.mkdir(parents=True, exist_ok=True)
    if target.resolve() == HERE:
        return
    for file in HERE.glob("*.py"):
        shutil.copyfile(file, target / file.name)


def start(lab: Lab, deadline: float = 10.0) -> int:
    """Start the supervisor, detached, and return its pid once it answers. Raises LabError when it does not."""
    lab.logs.mkdir(parents=True, exist_ok=True)
    argv = [keys.interpreter(), "-s", "-E", str(lab.runtime / "program/supervisor.py"), lab.lab_id]
    with (lab.logs / "supervisor.log").open("a") as log:
        # In its control group from its first instruction: whoever takes the lab away in the moment after, ends it too.
        child = subprocess.Popen(
            cgroups.launcher(lab, "supervisor", argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=machine.ENVIRONMENT,
            start_new_session=True,
        )
    end = time.monotonic() + deadline
    while time.monotonic() < end and child.poll() is None:
        if state.alive(lab) and socket_path(lab).exists():
            return child.pid
        time.sleep(0.02)
    child.kill()
    raise LabError(f"the supervisor of lab {lab.lab_id} did not start: see {lab.logs / 'supervisor.log'}")


def wait_for_end(lab: Lab, deadline: float) -> None:
    """Return once the supervisor has ended, or after `deadline` seconds."""
    end = time.monotonic() + deadline
    while state.alive(lab) and time.monotonic() < end:
        time.sleep(0.05)
