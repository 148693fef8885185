"""Which virtual machine is the lab's, what of it differs, and what stands against one: the filters of roles/machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import glasslab_proxmox as vms
import glasslab_proxmox_access as access
import glasslab_proxmox_preflight as preflight

ROLE = Path(__file__).resolve().parents[2] / "roles" / "machine"
LISTED = yaml.safe_load((ROLE / "vars" / "proxmox_privileges.yml").read_text(encoding="utf-8"))
PRIVILEGES = LISTED["machine_proxmox_privilege_list"]
PLACES = {
    "guests": "/pool/glasslab",
    "images": "/storage/local",
    "disks": "/storage/local-lvm",
    "node": "/nodes/pve",
    "bridge": "/sdn/zones/localnetwork/vmbr1",
}


def vm(**changes: Any) -> dict[str, Any]:
    """The lab's agent as proxmox_vm_info lists it, with changes; `config` is merged."""
    config = {
        "tags": "glasslab;glasslab-lab1",
        "description": "Built by Glasslab 0.1.0: lab lab1, machine agent\n\nmore",
        "scsi0": "local-lvm:vm-101-disk-0,size=16G",
        "ide2": "local-lvm:vm-101-cloudinit,media=cdrom",
        **changes.pop("config", {}),
    }
    return {"vmid": 101, "name": "lab1-agent", "node": "pve", "template": False, "config": config, **changes}


def find(*found: dict[str, Any], **words: Any) -> dict[str, Any]:
    return vms.find(list(found), "lab1", "lab1-agent", "agent", **words)


# ---------------------------------------------------------------- ownership


def test_a_machine_with_every_mark_is_ours() -> None:
    assert find(vm()) == {"vm": vm(), "problem": "", "foreign": 0}


@pytest.mark.parametrize(
    "other",
    [
        vm(config={"tags": "web", "description": "the mail server"}),
        vm(config={"tags": "", "description": ""}),
        vm(config={"tags": "glasslab;glasslab-other", "description": "Built by Glasslab 0.1.0: lab other, machine a"}),
        vm(name="lab1-agent-previous"),
        vm(name="Copy-of-VM-lab1-agent"),
        vm(template=True),
    ],
    ids=["foreign", "bare", "another lab's", "set aside", "a copy", "a template"],
)
def test_one_that_is_not_ours_is_neither_taken_nor_told(other: dict[str, Any]) -> None:
    found = find(other)
    assert (found["vm"], found["problem"]) == ({}, "")


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        ({"tags": "glasslab-lab1"}, "the tag glasslab"),
        ({"tags": "glasslab"}, "the tag glasslab-lab1"),
        ({"description": "edited by hand"}, "notes that begin with 'Built by Glasslab'"),
    ],
)
def test_one_with_some_of_the_marks_is_told_by_id_and_remedy(config: dict[str, str], lacks: str) -> None:
    found = find(vm(config=config))
    assert found["vm"] == {}
    for word in ("VM 101 (lab1-agent) on pve", lacks, "it is left alone", "rename it"):
        assert word in found["problem"]


def test_two_with_every_mark_are_told_with_both_ids() -> None:
    found = find(vm(), vm(vmid=102))
    assert found["vm"] == {}
    assert "VM 101 (lab1-agent) on pve and VM 102 (lab1-agent) on pve" in found["problem"]


def test_a_clone_whose_tags_are_still_to_come_is_ours() -> None:
    half = vm(config={"tags": "", "description": vms.unfinished("lab1", "agent")})
    assert find(half)["vm"] == half
    other = vm(config={"tags": "", "description": vms.unfinished("lab1", "other")})
    assert find(other)["vm"] == {}


def test_a_template_is_looked_for_on_its_node_alone() -> None:
    one = vm(name="lab1-debian13", template=True, node="pve2")
    assert vms.find([one], "lab1", "lab1-debian13", "template", True, "pve")["vm"] == {}
    assert vms.find([one], "lab1", "lab1-debian13", "template", True, "pve2")["vm"] == one


def test_ids_are_those_of_guests_with_name_and_tags() -> None:
    listed = [
        {"vmid": 105, "name": "lab1-agent", "tags": "agents;glasslab;glasslab-lab1"},
        {"vmid": 106, "name": "lab1-logs", "tags": "glasslab"},
        {"vmid": 107, "name": "lab1-agent2", "tags": "glasslab,glasslab-lab1", "template": 1},
    ]
    assert vms.ids(listed, "lab1", ["agent", "logs", "agent2"]) == {"agent": 105}


# ---------------------------------------------------------------- what differs

