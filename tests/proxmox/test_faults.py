"""A fault at each API call of a build in turn; then the command that the error names finishes the build.

In `make test` each distinct call of a build that changes something meets one fault, and so does half of the readers;
which and of what kind rotates with GLASSLAB_FAULT_SEED (printed; the time by default). A build goes on from each fault
into the next, until the last command finishes it. In `make soak` also every fault at every call, each on a host of its
own, in an order of the seed's; GLASSLAB_FAULT_ROWS=3:500,7:lock runs only those, and GLASSLAB_FAULT_SECONDS=600 begins
none after so long: it prints how many were met.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import faultrows
import foreign
import labinventory
import place
import plays
import pvehost
from faultrows import Row
from runseed import SEED, SOAK

CHOSEN = [one.split(":") for one in os.environ.get("GLASSLAB_FAULT_ROWS", "").split(",") if one]
# A sample of the soak: so long, and no further.
BOUND = float(os.environ.get("GLASSLAB_FAULT_SECONDS") or math.inf)
ALL = SOAK or bool(CHOSEN) or math.isfinite(BOUND)
AT_ONCE = 2
CALL_SECONDS = 2
ONE = {"agents": {"agent": labinventory.guest(10)}}
MACHINES = "playbooks/machines.yml"
# What is another one each time, and says nothing.
MOVING = re.compile(r'("(?:uuid|ctime|digest|vmgenid|snaptime|meta)": )("[^"]*"|[\d.]+)|uuid=[0-9a-f-]{36}')
QUICK = {"machine_proxmox_timeout": CALL_SECONDS, "machine_proxmox_task_timeout": 20}


@dataclass(frozen=True)
class Built:
    """What a build without a fault asked, and what it made."""

    calls: faultrows.Calls
    made: dict[str, str]


def made(where: place.Place) -> dict[str, str]:
    """All that the build has made, the machines' ids and moving parts aside."""
    assert where.state
    assert where.admin
    found: dict[str, str] = {}
    for vmid, text in pvehost.states(where.state).items():
        if vmid not in foreign.VMIDS:
            plain = MOVING.sub(r"\1...", text.decode()).replace(str(vmid), "VMID")
            name = re.search(r'"name": "([^"]*)"', plain)
            assert name
            assert name[1] not in found, f"two machines are called {name[1]}"
            found[name[1]] = plain
    images = {one for one in pvehost.volumes(where.admin.api(), where.lab.node) if ":import/" in one}
    return found | {"images": " ".join(sorted(images))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A build of one guest, its template included, on a host that has neither."""
    with place.own_place(tmp_path_factory.mktemp("faultless") / "double", ONE, **QUICK) as (one, where):
        since = one.count()
        played = plays.play(MACHINES, where.inventory).succeeded()
        calls = one.requests(since)
        print(f"\na build of one guest: {len(calls)} calls in {played.seconds:.1f} s")
        return Built(calls, made(where))


def suffer(one: pvehost.Double, row: Row, command: list[str]) -> tuple[plays.Played, bool]:
    """Run a command while this fault lies in wait; return how it ended and whether it met the fault."""
    since = one.count()
    one.fault(since + row.number if row.number else row.call, **row.words(CALL_SECONDS + 0.5))
    played = plays.run(command)
    # A call that is held is written down when it is let go: that may be after the client has given up.
    end = time.monotonic() + CALL_SECONDS
    while not (met := [call["fault"] for call in one.requests(since) if call.get("fault")]):
        if played.code == 0 or time.monotonic() > end:
            break
        time.sleep(0.1)
    one.heal()
    assert met in ([], [row.words(0)["kind"]]), f"{row}: {met}"
    assert "Traceback" not in played.output, f"{row}: {played.tail}"
    assert met or played.code == 0, f"without a fault (waiting: {row}):\n{played.tail}"
    return played, bool(met)


def compare(one: pvehost.Double, where: place.Place, built: Built, before: dict[int, bytes]) -> None:
    """The build has made what it makes without faults, and touched nothing else."""
    assert made(where) == built.made
    assert pvehost.states(one.state, foreign.VMIDS) == before


def in_turn(rows: list[Row], folder: Path, built: Built) -> None:
    """One build after another into all of these faults; the last command of each finishes it."""
    waiting, hosts = list(rows), 0
    while waiting:
        hosts += 1
        assert hosts <= len(rows), f"these faults were never met: {waiting}"
        with place.own_place(folder / str(hosts), ONE, **QUICK) as (one, where):
            before = pvehost.states(one.state, foreign.VMIDS)
            command = ["ansible-playbook", "-i", str(where.inventory), MACHINES]
            unmet: list[Row] = []
            while waiting and command:
                row = waiting.pop(0)
                played, met = suffer(one, row, command)
                # What was done before in this build is not done again: another host's turn.
                unmet += [] if met else [row]
                command = played.resume if played.code else []
            if command:
                plays.run(command).succeeded()
            compare(one, where, built, before)
            waiting = unmet + waiting


def alone(row: Row, folder: Path, built: Built) -> str:
    """One fault on a host of its own; return what went wrong, empty when nothing did."""
    try:
        with place.own_place(folder, ONE, **QUICK) as (one, where):
            before = pvehost.states(one.state, foreign.VMIDS)
            played, met = suffer(one, row, ["ansible-playbook", "-i", str(where.inventory), MACHINES])
            assert met, "the fault met nothing"
            if played.code:
                plays.run(played.resume).succeeded()
            compare(one, where, built, before)
    except AssertionError as error:
        return f"{row}: {error}"
    return ""


def test_a_fault_at_each_call_is_told_and_the_command_it_names_goes_on(built: Built, tmp_path: Path) -> None:
    writing, reading = (faultrows.of_a_run(built.calls, SEED, writing=writes) for writes in (True, False))
    assert len(writing) >= 7
    assert len(reading) >= 10
    parts = [writing, reading if SOAK else reading[SEED % 2 :: 2]]
    print(f"\nGLASSLAB_FAULT_SEED={SEED}:", *(f"\n  {row}" for rows in parts for row in rows))
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(in_turn, rows, tmp_path / str(n), built) for n, rows in enumerate(parts)]
        for one in running:
            one.result()
    print(f"{sum(map(len, parts))} faults in {time.monotonic() - began:.0f} s")


if ALL:

    def test_every_fault_at_every_call_is_mended_by_the_command_it_names(built: Built, tmp_path: Path) -> None:
        rows = [row for row in faultrows.every(built.calls) if not CHOSEN or [str(row.number), row.kind] in CHOSEN]
        random.Random(SEED).shuffle(rows)
        began = time.monotonic()

        def in_time(number: int) -> str | None:
            """What went wrong, empty when nothing did; None when it was not begun."""
            late = number and time.monotonic() - began > BOUND
            return None if late else alone(rows[number], tmp_path / str(number), built)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(in_time, range(len(rows))))
        met = [outcome for outcome in outcomes if outcome is not None]
        print(f"\n{len(met)} of {len(rows)} faults in {time.monotonic() - began:.0f} s, GLASSLAB_FAULT_SEED={SEED}")
        assert met
        failed = [outcome for outcome in met if outcome]
        assert not failed, f"{len(failed)} of {len(met)} faults were not mended:\n\n" + "\n\n".join(failed)
