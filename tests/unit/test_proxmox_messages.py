"""Messages of the machine role and the playbooks are one line each, whatever their values are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("roles/machine/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")])
MESSAGES = ("fail_msg", "msg", "success_msg", "what")


def messages(part: Any, key: str = "") -> Iterator[str]:
    """Every message in a file of tasks."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from messages(value, name)
    elif isinstance(part, list):
        for value in part:
            yield from messages(value, key)
    elif isinstance(part, str) and key in MESSAGES:
        yield part


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_message_has_a_line_break_of_its_own(file: Path) -> None:
    texts = [
        re.sub(r"\{\{.*?\}\}", "value", text, flags=re.DOTALL) for text in messages(yaml.safe_load(file.read_text()))
    ]
    assert [text for text in texts if "\n" in text.strip()] == []


@pytest.mark.parametrize(
    ("role", "entry", "variable"),
    [
        ("machine", "proxmox/access", "machine_access_state"),
        ("machine", "lifecycle/snapshot", "machine_snapshot_state"),
        ("network", "main", "network_state"),
        ("witness", "main", "witness_state"),
    ],
)
def test_a_state_is_present_or_absent_and_no_other_word(role: str, entry: str, variable: str) -> None:
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert specs[entry]["options"][variable]["choices"] == ["present", "absent"]


def test_a_slip_in_the_word_makes_no_token(tmp_path: Path) -> None:
    """Anything but `absent` was taken for `present`: who wanted the token gone had its rights granted anew."""
    program = Path(sys.executable).parent / "ansible-playbook"
    words = [str(program), "-i", "inventories/proxmox", "playbooks/proxmox_access.yml", "-e", "state=Absent"]
    words += ["-e", "machine_proxmox_host=127.0.0.1", "-e", "machine_proxmox_port=1"]
    environment = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PROXMOX_PASSWORD": "none", "ANSIBLE_NOCOLOR": "1"}
    environment |= {"PATH": f"{program.parent}:/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "value of machine_access_state must be one of: present, absent, got: Absent" in done.stdout + done.stderr
    assert "Read what is there" not in done.stdout
