"""What happens to a virtual machine that stands: snapshot, rollback, successor and the way back, sizes, status.

In the order of a user's days, on one host; no machine runs, so that only what the API is asked is seen here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foreign
import labinventory
import place
import plays
import pvehost
from labinventory import LAB_ID

VERBS = "tests/proxmox/lifecycle_verbs.yml"
SNAPSHOT, STATUS = "playbooks/snapshot.yml", "playbooks/status.yml"
NAME, PREVIOUS = f"{LAB_ID}-agent", f"{LAB_ID}-agent-previous"
# Somebody else's machine that has the name under which a predecessor is kept.
NAMESAKE = foreign.row(PREVIOUS) | {"vmid": 290}
THEIRS = [*foreign.VMIDS, NAMESAKE["vmid"]]

Standing = tuple[pvehost.Double, place.Place]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A lab of one agent, built, beside somebody else's machines, whose states have to stay as they were."""
    folder = tmp_path_factory.mktemp("lifecycle") / "double"
    folder.mkdir()
    (folder / "seed.json").write_text(json.dumps({"vms": [*foreign.seed()["vms"], NAMESAKE, place.TEMPLATE]}))
    guests = {"agents": {"agent": labinventory.guest(10)}}
    with pvehost.double(folder, "--token", "none", "--seed", str(folder / "seed.json")) as one:
        where = place.furnish(one, guests)
        before = pvehost.states(one.state, THEIRS)
        plays.play(plays.CONVERGE, where.inventory).succeeded()
        yield one, where
        assert pvehost.states(one.state, THEIRS) == before


def machine(lab: Standing, name: str = NAME) -> dict[str, Any]:
    """The lab's machine of that name with its configuration; the test fails when there is none."""
    api = lab[1].lab.api()
    listed = {vmid: one for vmid, one in pvehost.machines(api).items() if vmid not in THEIRS}
    [(vmid, found)] = [(vmid, one) for vmid, one in listed.items() if one["name"] == name]
    return found | api.nodes(lab[1].lab.node).qemu(vmid).config.get() | {"vmid": vmid}


def snapshots(lab: Standing) -> list[str]:
    """The names of the agent's snapshots."""
    found = lab[1].lab.api().nodes(lab[1].lab.node).qemu(machine(lab)["vmid"]).snapshot.get()
    return [one["name"] for one in found if one["name"] != "current"]


def verb(lab: Standing, name: str, *more: str) -> plays.Played:
    """Play one verb of the role to its end, good or bad."""
    return plays.play(VERBS, lab[1].inventory, f"--extra-vars=verb={name}", *more)


def written(lab: Standing, since: int) -> list[str]:
    """The calls that changed something, without the machine's id."""
    return [re.sub(r"/\d+\b", "/ID", call) for call in pvehost.writing(lab[0].requests(since))]


def refused(played: plays.Played, said: str) -> None:
    """It ended with a line that says this, and without a traceback."""
    assert played.code != 0
    assert said in played.output, played.tail
    assert "Traceback" not in played.output


def test_a_snapshot_is_taken_once_without_memory(lab: Standing) -> None:
    since = lab[0].count()
    plays.play(SNAPSHOT, lab[1].inventory, "--check").succeeded()
    refused(verb(lab, "rollback"), "has no snapshot: playbooks/snapshot.yml takes one")
    assert written(lab, since) == []
    assert plays.play(SNAPSHOT, lab[1].inventory).succeeded().changed == 1
    [call] = [one for one in lab[0].requests(since) if one["method"] == "POST"]
    assert call["parameters"]["vmstate"] == "0"
    assert snapshots(lab) == ["clean"]
    refused(plays.play(SNAPSHOT, lab[1].inventory), "the name clean is taken by a snapshot of VM")
    refused(plays.play(SNAPSHOT, lab[1].inventory, "--extra-vars=snapshot_name=1st"), "snapshot name 1st: use 2 to 40")
    refused(verb(lab, "rollback", "--extra-vars=snapshot_name=nosuch"), "has no snapshot nosuch: it has clean")
    assert len(written(lab, since)) == 1


def test_a_rollback_that_fails_on_the_node_is_finished_by_the_command_it_names(lab: Standing) -> None:
    lab[0].fault("POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", "failed_task")
    failed = verb(lab, "rollback")
    lab[0].heal()
    refused(failed, "agent: rollback of VM")
    since = lab[0].count()
    plays.run(failed.resume).succeeded()
    assert machine(lab)["status"] == "running"
    assert [call.rsplit("/", 1)[1] for call in written(lab, since)] == ["rollback", "start"]


def test_a_successor_is_made_beside_the_predecessor_which_can_come_back(lab: Standing) -> None:
    old = machine(lab)
    assert verb(lab, "set_aside").succeeded().changed > 0
    new, kept = machine(lab), machine(lab, PREVIOUS)
    assert new["vmid"] != old["vmid"]
    assert (new["status"], kept["status"], kept["onboot"]) == ("running", "stopped", 0)
    assert (kept["vmid"], kept["name"]) == (old["vmid"], PREVIOUS)
    assert verb(lab, "set_aside").succeeded().changed == 0, "it goes on with the successor that there is"
    assert verb(lab, "put_back").succeeded().changed > 0
    back = machine(lab)
    assert (back["vmid"], back["status"], back["onboot"]) == (old["vmid"], "running", 1)
    assert new["vmid"] not in pvehost.machines(lab[1].lab.api())
    refused(verb(lab, "put_back"), f"no predecessor ({PREVIOUS}) is kept: there is nothing to put back")


def test_a_predecessor_goes_when_it_is_let_go(lab: Standing) -> None:
    old = machine(lab)
    verb(lab, "set_aside").succeeded()
    assert verb(lab, "let_go").succeeded().changed > 0
    assert verb(lab, "let_go").succeeded().changed == 0
    assert old["vmid"] not in pvehost.machines(lab[1].lab.api())
    assert machine(lab)["status"] == "running"


def test_a_machine_gets_the_inventorys_sizes_and_no_smaller_disk(lab: Standing) -> None:
    sizes = "--extra-vars=machine_memory_mb=3072 machine_cores=3 machine_disk_gb=20"
    assert verb(lab, "resize", sizes).succeeded().changed > 0
    now = machine(lab)
    assert (int(now["memory"]), int(now["cores"]), now["status"]) == (3072, 3, "running")
    assert "size=20G" in now["scsi0"]
    assert verb(lab, "resize", sizes).succeeded().changed == 0
    refused(
        verb(lab, "resize", "--extra-vars=machine_disk_gb=8"), "has 20G, machine_disk_gb says 8: disks do not shrink"
    )


def test_status_tells_what_stands_and_writes_nothing(lab: Standing, tmp_path: Path) -> None:
    since = lab[0].count()
    told = tmp_path / "status.json"
    plays.play(STATUS, lab[1].inventory, f"--extra-vars=status_file={told}").succeeded()
    [agent] = [one for one in json.loads(told.read_text())["machines"] if one["machine"] == "agent"]
    assert (agent["state"], agent["vmid"]) == ("running", machine(lab)["vmid"])
    assert agent["version"]
    assert agent["snapshots"] == []
    assert agent["predecessor"] is False
    assert written(lab, since) == []
