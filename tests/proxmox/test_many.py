"""Many agents: what each costs does not grow with their number, and one that fails stops none of the others."""

from __future__ import annotations

import os
from pathlib import Path

import labinventory
import place
import plays
import pvehost

# In `make test` so many as its minutes allow; the whole range of an inventory in `make soak`.
FEW, MANY = (10, 50) if os.environ.get("GLASSLAB_SOAK") else (3, 9)
FIRST = 300
# Seconds are noisy on a shared machine, calls are not.
SLACK = 1.25
SMALL = {"machine_memory_mb": 512, "machine_cores": 1, "machine_disk_gb": 8}


def agents(number: int) -> dict[str, dict[str, dict[str, object]]]:
    """So many agents, with ids that are known beforehand."""
    return {
        "agents": {f"agent{n}": labinventory.guest(100 + n, machine_vmid=FIRST + n, **SMALL) for n in range(number)}
    }


def cost(folder: Path, number: int) -> tuple[float, float]:
    """Calls and seconds for each of so many agents, the template being there."""
    with place.own_place(folder, agents(1), foreigners=False) as (one, where):
        plays.play(plays.CONVERGE, where.inventory).succeeded()
        inventory = labinventory.write(
            folder / "many", where.lab, where.lab.token, agents(number + 1), **place.image(one.state)
        )
        since = one.count()
        played = plays.play(plays.CONVERGE, inventory).succeeded()
        calls = len(one.requests(since))
        assert len(pvehost.states(one.state)) == number + 2  # the first agent and the template
    print(f"\n{number} agents: {calls / number:.1f} calls and {played.seconds / number:.2f} s each")
    return calls / number, played.seconds / number


def test_an_agent_costs_no_more_among_many(tmp_path: Path) -> None:
    calls_few, seconds_few = cost(tmp_path / "few", FEW)
    calls_many, seconds_many = cost(tmp_path / "many", MANY)
    assert calls_many <= calls_few
    assert seconds_many <= seconds_few * SLACK


def test_one_that_fails_stops_no_other_and_is_named_at_the_end(tmp_path: Path) -> None:
    with place.own_place(tmp_path / "double", agents(MANY), foreigners=False) as (one, where):
        one.fault(f"POST /nodes/pve/qemu/{FIRST + 1}/status/start", "failed_task")
        played = plays.play(plays.CONVERGE, where.inventory)
        running = {vmid for vmid, listed in pvehost.machines(one.host.api()).items() if listed["status"] == "running"}
        assert running == {FIRST + n for n in range(MANY) if n != 1}
        assert played.code != 0
        assert {name for name, recap in played.recap.items() if recap.failed} == {"agent1"}, played.tail
        end = played.output.splitlines()[-len(played.recap) - 6 :]
        assert any("agent1" in line and "failed=1" in line for line in end), played.tail
        assert "--limit agent1" in " ".join(played.resume)
        one.heal()
        assert plays.run(played.resume).succeeded().changed
        assert FIRST + 1 in [v for v, m in pvehost.machines(one.host.api()).items() if m["status"] == "running"]
