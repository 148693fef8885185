"""What packer/limits.py has to say of the agent's unit, wherever that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parent / "limits.py"
UNIT = "glasslab-agent.service"
TASKS, MEMORY = "64", str(512 << 20)


def facts(shown: dict[str, Any]) -> list[tuple[str, object, object]]:
    """(what, what is right, what was found) of each."""
    return [
        ("TasksMax", TASKS, shown["tasks_max"]),
        ("MemoryMax", MEMORY, shown["memory_max"]),
        ("a process more than TasksMax is refused", True, shown["fork_refused"] and shown["children"] < int(TASKS)),
        ("the kernel has counted the refusal", True, shown["pids_events"] > 0),
        ("who takes more memory than MemoryMax is killed", True, shown["eater_killed"]),
    ]
