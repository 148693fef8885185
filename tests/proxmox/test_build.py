"""The lab's machines are built, looked at again, changed in check mode, taken away; somebody else's stay as they are.

In the order of a user's day: the last test takes the machines away. In the Molecule scenario the place is the one that
`converge` has built on (a live host's, when one was named); alone these tests make one and build it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proxmoxer import ProxmoxAPI

import access
import foreign
import place
import plays
import pvehost
import standing


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[place.Place]:
    """The place of the scenario, or one of this module's own, built."""
    named = os.environ.get("GLASSLAB_PROXMOX_PLACE", "")
    ephemeral = os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "")
    if named:
        yield place.load(Path(named))
    elif ephemeral:
        yield place.load(standing.folder_of(ephemeral) / standing.PLACE)
    else:
        with place.own_place(tmp_path_factory.mktemp("place") / "double", by_playbook=True) as (_, own):
            plays.play(plays.CONVERGE, own.inventory).succeeded()
            yield own


def ours(where: place.Place) -> dict[str, dict[str, Any]]:
    """The guests of the inventory as the API lists them, by the inventory's names."""
    listed = pvehost.machines(where.lab.api())
    names = {f"{lab_id(where)}-{name}": name for name in inventory(where)["guests"]}
    marks = {"glasslab", f"glasslab-{lab_id(where)}"}
    return {
        names[one["name"]]: one | {"vmid": vmid}
        for vmid, one in listed.items()
        if one["name"] in names and not one["template"] and marks <= set(one.get("tags", "").split(";"))
    }


def inventory(where: place.Place) -> dict[str, Any]:
    """The inventory's variables for all hosts, and its guests by name."""
    tree = json.loads((where.inventory / "hosts.yml").read_text(encoding="utf-8"))["all"]
    groups = tree["children"]["guests"]["children"].values()
    return {"vars": tree["vars"], "guests": {name: own for one in groups for name, own in one["hosts"].items()}}


def lab_id(where: place.Place) -> str:
    """The lab's name in the inventory."""
    return str(inventory(where)["vars"]["lab_id"])


def asked(where: place.Place) -> int:
    """How many requests the double has recorded; a live host keeps no such record."""
    return len(pvehost.requests_of(where.state)) if where.state else 0


def nothing_written(where: place.Place, since: int, before: dict[int, str]) -> None:
    """Not one call that changes something, by the double's record; and by what the API shows, the same as before."""
    if where.state:
        calls = pvehost.requests_of(where.state, since)
        assert calls, "the play asked the API nothing"
        assert pvehost.writing(calls) == []
    assert pvehost.everything(where.lab.api()) == before


def foreigners_are_as_they_were(where: place.Place) -> None:
    """Byte for byte, as the double wrote them down before anything was built."""
    if where.state:
        now = pvehost.states(where.state, foreign.VMIDS)
        assert len(now) == len(foreign.ROWS) == 20
        file = where.state.parent / standing.BEFORE
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        seeded = {int(vmid): text.encode() for vmid, text in before.items()} if before else seeded_bytes(where)
        assert now == seeded


def seeded_bytes(where: place.Place) -> dict[int, bytes]:
    """What a double writes that nothing was done to but the seeding."""
    assert where.state
    folder = where.state.parent / "untouched"
    with place.own_place(folder) as (one, _):
        return pvehost.states(one.state)


def disks(api: ProxmoxAPI, node: str) -> set[str]:
    """The volumes that are a machine's, without what the storages hold beside them."""
    return {volume for volume in pvehost.volumes(api, node) if "-disk-" in volume or "cloudinit" in volume}


def test_the_token_may_do_what_is_listed_and_nothing_else(where: place.Place) -> None:
    if where.admin:  # a live host's administrator may have given it more
        held = where.lab.api().access.permissions.get()
        own = {(path, name) for path, names in held.items() for name in names if not path.startswith("/vms/")}
        assert own == set(access.grants())


