"""Many agents: what each costs does not grow with their number, and one that fails stops none of the others."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import pytest

import labinventory
import place
import plays
import pvehost
from runseed import SOAK

# In `make test` so many as its minutes allow; what an inventory of a real lab may hold in `make soak`.
FEW, MANY = (10, 50) if SOAK else (1, 4)
FIRST = 300
# The one among many that fails.
BAD = "agent1"
# Of the processor's time, which is nearly the same on a busy machine; that of the clock is not.
SLACK = 1.25
SMALL = {"machine_memory_mb": 512, "machine_cores": 1, "machine_disk_gb": 8}
HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """What a build of some agents took, how it ended, and which machines ran then."""

    agents: int
    calls: int
    processor: float
    played: plays.Played
    running: set[int]

    def __str__(self) -> str:
        return (
            f"{self.agents} agents: {self.calls_each:.1f} calls, {self.processor_each:.1f} s of the processor and "
            f"{self.seconds_each:.1f} s each"
        )

    @property
    def calls_each(self) -> float:
        """API calls for each agent."""
        return self.calls / self.agents

    @property
    def processor_each(self) -> float:
        """Seconds of the processor for each agent."""
        return self.processor / self.agents

    @property
    def seconds_each(self) -> float:
        """Seconds for each agent."""
        return self.played.seconds / self.agents


def agents(number: int) -> dict[str, dict[str, dict[str, object]]]:
    """So many agents, with ids that are known beforehand."""
    return {
        "agents": {f"agent{n}": labinventory.guest(100 + n, machine_vmid=FIRST + n, **SMALL) for n in range(number)}
    }


def running(one: pvehost.Double) -> set[int]:
    """The machines that run."""
    return {vmid for vmid, listed in pvehost.machines(one.host.api()).items() if listed["status"] == "running"}


def processor() -> float:
    """Seconds of the processor that ended children of this process have spent."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def build(one: pvehost.Double, where: place.Place, number: int) -> Cost:
    """Build what the inventory has, the template being there."""
    since, spent = one.count(), processor()
    played = plays.play(plays.CONVERGE, where.inventory, seconds=HOUR)
    return Cost(number, len(one.requests(since)), processor() - spent, played, running(one))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Cost:
    """A build of few."""
    folder = tmp_path_factory.mktemp("few") / "double"
    with place.own_place(folder, agents(FEW), foreigners=False, template=True) as (one, where):
        return build(one, where, FEW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cost, plays.Played, set[int]]:
    """A build of many, one of which fails; and the run of the command that its error names."""
    folder = tmp_path_factory.mktemp("many") / "double"
    with place.own_place(folder, agents(MANY), foreigners=False, template=True) as (one, where):
        one.fault(f"POST /nodes/pve/qemu/{FIRST + 1}/status/start", "failed_task")
        first = build(one, where, MANY)
        one.heal()
        again = plays.run([*first.played.resume, "--limit", BAD], seconds=HOUR)
        return first, again, running(one)


def test_an_agent_costs_no_more_among_many(few: Cost, many: tuple[Cost, plays.Played, set[int]]) -> None:
    few.played.succeeded()
    print(f"\n{few}; {many[0]}")
    assert many[0].calls_each <= few.calls_each
    assert many[0].processor_each <= few.processor_each * SLACK


def test_one_that_fails_stops_no_other_and_is_named_at_the_end(many: tuple[Cost, plays.Played, set[int]]) -> None:
    first, again, at_last = many
    assert first.running == {FIRST + n for n in range(MANY) if n != 1}
    assert first.played.code != 0
    assert {name for name, recap in first.played.recap.items() if recap.failed} == {BAD}, first.played.tail
    told = [line for line in first.played.output.splitlines() if f"{BAD}: start of VM {FIRST + 1}" in line]
    assert told, first.played.tail
    assert "failed" in told[-1]
    assert again.succeeded().recap[BAD].changed
    assert at_last == {FIRST + n for n in range(MANY)}
