"""A host on which everything stands against the lab: the preflight reads it by the API and tells all of it at once."""

from __future__ import annotations

import json
from pathlib import Path

import labinventory
import place
import plays
import pvehost

GIB = 2**30
SEED = {
    "version": "8.1.10",
    "hardware": {"memory": 4 * GIB, "cpus": 1, "model": "Old CPU", "flags": "fpu vmx aes sse4_2"},
    "storages": {"local": {"content": "iso,vztmpl"}, "local-lvm": {"active": 0}},
    "interfaces": {"pve": {"vmbr1": None}},
}
# What is told of each, and what ends it.
TOLD = {
    "version": ("Proxmox VE is 8.1.10", "needs 8.2 to 9.x; upgrade the node"),
    "content type": ("storage local does not take content 'import'", "pvesm set local --content iso,vztmpl,import"),
    "storage": ("storage local-lvm is not active on node pve", "pvesm status"),
    "memory": ("node pve has 2048 MiB of memory left of 4096, and 4096 are needed", "lower machine_memory_mb"),
    "cores": ("machine_cores 2 is more than the 1 of node pve", "lower it"),
    "processor flag": ("node pve has no AVX (Old CPU)", "move the machine to another node (machine_node)"),
    "bridge": ("machine_bridge 'vmbr1' is no bridge of node pve that the token may use", "playbooks/network.yml"),
    "SDN right": ("without SDN.Use on /sdn/zones/localnetwork/vmbr1", "playbooks/proxmox_access.yml"),
}


def test_everything_is_told_in_one_line_with_remedies_and_the_command_that_goes_on(tmp_path: Path) -> None:
    seed = tmp_path / "seed.json"
    seed.write_text(json.dumps(SEED), encoding="utf-8")
    own = {"machine_cpu_flags": ["avx"], "machine_bridge_expected": True}
    guests = {"agents": {"agent": labinventory.guest(10, **own)}}
    with pvehost.double(tmp_path / "double", "--token", "none", "--seed", str(seed)) as one:
        where = place.furnish(one, guests)
        since = one.count()
        played = plays.play(plays.CONVERGE, where.inventory, "--tags=preflight")
        assert pvehost.writing(one.requests(since)) == []
    assert played.code != 0
    assert "Traceback" not in played.output
    # Ansible writes it twice: as an error, and as the task's result.
    line = next(text for text in played.output.splitlines() if "agent: " in text and "Old CPU" in text)
    missing = {what: words for what, words in TOLD.items() if not all(word in line for word in words)}
    assert missing == {}, line
    assert plays.RESUME.search(line), line
