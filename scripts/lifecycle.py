"""make snapshot, reset, rebuild, resize, status: a playbook of that name, with what the environment says.

SNAPSHOT (its name), HOSTS (a pattern), REPLACE=1, REMOVE=1, REVERT=1, CONFIRM=1, JSON=1, CHECK=1, INVENTORY (another
than the embedded lab's).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import given
from children import child
from inventory_lab import InventoryError, existing
from lab import BIN, LAB_ID, ROOT, fail, run

# environment -> (variable of the playbook, what a 1 there stands for; None: the text itself)
GIVEN = {
    "SNAPSHOT": ("snapshot_name", None),
    "HOSTS": ("lifecycle_hosts", None),
    "REPLACE": ("snapshot_replace", True),
    "REMOVE": ("snapshot_state", "absent"),
    "REVERT": ("rebuild_revert", True),
    "CONFIRM": ("confirm", True),
    "FORCE": ("machine_destroy_force", True),
    "CACHE": ("machine_destroy_cache", True),
}
VERBS = ("snapshot", "reset", "rebuild", "resize", "status", "destroy")


def variables() -> dict[str, object]:
    """The playbook's variables; ends with one line for a switch that is neither 1 nor 0."""
    found: dict[str, object] = {}
    for name, (variable, meaning) in GIVEN.items():
        value = given.text(name) if meaning is None else meaning if given.switch(name) else None
        if value:
            found[variable] = value
    return found


def command(verb: str, more: dict[str, object]) -> list[str]:
    """The command line that runs the verb's playbook."""
    words = [str(BIN / "ansible-playbook"), f"playbooks/{verb}.yml", "--extra-vars", json.dumps(more)]
    if inventory := os.environ.get("INVENTORY", "").strip():
        try:
            words += ["--inventory", existing(inventory)]
        except InventoryError as error:
            fail(str(error))
    return words + (["--check"] if given.switch("CHECK") else [])


def play(verb: str, more: dict[str, object], *, quiet: bool = False) -> int:
    """Run it, with a line a stage; quiet: its output is shown only when it fails."""
    environment = os.environ | {
        "ANSIBLE_STDOUT_CALLBACK": "stages",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        "LC_ALL": "C.UTF-8",
        "LAB_ID": LAB_ID,
    }
    words = command(verb, more)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        with child(words, environment, asks=True, out=said if quiet else None) as process:
            code = process.wait()
        said.seek(0)
        if code:
            sys.stderr.write(said.read())
    return code


def main() -> None:
    """Run the verb that is named; `status` with JSON=1 prints the object and nothing else."""
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    if verb not in VERBS:
        fail(f"lifecycle.py: give one of {', '.join(VERBS)}")
    more, as_json = variables(), given.switch("JSON")
    if verb != "status" or not as_json:
        sys.exit(play(verb, more))
    with tempfile.NamedTemporaryFile("r", prefix="glasslab-status-", suffix=".json") as file:
        code = play(verb, more | {"status_file": file.name}, quiet=True)
        sys.stdout.write(Path(file.name).read_text(encoding="utf-8"))  # by name: Ansible has put another file there
    sys.exit(code)


if __name__ == "__main__":
    run(main)
