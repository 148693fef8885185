"""Ansible as a user runs it, and what it says at its end."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
CONVERGE = "molecule/proxmox/build.yml"
DESTROY = "playbooks/destroy.yml"
LIMIT_SECONDS = 600.0
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
# The command that an error names, to the end of its line.
RESUME = re.compile(r"(ansible-playbook -i [^\"'\n\\]*[^\"'\n\\. ])")


@dataclass(frozen=True)
class Recap:
    """A host's line at the end."""

    ok: int
    changed: int
    unreachable: int
    failed: int


@dataclass(frozen=True)
class Played:
    """A finished play."""

    command: list[str]
    code: int
    output: str
    seconds: float

    @property
    def recap(self) -> dict[str, Recap]:
        """What each host's line counts."""
        return {name: Recap(*map(int, numbers)) for name, *numbers in RECAP.findall(self.output)}

    @property
    def changed(self) -> int:
        """Changes on all hosts."""
        return sum(one.changed for one in self.recap.values())

    @property
    def resume(self) -> list[str]:
        """The command that the last error names; the test fails when there is none."""
        named = RESUME.findall(self.output)
        assert named, f"no command to go on with is named:\n{self.tail}"
        return shlex.split(named[-1])

    @property
    def tail(self) -> str:
        """The end of its output."""
        return "\n".join(self.output.splitlines()[-60:])

    def succeeded(self) -> Played:
        """Itself, when it ended well; the test fails with its output when not."""
        assert self.code == 0, f"{shlex.join(self.command)} ended with {self.code}:\n{self.tail}"
        assert self.recap, f"no host was played:\n{self.tail}"
        return self


def play(path: str, inventory: Path, *arguments: str, seconds: float = LIMIT_SECONDS) -> Played:
    """Run a playbook of this checkout on an inventory."""
    return run(["ansible-playbook", "-i", str(inventory), path, *arguments], seconds=seconds)


def run(command: list[str], seconds: float = LIMIT_SECONDS, **environment: str) -> Played:
    """Run an Ansible command from the checkout's root, as it was printed."""
    own = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        # Long messages stay on the line on which they are.
        "COLUMNS": "4000",
    }
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | own | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    return Played(command, done.returncode, done.stdout, time.monotonic() - began)
