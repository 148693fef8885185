"""A machine that never boots, and cloud-init that never ends: one line with the machine, the seconds and the remedy."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "machine"
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
GUEST = {
    "machine_backend": "proxmox",
    "machine_is_guest": True,
    "machine_address": "127.0.0.1",
    "machine_found_vmid": 123,
    "machine_resume": "ansible-playbook site.yml",
    "machine_ssh_timeout": 1,
    "machine_cloud_init_timeout": 1,
    "ansible_host": "127.0.0.1",
    "ansible_python_interpreter": sys.executable,
}


def closed_port() -> int:
    """A port of loopback where nobody answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(place: Path, **own: Any) -> tuple[int, str]:
    """Play the role's waiting on one machine; return how it ended, and all that it said, in one line."""
    play = [
        {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_tasks": f"{ROLE}/tasks/wait.yml"}]}
    ]
    (place / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    (place / "hosts.json").write_text(json.dumps({"all": {"hosts": {"box7": GUEST | own}}}), encoding="utf-8")
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [PLAYBOOK, "-i", "hosts.json", "play.yml"],
        cwd=place,
        env=environment | {"PATH": f"{place}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def cloud_init(place: Path, text: str) -> None:
    """A program of that name in the place of the machine's."""
    (place / "cloud-init").write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (place / "cloud-init").chmod(0o755)


def test_a_machine_that_never_boots(tmp_path: Path) -> None:
    code, said = wait(tmp_path, ansible_port=closed_port())
    assert code != 0
    assert "box7: SSH does not answer at 127.0.0.1 within 1 s" in said
    assert "qm terminal 123 shows its console" in said
    assert "machine_ssh_timeout" in said
    assert "; then: ansible-playbook site.yml" in said


def test_cloud_init_that_never_ends(tmp_path: Path) -> None:
    cloud_init(tmp_path, "exec sleep 60")
    code, said = wait(tmp_path, ansible_connection="local")
    assert code != 0
    assert "box7: cloud-init has not ended within 1 s: in the machine, cloud-init status --long says" in said
    assert "machine_cloud_init_timeout" in said
    assert "; then: ansible-playbook site.yml" in said


@pytest.mark.parametrize(
    ("program", "told"),
    [("exit 2", False), ("exit 1", True)],
    ids=["with warnings", "with an error"],
)
def test_cloud_init_that_ends_is_no_obstacle(tmp_path: Path, program: str, told: bool) -> None:
    cloud_init(tmp_path, program)
    code, said = wait(tmp_path, ansible_connection="local")
    assert code == 0, said
    assert ("box7: cloud-init ended with an error" in said) is told
