"""A fault at each API call of a build in turn; then the command that the error names finishes the build.

One kind of fault a call, rotating by GLASSLAB_FAULT_SEED (printed; by default the time), as many calls as fit into
GLASSLAB_FAULT_SECONDS; with GLASSLAB_SOAK every fault at every call. GLASSLAB_FAULT_ROWS=3:500,7:lock runs only those.
"""

from __future__ import annotations

import os
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

SOAK = bool(os.environ.get("GLASSLAB_SOAK"))
SEED = int(os.environ.get("GLASSLAB_FAULT_SEED", "") or int(time.time()) % 10000)
SECONDS = float(os.environ.get("GLASSLAB_FAULT_SECONDS", "75"))
CHOSEN = [one.split(":") for one in os.environ.get("GLASSLAB_FAULT_ROWS", "").split(",") if one]
AT_ONCE = 2
CALL_SECONDS = 2
ONE = {"agents": {"agent": labinventory.guest(10)}}
# What is another one each time, and says nothing.
MOVING = re.compile(r'("(?:uuid|ctime|digest|vmgenid|snaptime|meta)": )("[^"]*"|[\d.]+)|uuid=[0-9a-f-]{36}')
QUICK = {
    "machine_proxmox_timeout": CALL_SECONDS,
    "machine_proxmox_task_timeout": 20,
    "machine_resume_playbook": "playbooks/machines.yml",
}


@dataclass(frozen=True)
class Built:
    """What a build without a fault asked, and what it made."""

    calls: list[dict[str, object]]
    made: dict[str, str]


def made(where: place.Place) -> dict[str, str]:
    """All that the build has made, the machines' ids and names and moving parts aside."""
    assert where.state
    assert where.admin
    found = {}
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
        played = plays.play("playbooks/machines.yml", where.inventory).succeeded()
        calls = one.requests(since)
        print(f"\na build of one guest: {len(calls)} calls in {played.seconds:.1f} s")
        return Built(calls, made(where))


def suffer(row: Row, folder: Path, built: Built) -> str:
    """Build with this fault, go on as the error says, compare; return what went wrong, empty when nothing did."""
    try:
        with place.own_place(folder, ONE, **QUICK) as (one, where):
            before = pvehost.states(one.state)
            lost = {"hold": CALL_SECONDS + 0.5} | ({"done": True} if row.kind == "lost" else {})
            kind = "timeout" if row.kind == "lost" else row.kind
            one.fault(one.count() + row.number, kind, **(lost if kind == "timeout" else {}))
            played = plays.play("playbooks/machines.yml", where.inventory)
            met = [call["fault"] for call in one.requests() if call.get("fault")]
            one.heal()
            assert met == [kind], f"the fault met nothing: {met}"
            assert "Traceback" not in played.output, played.tail
            if played.code:
                plays.run(played.resume).succeeded()
            assert made(where) == built.made
            assert pvehost.states(one.state, foreign.VMIDS) == before
    except AssertionError as error:
        return f"{row}: {error}"
    return ""


def test_each_fault_is_told_and_the_command_it_names_finishes_the_build(built: Built, tmp_path: Path) -> None:
    everything = faultrows.every(built.calls)
    rows = everything if SOAK else faultrows.of_a_run(built.calls, SEED)
    if CHOSEN:
        rows = [row for row in everything if [str(row.number), row.kind] in CHOSEN]
    began = time.monotonic()

    def one(numbered: tuple[int, Row]) -> str | None:
        if not SOAK and not CHOSEN and time.monotonic() - began > SECONDS:
            return None
        return suffer(numbered[1], tmp_path / str(numbered[0]), built)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(one, enumerate(rows)))
    done = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome is not None]
    print(f"\nGLASSLAB_FAULT_SEED={SEED}: {len(done)} of {len(everything)} faults in {time.monotonic() - began:.0f} s:")
    print("\n".join(f"  {row}" for row in done))
    assert done
    failed = [outcome for outcome in outcomes if outcome]
    assert not failed, f"{len(failed)} of {len(done)} faults were not mended:\n\n" + "\n\n".join(failed)
