"""The controller's side of outpost.py: a process at each place of the lab under test, asked all at once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from isolationtools import VERIFY, command

PLACES = {
    "pve": ("exec", "pve"),
    "agent": ("exec", "agent"),
    "logs": ("exec", "logs"),
    "lan": ("ns-exec", "lan"),
    "otherlab": ("ns-exec", "otherlab"),
    "internet": ("ns-exec", "internet"),
}
HERE = Path(__file__).parent
PROGRAMS = {
    "attacks": VERIFY / "files" / "attacks.py",
    "sink": HERE / "sink.py",
    "outpost": HERE / "outpost.py",
}
# The modules come as one line, so that a place needs nothing but a Python.
LOADER = """
import json, sys, types
for name, text in json.loads(sys.stdin.readline()).items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
sys.modules["outpost"].serve()
"""


class Outposts:
    """The processes at the places."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.programs = json.dumps({name: path.read_text(encoding="utf-8") for name, path in PROGRAMS.items()})

    def start(self) -> None:
        """Start those that do not run (yet, or no more: a machine has rebooted)."""
        for name, place in PLACES.items():
            if name in self.processes and self.processes[name].poll() is None:
                continue
            words = command(place, "python3", "-u", "-c", LOADER)
            one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.processes[name] = one
            self._write(name, self.programs)

    def _write(self, name: str, line: str) -> None:
        pipe = self.processes[name].stdin
        assert pipe is not None
        pipe.write(line + "\n")
        pipe.flush()

    def ask(self, orders: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Give each place its order at once; their answers."""
        for name, order in orders.items():
            self._write(name, json.dumps(order))
        answers = {}
        for name in orders:
            pipe = self.processes[name].stdout
            assert pipe is not None
            line = pipe.readline()
            assert line, f"{name}: the outpost has ended: {orders[name]['verb']}"
            answers[name] = json.loads(line)
        return answers

    def ask_all(self, verb: str) -> dict[str, Any]:
        """The same order for every place."""
        return self.ask({name: {"verb": verb} for name in PLACES})

    def close(self) -> None:
        """End them."""
        for one in self.processes.values():
            assert one.stdin is not None
            one.stdin.close()
            one.wait(10)
            assert one.stdout is not None
            one.stdout.close()
        self.processes.clear()
