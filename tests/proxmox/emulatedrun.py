"""One pass of scripts/test_emulated.py: its folder, the commands that it runs, and the machine that it looks at."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import emulated
import lab
import pvehost
from children import child
from lab import BIN, ROOT, fail

# For a boot, and one command, on a machine that does other things too.
BOOT_SECONDS = 600.0
LIMIT_SECONDS = 1800.0


class Run:
    """One pass through all of it: its folder, its double, the seconds of its steps."""

    def __init__(self, folder: Path, template: Path | None) -> None:
        self.folder = folder
        self.template = template
        self.inventory = folder / "inventory"
        self.double: pvehost.Double | None = None
        self.seconds: dict[str, float] = {}

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Do one step and say how long it took."""
        began = time.monotonic()
        work()
        self.seconds[name] = round(time.monotonic() - began, 1)
        print(f"ok   {name:<58} {self.seconds[name]:6.1f} s", flush=True)

    def command(self, *words: str | Path, **environment: str) -> str:
        """Run a command; what it says goes into a file, and of a failure the end is shown."""
        texts = [str(word) for word in words]
        number = len(list(self.folder.glob("*.log")))
        log = self.folder / f"{number:02}-{Path(texts[0]).name}-{Path(texts[1]).name.partition('.')[0]}.log"
        own = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_CALLBACKS_ENABLED": "ansible.posix.profile_tasks",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        }
        try:
            with (
                log.open("w", encoding="utf-8") as out,
                child(texts, os.environ | own | environment, out=out) as process,
            ):
                ended = f"ended with {process.wait(LIMIT_SECONDS)}"
        except subprocess.TimeoutExpired:
            ended = f"had not ended after {LIMIT_SECONDS:.0f} s"
        if process.returncode:
            with log.open(encoding="utf-8", errors="replace") as lines:
                for line in deque(lines, 60):
                    print(f"     | {line.rstrip()}")
            fail(f"test-emulated: {' '.join(texts)} {ended}; all of it is in {log}", 1)
        return log.read_text(encoding="utf-8", errors="replace")

    def keep_logs(self, place: Path) -> None:
        """Copy what the commands said so far to a folder."""
        place.mkdir(parents=True, exist_ok=True)
        for log in sorted(self.folder.glob("*.log")):
            shutil.copy(log, place)

    def play(self, path: str, *arguments: str) -> str:
        """Run a playbook on inventories/proxmox, as it is laid over this machine's lab."""
        return self.command(*self.playing(f"playbooks/{path}"), *arguments)

    def playing(self, path: str) -> list[str | Path]:
        """The command that runs a playbook."""
        return ["ansible-playbook", path, "-i", emulated.BASE, "-i", self.inventory]

    def on_agent(self, *command: str, stdin: str = "") -> str:
        """What a command on the agent's machine prints; it has to succeed."""
        words = ["ssh", "-F", str(emulated.ssh_config(self.inventory)), "agent", "--", *command]
        done = subprocess.run(words, input=stdin, text=True, capture_output=True, check=False, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, f"agent: {' '.join(command)}: {done.returncode}: {done.stderr or done.stdout}"
        return done.stdout

    def wait_for_boot(self, unlike: str) -> None:
        """Wait until the agent's machine answers in another boot than that."""
        config = ["-F", str(emulated.ssh_config(self.inventory))]
        asked = "cat /proc/sys/kernel/random/boot_id && systemctl is-active --quiet glasslab-agent.service"
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            # The connection that is kept leads into the boot that ends.
            subprocess.run(["ssh", *config, "-O", "exit", "agent"], capture_output=True, check=False)
            done = subprocess.run(["ssh", *config, "agent", "--", asked], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout != unlike:
                return
            time.sleep(1)
        fail(f"test-emulated: the agent does not answer within {BOOT_SECONDS:.0f} s of its reboot", 1)

    def agent_vmid(self) -> int:
        """The id of the agent's virtual machine, which runs."""
        assert self.double
        found = pvehost.machines(self.double.host.api())
        name = f"{lab.LAB_ID}-agent"
        own = [vmid for vmid, one in found.items() if one["name"] == name and one["status"] == "running"]
        assert len(own) == 1, found
        return own[0]

    def host_key(self) -> str:
        """The agent machine's host key, asked of itself."""
        return self.on_agent("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1]
