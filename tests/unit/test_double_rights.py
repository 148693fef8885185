"""The test double's users, roles, rules and tokens: each privilege taken away gives Proxmox's own refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from doubleplace import Place, Refused, running

ME = "/nodes/pve/qemu/100"
#: (method, path, parameters, where, which privilege it fails without)
NEEDED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("GET", f"{ME}/config", {}, "/vms/100", "VM.Audit"),
    ("GET", f"{ME}/status/current", {}, "/vms/100", "VM.Audit"),
    ("POST", f"{ME}/status/start", {}, "/vms/100", "VM.PowerMgmt"),
    ("POST", f"{ME}/clone", {"newid": 101}, "/vms/100", "VM.Clone"),
    ("POST", f"{ME}/clone", {"newid": 101}, "/storage/local-lvm", "Datastore.AllocateSpace"),
    ("POST", f"{ME}/clone", {"newid": 101}, "/sdn/zones/localnetwork/vmbr1", "SDN.Use"),
    ("PUT", f"{ME}/config", {"cores": 2}, "/vms/100", "VM.Config.CPU"),
    ("PUT", f"{ME}/config", {"memory": 512}, "/vms/100", "VM.Config.Memory"),
    ("PUT", f"{ME}/config", {"net0": "virtio,bridge=vmbr1"}, "/vms/100", "VM.Config.Network"),
    ("PUT", f"{ME}/config", {"net0": "virtio,bridge=vmbr1"}, "/sdn/zones/localnetwork/vmbr1", "SDN.Use"),
    ("PUT", f"{ME}/config", {"scsihw": "lsi"}, "/vms/100", "VM.Config.HWType"),
    ("PUT", f"{ME}/config", {"serial0": "socket"}, "/vms/100", "VM.Config.HWType"),
    ("PUT", f"{ME}/config", {"tags": "a"}, "/vms/100", "VM.Config.Options"),
    ("PUT", f"{ME}/config", {"scsi1": "local-lvm:1"}, "/vms/100", "VM.Config.Disk"),
    ("PUT", f"{ME}/config", {"scsi1": "local-lvm:1"}, "/storage/local-lvm", "Datastore.AllocateSpace"),
    ("PUT", f"{ME}/config", {"ide3": "none,media=cdrom"}, "/vms/100", "VM.Config.CDROM"),
    ("PUT", f"{ME}/resize", {"disk": "scsi0", "size": "9G"}, "/vms/100", "VM.Config.Disk"),
    ("POST", f"{ME}/snapshot", {"snapname": "a1"}, "/vms/100", "VM.Snapshot"),
    ("POST", f"{ME}/template", {}, "/vms/100", "VM.Allocate"),
    ("DELETE", ME, {}, "/vms/100", "VM.Allocate"),
    ("GET", "/nodes/pve/status", {}, "/nodes/pve", "Sys.Audit"),
    (
        "POST",
        "/nodes/pve/storage/local/download-url",
        {"url": "https://x.example/a.qcow2", "content": "import", "filename": "a.qcow2"},
        "/storage/local",
        "Datastore.AllocateTemplate",
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    seed = {
        "vms": [
            {
                "vmid": 100,
                "name": "theirs",
                "config": {"scsi0": "local-lvm:vm-100-disk-0,size=3G", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr1"},
            }
        ]
    }
    with running(tmp_path_factory.mktemp("rights"), seed=seed) as found:
        yield found


@pytest.mark.parametrize("number", range(len(NEEDED)), ids=lambda n: f"{NEEDED[n][4]}-{NEEDED[n][0]}-{n}")
def test_each_privilege_taken_away_is_the_one_that_is_named(place: Place, number: int) -> None:
    method, path, given, where, privilege = NEEDED[number]
    everything = place.double.directory.known
    token = place.somebody(f"without{number}", *(everything - {privilege}))
    before = place.states()
    with pytest.raises(Refused) as refused:
        place.call(method, path, token, **given)
    assert (refused.value.status, refused.value.reason) == (403, f"Permission check failed ({where}, {privilege})")
    assert place.states() == before


def test_some_refusals_name_nothing_as_on_a_real_host(place: Place) -> None:
    token = place.somebody("cannotmake", *(place.double.directory.known - {"VM.Allocate"}))
    for path, given in ((f"{ME}/clone", {"newid": 101}), ("/nodes/pve/qemu", {"vmid": 101})):
        with pytest.raises(Refused, match=r"^403 Permission check failed \{\}$"):
            place.call("POST", path, token, **given)


def test_one_of_two_privileges_is_enough_for_cloud_init(place: Place) -> None:
    either = place.somebody("network", "VM.Config.Network", "VM.Audit")
    assert place.call("PUT", f"{ME}/config", either, ciuser="agent") is None
    neither = place.somebody("neither", "VM.Config.CPU")
    with pytest.raises(Refused, match=r"\(/vms/100, VM.Config.Cloudinit\|VM.Config.Network\)"):
        place.call("PUT", f"{ME}/config", neither, ciuser="agent")


def test_what_only_root_may_set_no_token_may(place: Place) -> None:
    with pytest.raises(Refused, match="only root can set 'args' config"):
        place.call("PUT", f"{ME}/config", args="-monitor stdio")


def test_a_bridge_that_one_may_not_use_is_not_there(place: Place) -> None:
    token = place.somebody("bridge", "SDN.Use", path="/sdn/zones/localnetwork/vmbr1")
    listed = place.call("GET", "/nodes/pve/network", token, type="bridge")
    assert [each["iface"] for each in listed] == ["vmbr1"]


def test_a_vm_that_one_may_not_see_is_not_listed(place: Place) -> None:
    token = place.somebody("blind", "VM.Clone", path="/vms/100")
    assert place.call("GET", "/nodes/pve/qemu", token) == []
    assert place.call("GET", "/cluster/resources", token, type="vm") == []


def test_a_separated_token_has_only_what_both_it_and_its_user_have(place: Place) -> None:
    token = place.somebody("split", "VM.Audit", "VM.PowerMgmt", path="/vms", privsep=True)
    with pytest.raises(Refused, match=r"VM\.Audit"):
        place.call("GET", f"{ME}/config", token)
    place.call("POST", "/access/roles", roleid="Both", privs="VM.Audit VM.Clone")
    place.call("PUT", "/access/acl", path="/vms/100", roles="Both", tokens="split@pve!tok")
    assert place.call("GET", f"{ME}/config", token)["name"] == "theirs"
    held = place.call("GET", "/access/permissions", token, path="/vms/100")
    assert held == {"/vms/100": {"VM.Audit": 1}}


def test_a_deeper_rule_replaces_what_stands_above_it(place: Place) -> None:
    token = place.somebody("deep", "VM.Audit", path="/vms")
    place.call("POST", "/access/roles", roleid="Power", privs="VM.PowerMgmt")
    place.call("PUT", "/access/acl", path="/vms/100", roles="Power", users="deep@pve")
    assert list(place.call("GET", "/access/permissions", token, path="/vms/100")["/vms/100"]) == ["VM.PowerMgmt"]
    place.call("PUT", "/access/acl", path="/vms/100", roles="NoAccess", users="deep@pve")
    assert place.call("GET", "/access/permissions", token, path="/vms/100") == {"/vms/100": {}}
    place.call("PUT", "/access/acl", path="/vms/100", roles="Power,NoAccess", users="deep@pve", delete=1)
    assert list(place.call("GET", "/access/permissions", token, path="/vms/100")["/vms/100"]) == ["VM.Audit"]


def test_a_rule_that_is_not_handed_down_holds_at_its_own_path_only(place: Place) -> None:
    token = place.somebody("flat", "VM.Audit", path="/pool")
    place.call("PUT", "/access/acl", path="/vms", roles="Roleflat", users="flat@pve", propagate=0)
    held = place.call("GET", "/access/permissions", token)
    assert held["/vms"] == {"VM.Audit": 0}
    assert "/vms/100" not in held


def test_members_of_a_pool_can_be_reached_by_rights_on_the_pool(place: Place) -> None:
    place.call("POST", "/pools", poolid="lab")
    place.call("PUT", "/pools/lab", vms=100)
    token = place.somebody("pooled", "VM.Audit", path="/pool/lab")
    assert place.call("GET", f"{ME}/config", token)["name"] == "theirs"
    place.call("PUT", "/pools/lab", vms=100, delete=1)
    with pytest.raises(Refused, match=r"VM\.Audit"):
        place.call("GET", f"{ME}/config", token)


def test_groups_give_rights_to_their_members(place: Place) -> None:
    token = place.somebody("member", "Mapping.Use", path="/mapping")
    place.call("POST", "/access/groups", groupid="watchers")
    place.call("PUT", "/access/acl", path="/vms", roles="PVEAuditor", groups="watchers")
    with pytest.raises(Refused, match=r"VM\.Audit"):
        place.call("GET", f"{ME}/config", token)
    place.call("PUT", "/access/users/member@pve", groups="watchers")
    assert place.call("GET", f"{ME}/config", token)["name"] == "theirs"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("nobody@pve!x=1", "no such user ('nobody@pve')"),
        ("glasslab@pve!other=1", "no such token 'other' for user 'glasslab@pve'"),
        ("glasslab@pve!lab=1", "invalid token value!"),
        ("glasslab@pve=1", "no tokenid specified"),
    ],
)
def test_a_wrong_token_is_refused_in_proxmoxs_words(place: Place, token: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        place.call("GET", "/version", token)
    assert (refused.value.status, refused.value.reason) == (401, said)


def test_a_token_that_was_taken_away_lets_nobody_in(place: Place) -> None:
    token = place.somebody("gone", "VM.Audit")
    assert place.call("GET", f"{ME}/config", token)
    place.call("PUT", "/access/users/gone@pve", enable=0)
    with pytest.raises(Refused, match="disabled"):
        place.call("GET", f"{ME}/config", token)
    place.call("DELETE", "/access/users/gone@pve")
    with pytest.raises(Refused, match="no such user"):
        place.call("GET", f"{ME}/config", token)
    assert not [rule for rule in place.call("GET", "/access/acl") if rule["ugid"] == "gone@pve"]


def test_what_exists_is_not_made_twice_and_what_does_not_is_missed(place: Place) -> None:
    place.somebody("twice", "VM.Audit")
    for method, path, given, said in (
        ("POST", "/access/users", {"userid": "twice@pve"}, "user 'twice@pve' already exists"),
        ("POST", "/access/roles", {"roleid": "Roletwice"}, "role 'Roletwice' already exists"),
        ("POST", "/access/users/twice@pve/token/tok", {}, "Token already exists."),
        ("GET", "/access/users/missing@pve", {}, "no such user ('missing@pve')"),
        ("GET", "/access/roles/Missing", {}, "role 'Missing' does not exist"),
        ("PUT", "/access/roles/PVEAdmin", {"privs": "VM.Audit"}, "cannot be modified"),
        ("PUT", "/access/acl", {"path": "/vms", "roles": "Missing", "users": "twice@pve"}, "'Missing' does not exist"),
        ("PUT", "/access/acl", {"path": "/nowhere", "roles": "PVEAdmin", "users": "twice@pve"}, "invalid ACL path"),
    ):
        with pytest.raises(Refused, match=said.replace("(", r"\(").replace(")", r"\)")):
            place.call(method, path, **given)


def test_nobody_hands_out_rights_they_may_not_hand_out(place: Place) -> None:
    token = place.somebody("climber", "VM.Audit", "Sys.Audit")
    with pytest.raises(Refused, match=r"\(/, Permissions.Modify\)"):
        place.call("PUT", "/access/acl", token, path="/", roles="Administrator", users="climber@pve")
    maker = place.somebody("maker", "VM.Allocate", path="/vms")
    assert place.call("PUT", "/access/acl", maker, path="/vms/100", roles="PVEVMUser", users="climber@pve") is None
