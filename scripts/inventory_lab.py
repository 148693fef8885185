"""The lab of another inventory than the embedded one's: how its agent and log are reached, as Ansible works it out."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ASKED = (
    "{'host': inventory_hostname, 'ssh': ansible_ssh_common_args | default(''), 'log': verify_log_environment,"
    " 'hec': agent_hec_url | default(''), 'secrets': lab_secrets | default(''),"
    " 'tokens': splunk_existing_tokens | default({}) if splunk_mode | default('') == 'existing' else none}"
)
SECONDS = 120


class InventoryError(Exception):
    """The inventory does not say how its lab is reached; the message is one line with its remedy."""


class Standing(NamedTuple):
    """How a lab is reached: ssh's words up to the agent's name, the settings that read the log, what builds it.

    `hec` is where the log is written to, `secrets` the folder of the lab's secrets here; empty where nothing says so.
    `tokens` are the writers' of a Splunk that stands elsewhere; None where the lab makes its own.
    """

    ssh: list[str]
    log: dict[str, str]
    remedy: str
    hec: str
    secrets: str
    tokens: dict[str, str] | None


def existing(inventory: str) -> str:
    """The inventory's absolute path. Raises InventoryError when there is none."""
    if Path(inventory).exists():
        return str(Path(inventory).resolve())
    raise InventoryError(f"INVENTORY={inventory!r}: there is no such inventory; inventories/proxmox is the one to copy")


def standing(inventory: str) -> Standing:
    """The lab of an inventory: its first agent, and the first log. Raises InventoryError."""
    said = _asked(inventory)
    remedy = f"ansible-playbook -i {shlex.quote(inventory)} site.yml"
    words = shlex.split(said["ssh"])
    files = [word for before, word in itertools.pairwise(words) if before == "-F"]
    if missing := [file for file in files if not Path(file).is_file()]:
        raise InventoryError(f"no lab of {inventory} stands ({missing[0]} is not there); `{remedy}` builds one")
    log = {name: str(value) for name, value in said["log"].items()}
    return Standing(["ssh", *words, said["host"]], log, remedy, said["hec"], said["secrets"], said["tokens"])


def _asked(inventory: str) -> dict[str, Any]:
    """What the inventory says of its first agent. A vault's password is asked for as Ansible does it."""
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    environment.pop("ANSIBLE_FORCE_COLOR", None)
    words = [str(ROOT / ".venv/bin/ansible"), "-i", existing(inventory), "agents[0]"]
    words += ["-m", "ansible.builtin.debug", "-a", json.dumps({"msg": "{{ " + ASKED + " }}"})]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    found = re.search(r"SUCCESS => (\{.*\})\s*$", done.stdout, re.DOTALL)
    if done.returncode or not found:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no message"]
        worst = next((line for line in lines if "ERROR" in line or '"msg"' in line), lines[-1])
        raise InventoryError(
            f"INVENTORY={inventory!r} does not say how its lab is reached: {worst.strip()}; "
            f"`ansible-inventory -i {shlex.quote(inventory)} --graph` shows what Ansible makes of it"
        )
    said: dict[str, Any] = json.loads(found[1])["msg"]
    return said