WANTED = {
    "cores": 2,
    "memory": 4096,
    "cpu": "host",
    "net0": "virtio=02:10:00:00:00:10,bridge=vmbr1",
    "ipconfig0": "ip=10.10.10.10/24,gw=10.10.10.1",
    "sshkeys": "ssh-ed25519%20AAAA%2Fb%20me",
    "tags": "glasslab;glasslab-lab1",
    "description": "Built by Glasslab 0.2.0: lab lab1, machine agent",
}
AS_IT_IS = {
    **WANTED,
    "memory": "4096",
    "cpu": "cputype=host",
    "net0": "virtio=02:10:00:00:00:10,bridge=vmbr1,queues=2",
    "sshkeys": "ssh-ed25519%20AAAA%2Fb%20me%0A",
    "tags": "glasslab;glasslab-lab1;mine",
    "description": "Built by Glasslab 0.1.0: lab lab1, machine agent",
}


def test_nothing_differs_of_a_machine_that_is_as_wanted() -> None:
    assert vms.changes(vm(config=AS_IT_IS), WANTED, "lab1", "local-lvm")["parameters"] == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cores", 4),
        ("memory", "2048"),
        ("cpu", "kvm64"),
        ("net0", "virtio=02:10:00:00:00:10,bridge=vmbr0"),
        ("net0", "virtio=02:10:00:00:00:99,bridge=vmbr1"),
        ("ipconfig0", "ip=10.10.10.11/24,gw=10.10.10.1"),
        ("sshkeys", "ssh-ed25519%20BBBB%20other"),
        ("description", "Built by Glasslab: lab lab1, machine agent (unfinished)"),
    ],
)
def test_what_differs_is_set_and_said(key: str, value: str) -> None:
    found = vms.changes(vm(config={**AS_IT_IS, key: value}), WANTED, "lab1", "local-lvm")
    assert found["parameters"] == {key: WANTED[key]}
    assert key in found["said"][0]


def test_tags_of_the_users_own_stay_when_ours_are_added() -> None:
    found = vms.changes(vm(config={**AS_IT_IS, "tags": "mine;glasslab"}), WANTED, "lab1", "local-lvm")
    assert found["parameters"] == {"tags": "glasslab;glasslab-lab1;mine"}


def test_a_machine_without_a_drive_for_cloud_init_gets_one() -> None:
    found = vms.changes(vm(config={**AS_IT_IS, "ide2": "none,media=cdrom"}), WANTED, "lab1", "fast")
    assert found["parameters"] == {"ide2": "fast:cloudinit"}


@pytest.mark.parametrize(("size", "grows"), [("3G", True), ("16384M", False), ("1T", False), ("2252M", True)])
def test_a_disk_grows_and_never_shrinks(size: str, grows: bool) -> None:
    assert vms.grows(vm(config={"scsi0": f"local-lvm:vm-101-disk-0,discard=on,size={size}"}), 16) is grows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a" * 128, "a" * 128),
        (f"{'b' * 128}  other.qcow2\n{'C' * 128} *image.qcow2\n", "c" * 128),
        (f"{'b' * 128}  image.qcow2.old\n", ""),
        ("<html>not found</html>", ""),
        ("a" * 64, ""),
    ],
)
def test_the_checksum_of_the_image_is_found_or_none(text: str, found: str) -> None:
    assert vms.checksum(text, "image.qcow2") == found


# ---------------------------------------------------------------- preflight


def everything(**changes: Any) -> dict[str, Any]:
    """What the API says of a host that has all of it."""
    granted: dict[str, dict[str, int]] = {}
    for one in preflight.privileges(PRIVILEGES, PLACES, True):
        granted.setdefault(one["path"], {})[one["privilege"]] = 1
    storage = {"active": 1, "enabled": 1, "avail": 100 * 2**30}
    data = {
        "version": {"version": "8.4.1"},
        "nodes": [{"node": "pve", "status": "online"}],
        "access/permissions": granted,
        "nodes/pve/status": {
            "cpuinfo": {"cpus": 8, "flags": "vmx avx aes", "hvm": "1", "model": "Some CPU"},
            "memory": {"total": 32 * 2**30, "used": 2 * 2**30},
        },
        "nodes/pve/storage": [
            {**storage, "storage": "local", "type": "dir", "content": "iso,import"},
            {**storage, "storage": "local-lvm", "type": "lvmthin", "content": "images,rootdir"},
        ],
        "nodes/pve/network": [{"iface": "vmbr1", "type": "bridge"}, {"iface": "eno1", "type": "eth"}],
    }
    return {"data": {**data, **changes}, "problems": {}}


def wanted(**changes: Any) -> dict[str, Any]:
    return {
        "node": "pve",
        "name": "lab1-agent",
        "mac": "02:10:00:00:00:10",
        "ssh_keys": ["ssh-ed25519 AAAA me"],
        "token": "glasslab@pve!lab",
        "privileges": preflight.privileges(PRIVILEGES, PLACES, True),
        "storages": [
            ["local-lvm", "machine_storage", "images", [16]],
            ["local", "machine_image_storage", "import", [1]],
        ],
        "cores": 2,
        "cpu_type": "host",
        "cpu_flags": ["avx"],
        "memory": [["agent", 4096]],
        "bridge": "vmbr1",
        "bridge_path": PLACES["bridge"],
        "bridge_expected": True,
        **changes,
    }


