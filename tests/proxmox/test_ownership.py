"""A machine that carries only some of the lab's marks is left alone and named; the others are built all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreign
import labinventory
import place
import plays
import pvehost
from labinventory import LAB_ID

TAGS = f"glasslab;glasslab-{LAB_ID}"


def note(name: str) -> str:
    """The notes that the lab writes for a machine."""
    return f"Built by Glasslab: lab {LAB_ID}, machine {name}"


def like(vmid: int, name: str, **marks: str) -> dict[str, Any]:
    """A machine in the lab's pool under the name that the lab would give."""
    one = foreign.row(f"{LAB_ID}-{name}", pool=True, **marks)
    one["config"] = one["config"] | {"scsi0": f"local-lvm:vm-{vmid}-disk-0,size=1G"}
    return one | {"vmid": vmid}


DOUBTFUL = (
    like(201, "tagged", tags=TAGS),
    like(202, "noted", notes=note("noted")),
    like(203, "twice", tags=TAGS, notes=note("twice")),
    like(204, "twice", tags=TAGS, notes=note("twice")),
)
GUESTS = {"agents": {name: labinventory.guest(30 + number) for number, name in enumerate(("tagged", "noted", "twice"))}}
GUESTS["agents"] |= {
    "taken": labinventory.guest(40, machine_vmid=foreign.FIRST),
    "free": labinventory.guest(41, machine_vmid=300),
}


def test_what_is_not_wholly_the_labs_is_named_and_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "double"
    state.mkdir()
    seed = {"vms": [*foreign.seed()["vms"], *DOUBTFUL, place.TEMPLATE]}
    (tmp_path / "seed.json").write_text(json.dumps(seed), encoding="utf-8")
    with pvehost.Double(state, "--token", "none", "--seed", str(tmp_path / "seed.json")) as one:
        where = place.furnish(one, GUESTS)
        before = pvehost.states(state)
        built = plays.play(plays.CONVERGE, where.inventory)
        after = pvehost.states(state)
        gone = plays.play(plays.DESTROY, where.inventory, "--extra-vars=confirm=true")
        left = pvehost.states(state)
    assert {vmid: after[vmid] for vmid in before} == before
    theirs = {vmid: text for vmid, text in before.items() if vmid != place.TEMPLATE["vmid"]}
    assert {vmid: left[vmid] for vmid in theirs} == theirs
    for played in (built, gone):
        assert played.code != 0
        for host, vmid in (("tagged", 201), ("noted", 202), ("twice", 203)):
            assert played.recap[host].failed == 1, played.tail
            said = [line for line in played.output.splitlines() if f"VM {vmid} ({LAB_ID}-{host})" in line]
            assert said, played.tail
            assert "renam" in said[0]
        assert played.recap["free"].failed == 0, played.tail
    assert built.recap["taken"].failed == 1, built.tail
    assert any(f"{foreign.FIRST}" in line and "machine_vmid" in line for line in built.output.splitlines()), built.tail
    assert 300 in after
    assert 300 not in left
