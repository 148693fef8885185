"""The test double of the Proxmox API: machines, disks, images and the host, as the lab uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doubleplace import SHA512, Place, Refused, running

FOREIGN = {
    "vms": [
        {
            "vmid": 110,
            "name": "gltest-agent",
            "tags": ["other"],
            "config": {"scsi0": "local-lvm:vm-110-disk-0,size=8G"},
        },
        {
            "vmid": 111,
            "name": "gltest-debian13",
            "template": True,
            "config": {"scsi0": "local-lvm:base-111-disk-0,size=3G"},
        },
        {"vmid": 112, "name": "runs", "status": "running", "snapshots": {"clean": {"memory": "512", "snaptime": 1}}},
    ]
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with running(tmp_path) as found:
        yield found


def test_an_image_is_downloaded_only_with_its_own_checksum_and_once(place: Place) -> None:
    path = "/nodes/pve/storage/local/download-url"
    given: dict[str, Any] = {"url": "https://images.example/d/debian.qcow2", "content": "import"}
    given |= {"filename": "debian.qcow2", "checksum__algorithm": "sha512"}
    assert "exit code 8" in place.task("POST", path, **given, checksum=SHA512)
    place.image()
    assert place.task("POST", path, **given, checksum=SHA512) == "OK"
    assert "refusing to override" in place.task("POST", path, **given, checksum="0" * 128)
    (place.double.images / "other.qcow2").write_bytes(b"changed")
    other = {**given, "url": "https://images.example/other.qcow2", "filename": "other.qcow2"}
    assert place.task("POST", path, **other, checksum=SHA512).startswith("checksum mismatch: got '")
    listed = place.call("GET", "/nodes/pve/storage/local/content", content="import")
    assert [each["volid"] for each in listed] == ["local:import/debian.qcow2"]


def test_a_file_of_another_kind_than_its_content_is_refused(place: Place) -> None:
    path = "/nodes/pve/storage/local/download-url"
    with pytest.raises(Refused) as refused:
        place.call("POST", path, url="https://x.example/a.img", content="import", filename="a.img")
    assert refused.value.errors == {"filename": "invalid filename or wrong extension"}


def test_a_vm_is_imported_templated_cloned_and_grown(place: Place) -> None:
    place.template()
    template = place.states()["100.json"]
    assert place.config(100)["scsi0"] == "local-lvm:base-100-disk-0,size=3G"
    assert place.task("POST", "/nodes/pve/qemu/100/clone", newid=101, name="one") == "OK"
    assert place.task("POST", "/nodes/pve/qemu/100/clone", newid=102, name="two", full=1, storage="local-lvm") == "OK"
    one, two = place.config(101), place.config(102)
    assert one["net0"] != two["net0"]
    assert one["ide2"] == "local-lvm:vm-101-cloudinit,media=cdrom"
    assert place.task("PUT", "/nodes/pve/qemu/101/resize", disk="scsi0", size="8G") == "OK"
    assert (
        place.task("PUT", "/nodes/pve/qemu/101/resize", disk="scsi0", size="4G") == "shrinking disks is not supported"
    )
    assert place.config(101)["scsi0"].endswith("size=8G")
    for vmid in (101, 102):
        assert place.task("DELETE", f"/nodes/pve/qemu/{vmid}") == "OK"
    assert place.states() == {"100.json": template}
    volumes = place.call("GET", "/nodes/pve/storage/local-lvm/content")
    assert sorted(each["volid"] for each in volumes) == ["local-lvm:base-100-disk-0", "local-lvm:vm-100-cloudinit"]


def test_what_the_schema_refuses_is_refused(place: Place) -> None:
    with pytest.raises(Refused, match="not defined in schema"):
        place.vm(memroy=1)
    with pytest.raises(Refused, match="invalid format"):
        place.vm(ipconfig0="ip=10.0.0.5")
    with pytest.raises(Refused, match="special syntax"):
        place.vm(scsi0="local-lvm:8,import-from=local:import/debian.qcow2")
    with pytest.raises(Refused, match="invalid bootorder: device 'scsi9'"):
        place.vm(boot="order=scsi9")
    with pytest.raises(Refused, match="SSH public key validation error"):
        place.vm(sshkeys="no%20key")
    with pytest.raises(Refused, match="filesystem paths"):
        place.vm(scsi0="local-lvm:0,import-from=/root/a.qcow2")
    assert place.states() == {}


def test_a_changed_configuration_is_written_as_proxmox_writes_it(place: Place) -> None:
    place.template()
    place.task("POST", "/nodes/pve/qemu/100/clone", newid=101)
    path = "/nodes/pve/qemu/101/config"
    place.call("PUT", path, cores=4, tags="Glasslab,b;a", description="Built by\nx\n", net0="virtio,bridge=vmbr1")
    place.call("PUT", path, scsi1="local-lvm:2")
    config = place.config(101)
    assert (config["cores"], config["tags"], config["description"]) == (4, "a;b;glasslab", "Built by\nx")
    assert config["net0"].startswith("virtio=BC:24:11:")
    assert config["scsi1"] == "local-lvm:vm-101-disk-1,size=2G"
    place.call("PUT", path, delete="scsi1")
    assert place.config(101)["unused0"] == "local-lvm:vm-101-disk-1"
    place.call("PUT", path, delete="unused0")
    assert [volume["volid"] for volume in json.loads(place.states()["101.json"])["volumes"]] == [
        "local-lvm:vm-101-cloudinit",
        "local-lvm:vm-101-disk-0",
    ]
    with pytest.raises(Refused, match="file change by other user"):
        place.call("PUT", path, cores=1, digest="0" * 40)


def test_power_snapshots_and_the_agents_answer(place: Place) -> None:
    place.template()
    place.task("POST", "/nodes/pve/qemu/100/clone", newid=101)
    place.call("PUT", "/nodes/pve/qemu/101/config", agent="enabled=1", ipconfig0="ip=10.10.10.9/24,gw=10.10.10.1")
    assert place.task("POST", "/nodes/pve/qemu/101/snapshot", snapname="clean") == "OK"
    assert place.task("POST", "/nodes/pve/qemu/101/status/start") == "OK"
    answer = place.call("GET", "/nodes/pve/qemu/101/agent/network-get-interfaces")["result"][0]
    assert answer["ip-addresses"][0]["ip-address"] == "10.10.10.9"
    with pytest.raises(Refused, match="VM 101 is running - destroy failed"):
        place.call("DELETE", "/nodes/pve/qemu/101")
    assert place.task("POST", "/nodes/pve/qemu/101/snapshot", snapname="live", vmstate=1) == "OK"
    place.call("PUT", "/nodes/pve/qemu/101/config", description="damaged")
    assert place.task("POST", "/nodes/pve/qemu/101/snapshot/clean/rollback") == "OK"
    assert place.call("GET", "/nodes/pve/qemu/101/status/current")["status"] == "stopped"
    assert place.task("POST", "/nodes/pve/qemu/101/snapshot/live/rollback") == "OK"
    assert place.call("GET", "/nodes/pve/qemu/101/status/current")["status"] == "running"


def test_an_iso_in_a_drive_is_nobodys_and_stays(place: Place) -> None:
    (place.double.images / "netinst.iso").write_bytes(b"an installer")
    given = {"url": "https://x.example/netinst.iso", "content": "iso", "filename": "netinst.iso"}
    assert place.task("POST", "/nodes/pve/storage/local/download-url", **given) == "OK"
    place.image()
    place.vm(100, ide2="local:iso/netinst.iso,media=cdrom")
    place.call("PUT", "/nodes/pve/qemu/100/config", delete="ide2")
    assert "unused0" not in place.config(100)
    place.call("PUT", "/nodes/pve/qemu/100/config", ide2="local:iso/netinst.iso,media=cdrom")
    assert place.task("DELETE", "/nodes/pve/qemu/100", purge=1) == "OK"
    listed = place.call("GET", "/nodes/pve/storage/local/content", content="iso")
    assert [(each["volid"], each["size"]) for each in listed] == [("local:iso/netinst.iso", len("an installer"))]


def test_a_vm_on_a_bridge_that_is_not_there_does_not_start(place: Place) -> None:
    place.template()
    place.task("POST", "/nodes/pve/qemu/100/clone", newid=101)
    place.call("PUT", "/nodes/pve/qemu/101/config", net0="virtio,bridge=vmbr9")
    assert place.task("POST", "/nodes/pve/qemu/101/status/start") == "bridge 'vmbr9' does not exist"
    assert place.call("GET", "/nodes/pve/qemu/101/status/current")["status"] == "stopped"


def test_a_disk_moves_to_another_storage(tmp_path: Path) -> None:
    other = {"type": "lvmthin", "content": "images", "vgname": "b", "thinpool": "t"}
    with running(tmp_path, seed={"storages": {"other": other}}) as place:
        place.image()
        place.vm(100)
        assert place.task("POST", "/nodes/pve/qemu/100/move_disk", disk="scsi0", storage="other", delete=1) == "OK"
        assert place.config(100)["scsi0"] == "other:vm-100-disk-0,size=3G"
        with pytest.raises(Refused, match="does not support vm images"):
            place.call("POST", "/nodes/pve/qemu/100/move_disk", disk="scsi0", storage="local")


def test_foreign_machines_stay_the_same_bytes_whatever_is_done_beside_them(tmp_path: Path) -> None:
    with running(tmp_path, seed=FOREIGN) as place:
        before = place.states()
        assert sorted(before) == ["110.json", "111.json", "112.json"]
        assert place.call("GET", "/cluster/nextid") == "100"
        place.template()
        assert place.task("POST", "/nodes/pve/qemu/100/clone", newid=101, name="gltest-agent") == "OK"
        for vmid in (101, 100):
            assert place.task("DELETE", f"/nodes/pve/qemu/{vmid}", purge=1) == "OK"
        assert place.states() == before
        place.call("PUT", "/nodes/pve/qemu/110/config", description="touched")
        assert [name for name, state in place.states().items() if state != before[name]] == ["110.json"]


@pytest.mark.parametrize(("version", "imports"), [("8.2.4", False), ("8.4.1", True), ("9.0.10", True)])
def test_the_version_is_what_it_was_told_and_decides_what_there_is(tmp_path: Path, version: str, imports: bool) -> None:
    with running(tmp_path, "--version", version) as place:
        assert place.call("GET", "/version")["version"] == version
        assert place.call("GET", "/nodes/pve/status")["pveversion"].startswith(f"pve-manager/{version}/")
        content = place.call("GET", "/nodes/pve/storage/local/status")["content"].split(",")
        assert ("import" in content) is imports
        old = version < "9"
        assert ("VM.Monitor" in place.call("GET", "/access/roles/PVEVMAdmin")) is old
        with pytest.raises(Refused, match="invalid privilege"):
            place.call("POST", "/access/roles", roleid="R", privs="VM.GuestAgent.Audit" if old else "VM.Monitor")


def test_the_node_is_as_large_and_as_able_as_it_was_told(tmp_path: Path) -> None:
    seed = {"hardware": {"memory": 4 << 30, "flags": "fpu sse2"}, "interfaces": {"pve": {"vmbr1": None}}}
    with running(tmp_path, seed=seed) as place:
        status = place.call("GET", "/nodes/pve/status")
        assert (status["memory"]["total"], status["cpuinfo"]["flags"]) == (4 << 30, "fpu sse2")
        listed = place.call("GET", "/nodes/pve/network", type="bridge")
        assert [each["iface"] for each in listed] == ["vmbr0", "vmbr2"]


def test_a_bridge_is_made_and_taken_away(place: Place) -> None:
    place.call("POST", "/nodes/pve/network", iface="vmbr7", type="bridge", cidr="10.7.0.1/24", autostart=1)
    assert place.task("PUT", "/nodes/pve/network") == "OK"
    assert place.call("GET", "/nodes/pve/network/vmbr7")["active"] == 1
    place.call("DELETE", "/nodes/pve/network/vmbr7")
    with pytest.raises(Refused, match="interface does not exist"):
        place.call("GET", "/nodes/pve/network/vmbr7")


def test_requests_are_logged_without_secrets(place: Place) -> None:
    place.call("POST", "/access/users", userid="u@pve", password="very secret word")
    with pytest.raises(Refused):
        place.call("GET", "/version", "nobody@pve!x=1")
    last, before = place.log()[-1], place.log()[-2]
    assert (last["status"], last["user"]) == (401, None)
    assert before["parameters"] == {"userid": "u@pve", "password": "***"}
    assert (before["method"], before["path"], before["user"]) == ("POST", "/access/users", "glasslab@pve!lab")
    assert [entry["n"] for entry in place.log()] == list(range(1, before["n"] + 2))
    assert "very secret word" not in (place.state / "requests.jsonl").read_text()


def program(*words: str, **more: Any) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root / "molecule" / "proxmox")}
    argv = [sys.executable, "-m", "double", *words]
    return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_the_program_says_on_one_line_that_it_is_ready_and_ends_when_told(tmp_path: Path) -> None:
    with program("--port", "0", "--state", str(tmp_path)) as child:
        assert child.stdout is not None
        ready = json.loads(child.stdout.readline())
        assert ready["url"] == f"https://127.0.0.1:{ready['port']}"
        assert Path(ready["ca"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
        assert {"user", "id", "secret"} == set(ready["token"])
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
        assert child.stdout.read() == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "SEED"], "unknown key 'vmz'"),
        (["--token", "me"], "--token me: give USER@REALM!ID, or none"),
        (["--seed", "MISSING"], "No such file"),
    ],
)
def test_a_wrong_start_is_one_line_and_no_traceback(tmp_path: Path, words: list[str], said: str) -> None:
    seed = tmp_path / "SEED"
    seed.write_text('{"vmz": []}')
    words = [str(tmp_path / word) if word.isupper() else word for word in words]
    with program("--port", "0", "--state", str(tmp_path / "state"), *words) as child:
        _, errors = child.communicate(timeout=20)
    assert child.returncode == 2
    assert said in errors
    assert len(errors.splitlines()) == 1