def test_nothing_stands_against_a_host_that_has_all_of_it() -> None:
    assert preflight.problems(everything(), wanted()) == []


@pytest.mark.parametrize("one", preflight.privileges(PRIVILEGES, PLACES, True), ids=lambda one: one["privilege"])
def test_each_privilege_that_is_missing_is_named_with_place_and_reason(one: dict[str, str]) -> None:
    read = everything()
    del read["data"]["access/permissions"][one["path"]][one["privilege"]]
    (line,) = preflight.problems(read, wanted())
    for word in (one["privilege"], one["path"], one["why"], "playbooks/proxmox_access.yml"):
        assert word in line


def test_a_storage_that_takes_no_disk_images_has_the_remedy_of_either_release() -> None:
    """Whether the release knows such content is the storage's to say, and no version number's."""
    read = everything(version={"version": "8.2.2"})
    read["data"]["nodes/pve/storage"][0]["content"] = "iso"
    (line,) = preflight.problems(read, wanted())
    for word in ("pvesm set local --content iso,import", "upgrade the node", "machine_template"):
        assert word in line
    assert preflight.problems(read, wanted(storages=[["local-lvm", "machine_storage", "images", [16]]])) == []


def test_a_privilege_from_above_counts_only_when_it_is_handed_down() -> None:
    assert preflight.held({"/": {"VM.Audit": 1}}, "/pool/x", "VM.Audit")
    assert not preflight.held({"/": {"VM.Audit": 0}}, "/pool/x", "VM.Audit")
    assert not preflight.held({"/pool/xy": {"VM.Audit": 1}}, "/pool/x", "VM.Audit")


@pytest.mark.parametrize(
    ("version", "fits"), [("8.1.9", 0), ("8.2.0", 1), ("9.0.10", 1), ("9.3", 1), ("10.0", 0), ("", 0)]
)
def test_versions(version: str, fits: int) -> None:
    assert len(preflight.version_problems({"version": version})) == 1 - fits


STATUS = everything()["data"]["nodes/pve/status"]
DISKS = everything()["data"]["nodes/pve/storage"]


@pytest.mark.parametrize(
    ("read", "asked", "words"),
    [
        ({"nodes": [{"node": "a"}]}, {}, ["machine_node 'pve'", "there are a"]),
        ({"nodes": [{"node": "pve", "status": "offline"}]}, {}, ["node pve is offline"]),
        ({"nodes/pve/storage": DISKS[:1]}, {}, ["machine_storage 'local-lvm'", "it sees local"]),
        (
            {"nodes/pve/storage": [{**DISKS[0], "content": "iso,vztmpl"}, DISKS[1]]},
            {},
            ["pvesm set local --content iso,vztmpl,import"],
        ),
        ({"nodes/pve/storage": [DISKS[0], {**DISKS[1], "active": 0}]}, {}, ["local-lvm is not active", "pvesm status"]),
        ({"nodes/pve/storage": [DISKS[0], {**DISKS[1], "avail": 2**30}]}, {}, ["1.0 GiB left", "4 GiB are needed"]),
        (
            {"nodes/pve/storage": [DISKS[0], {**DISKS[1], "avail": 5 * 2**30, "type": "lvm"}]},
            {},
            ["5.0 GiB left", "16 GiB are needed"],
        ),
        ({"nodes/pve/status": {**STATUS, "cpuinfo": {"flags": "vmx", "cpus": 8}}}, {}, ["no AVX", "machine_cpu_flags"]),
        ({"nodes/pve/status": {**STATUS, "cpuinfo": {"flags": "avx", "hvm": 0}}}, {}, ["VT-x or AMD-V"]),
        ({}, {"cpu_type": "x86-64-v2-AES"}, ["'x86-64-v2-AES' does not hand AVX on", "'host'"]),
        ({}, {"cores": 16}, ["machine_cores 16", "8 of node pve"]),
        (
            {"nodes/pve/status": {**STATUS, "memory": {"total": 8 * 2**30, "used": 3 * 2**30}}},
            {"memory": [["agent", 4096], ["logs", 5120]]},
            ["5120 MiB of memory left of 8192", "9216 are needed", "agent 4096, logs 5120", "machine_memory_mb"],
        ),
        ({"nodes/pve/network": []}, {}, ["machine_bridge 'vmbr1'", "it sees none", "SDN.Use"]),
        ({}, {"name": "lab1-my_agent"}, ["'lab1-my_agent' cannot be a virtual machine's name"]),
        ({}, {"mac": "03:10:00:00:00:10"}, ["machine_mac '03:10:00:00:00:10'"]),
        ({}, {"ssh_keys": []}, ["machine_ssh_keys is empty", "ssh-keygen"]),
    ],
)
def test_what_stands_against_a_machine_is_told_with_value_and_remedy(
    read: dict[str, Any], asked: dict[str, Any], words: list[str]
) -> None:
    (line,) = preflight.problems(everything(**read), wanted(**asked))
    for word in words:
        assert word in line
    assert "\n" not in line