def test_the_machines_are_there_as_the_inventory_says(where: place.Place) -> None:
    wanted = inventory(where)["guests"]
    found = ours(where)
    assert set(found) == set(wanted)
    api = where.lab.api()
    for name, one in found.items():
        config = api.nodes(one["node"]).qemu(one["vmid"]).config.get()
        assert one["status"] == "running"
        assert config["net0"].lower().startswith(f"virtio={wanted[name]['machine_mac']}")
        assert f"ip={wanted[name]['machine_address']}/" in config["ipconfig0"]
        assert config["description"].splitlines()[0].startswith("Built by Glasslab")
        assert "unfinished" not in config["description"]
        assert config["cpu"].removeprefix("cputype=") == "host"
        assert "sshkeys" in config


def test_a_second_run_changes_nothing_and_writes_nothing(where: place.Place) -> None:
    since, before = asked(where), pvehost.everything(where.lab.api())
    played = plays.play(plays.CONVERGE, where.inventory).succeeded()
    assert played.changed == 0, played.tail
    nothing_written(where, since, before)


def test_check_mode_tells_a_change_and_makes_none(where: place.Place) -> None:
    since, before = asked(where), pvehost.everything(where.lab.api())
    grown = [f"--extra-vars={json.dumps({'machine_memory_mb': 3072, 'machine_cores': 1})}", "--check", "--diff"]
    played = plays.play(plays.CONVERGE, where.inventory, *grown).succeeded()
    assert all(played.recap[name].changed for name in inventory(where)["guests"]), played.tail
    nothing_written(where, since, before)


def test_somebody_elses_machines_are_as_they_were(where: place.Place) -> None:
    foreigners_are_as_they_were(where)


def test_destroy_is_not_done_unasked(where: place.Place) -> None:
    since, before = asked(where), pvehost.everything(where.lab.api())
    played = plays.play(plays.DESTROY, where.inventory)
    assert played.code != 0
    assert "confirm=true" in played.output
    if where.state:
        assert pvehost.writing(pvehost.requests_of(where.state, since)) == []
    assert pvehost.everything(where.lab.api()) == before


def test_destroy_leaves_nothing(where: place.Place) -> None:
    api = where.lab.api()
    gone = {one["vmid"] for one in ours(where).values()}
    assert len(gone) == len(inventory(where)["guests"])
    own = {"confirm": True, "machine_destroy_cache": True}
    played = plays.play(plays.DESTROY, where.inventory, f"--extra-vars={json.dumps(own)}").succeeded()
    left = pvehost.machines(api)
    assert not gone & set(left)
    # Somebody else's may be called as the lab's: their ids are known.
    known = foreign.VMIDS if where.state else ()
    named = [one["name"] for vmid, one in left.items() if vmid not in known]
    assert not [name for name in named if name.startswith(f"{lab_id(where)}-")], named
    kept = {volume for volume in pvehost.volumes(api, where.lab.node) if f"/{lab_id(where)}-" in volume}
    # The image stays: to remove it the token would need the right to remove anything on that storage.
    assert kept == set(re.findall(r"pvesm free (\S+?)[;\"\s]", played.output))
    assert all(":import/" in volume for volume in kept)
    if where.admin and where.state:
        assert disks(where.admin.api(), where.lab.node) == foreign.disks()
    foreigners_are_as_they_were(where)


def test_destroy_of_nothing_changes_nothing(where: place.Place) -> None:
    since = asked(where)
    played = plays.play(plays.DESTROY, where.inventory, "--extra-vars=confirm=true").succeeded()
    assert played.changed == 0, played.tail
    if where.state:
        assert pvehost.writing(pvehost.requests_of(where.state, since)) == []


def test_check_mode_on_an_empty_host_changes_nothing(where: place.Place) -> None:
    since, before = asked(where), pvehost.everything(where.lab.api())
    assert not ours(where)
    played = plays.play(plays.CONVERGE, where.inventory, "--check").succeeded()
    assert played.changed, played.tail
    nothing_written(where, since, before)