def test_what_could_not_be_read_is_told_unless_a_privilege_says_why() -> None:
    read = everything()
    read["problems"] = {"nodes/pve/status": "https://pve:8006 answers 500: got timeout"}
    assert preflight.problems(read, wanted()) == ["nodes/pve/status: https://pve:8006 answers 500: got timeout"]


def test_of_a_node_that_is_too_small_only_those_are_refused_that_do_not_fit() -> None:
    share = {"node": "pve", "memory": 4096, "storage": "local-lvm", "disk": 16}
    shares = {"a": share, "b": {**share, "memory": 0, "disk": 0}, "c": {**share, "node": "pve2"}, "d": share}
    assert preflight.load(shares, "a") == {"memory": [["a", 4096]], "disks": [16]}
    assert preflight.load(shares, "b") == {"memory": [], "disks": []}
    assert preflight.load(shares, "d") == {"memory": [["a", 4096], ["d", 4096]], "disks": [16, 16]}


# ---------------------------------------------------------------- access

NEEDED = {
    "user": "glasslab@pve",
    "token": "lab",
    "pool": "glasslab",
    "grants": [{"key": key, "value": path} for key, path in PLACES.items()],
    "privileges": PRIVILEGES,
    "state": "present",
}
NOTHING: dict[str, Any] = {"access/roles": [], "access/users": [], "access/acl": [], "pools": []}


def applied(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """What the API lists after the calls of a first run."""
    now: dict[str, Any] = {key: list(value) for key, value in NOTHING.items()}
    for one in calls:
        words = one["parameters"]
        if one["path"] == "access/acl":
            now["access/acl"].append({"path": words["path"], "roleid": words["roles"], "ugid": words["users"]})
        else:
            now[one["path"]].append(dict(words))
    return now


def test_a_first_run_makes_all_of_it_and_a_second_one_nothing() -> None:
    first = access.access(NOTHING, NEEDED)
    assert not first["token_there"]
    now = applied(first["calls"]) | {"access/users/glasslab@pve/token": [{"tokenid": "lab"}]}
    second = access.access(now, NEEDED)
    assert (second["calls"], second["token_there"]) == ([], True)


def test_no_role_holds_more_than_its_place_needs() -> None:
    roles = {
        one["parameters"]["roleid"]: set(one["parameters"]["privs"].split(","))
        for one in access.access(NOTHING, NEEDED)["calls"]
        if one["path"] == "access/roles"
    }
    assert roles == {
        f"Glasslab-{place}": {one["privilege"] for one in PRIVILEGES if one["place"] == place} for place in PLACES
    }


def test_a_role_that_somebody_has_widened_is_put_right() -> None:
    now = applied(access.access(NOTHING, NEEDED)["calls"])
    now["access/roles"][0]["privs"] += ",Sys.Modify"
    (call,) = access.access(now, NEEDED)["calls"]
    assert call["method"] == "put"
    assert "Sys.Modify" not in call["parameters"]["privs"]


def test_absent_takes_away_what_is_ours_and_leaves_the_rest() -> None:
    now = applied(access.access(NOTHING, NEEDED)["calls"]) | {"access/users/glasslab@pve/token": [{"tokenid": "lab"}]}
    now["access/roles"].append({"roleid": "PVEAdmin", "privs": "VM.Audit"})
    now["access/users"].append({"userid": "root@pam"})
    now["access/acl"].append({"path": "/", "roleid": "PVEAdmin", "ugid": "bob@pve"})
    said = " ".join(access.access(now, {**NEEDED, "state": "absent"})["said"])
    for ours in ("token glasslab@pve!lab", "user glasslab@pve", "role Glasslab-guests", "pool glasslab"):
        assert ours in said
    for theirs in ("PVEAdmin", "root@pam", "bob@pve"):
        assert theirs not in said


def test_the_privileges_of_the_documentation_are_those_of_the_list() -> None:
    page = (ROLE.parents[1] / "docs" / "proxmox.md").read_text(encoding="utf-8")
    rows = [f"| `Glasslab-{one['place']}` | `{one['privilege']}` | {one['why']} |" for one in PRIVILEGES]
    assert [line for line in page.splitlines() if line.startswith("| `Glasslab-")] == rows
