"""The test double's guests, with programs that only say they are QEMU: what the API does happens to them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doubleplace import Place, Refused, running

#: Writes down what it is told, and answers like a monitor; `dead` in the VM's name: it ends at once.
QEMU = """#!PYTHON
import json, os, socket, sys
words = sys.argv[1:]
if "dead" in " ".join(words):
    sys.exit("qemu: cannot do that")
chardev = next(word for word in words if "id=qmp" in word)
path = next(part[5:] for part in chardev.split(",") if part.startswith("path="))
folder = os.path.dirname(path)
open(os.path.join(folder, "argv"), "w").write(json.dumps(words))
if os.path.exists(path):
    os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
while True:
    client, _ = server.accept()
    lines = client.makefile("rw")
    print(json.dumps(dict(QMP=dict())), file=lines, flush=True)
    for line in lines:
        call = json.loads(line)
        with open(os.path.join(folder, "calls"), "a") as calls:
            calls.write(json.dumps(call) + "\\n")
        print(json.dumps({"return": dict()}), file=lines, flush=True)
        if call["execute"] == "system_powerdown":
            sys.exit(0)
"""
#: An image is a text file of what was done to it.
QEMU_IMG = """#!/bin/sh
verb=$1; shift
for word; do case $word in */*) [ "$first" ] || first=$word; last=$word;; esac; done
[ "$verb" = convert ] && cp "$first" "$last"
echo "$verb $*" >>"$last"
"""
XORRISO = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo seed >"$2"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("qemu-system-x86_64", QEMU), ("qemu-img", QEMU_IMG), ("xorriso", XORRISO)):
        (programs / name).write_text(text.replace("PYTHON", sys.executable))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with running(tmp_path, "--guests", "qemu") as found:
        yield found


def until(met: Callable[[], Any]) -> Any:
    """What `met` returns once it is something."""
    for _ in range(200):
        if found := met():
            return found
        time.sleep(0.05)
    raise AssertionError("not within 10 seconds")


def ended(place: Place, method: str, path: str, **given: Any) -> str:
    """The exit status of a task that runs behind its call's answer."""
    upid = place.call(method, path, **given)
    return str(until(lambda: place.call("GET", f"/nodes/pve/tasks/{upid}/status").get("exitstatus")))


def template_and_clone(place: Place, **config: Any) -> None:
    (place.double.images / "debian.qcow2").write_bytes(b"QFI\xfb" + bytes(20) + (3 << 30).to_bytes(8, "big"))
    url = {"url": "https://x.example/debian.qcow2", "content": "import", "filename": "debian.qcow2"}
    assert ended(place, "POST", "/nodes/pve/storage/local/download-url", **url) == "OK"
    given = {"scsi0": "local-lvm:0,import-from=local:import/debian.qcow2", "net0": "virtio,bridge=vmbr1"}
    given |= {"ide2": "local-lvm:cloudinit", "name": "template", **config}
    assert ended(place, "POST", "/nodes/pve/qemu", vmid=100, **given) == "OK"
    assert ended(place, "POST", "/nodes/pve/qemu/100/template") == "OK"
    assert ended(place, "POST", "/nodes/pve/qemu/100/clone", newid=101, name="one", full=1) == "OK"


def power(place: Place, verb: str, vmid: int = 101, **given: Any) -> str:
    return ended(place, "POST", f"/nodes/pve/qemu/{vmid}/status/{verb}", **given)


def status(place: Place, vmid: int = 101) -> str:
    return str(place.call("GET", f"/nodes/pve/qemu/{vmid}/status/current")["status"])


def disks(place: Place) -> list[str]:
    return sorted(file.name for file in (place.state / "guests" / "disks").iterdir())


def disk_of(place: Place, vmid: int) -> str:
    """What was done to a VM's first disk."""
    volumes = json.loads(place.states()[f"{vmid}.json"])["volumes"]
    return Path(next(each["file"] for each in volumes if "disk-0" in each["volid"])).read_text()


def calls(place: Place, vmid: int = 101) -> list[str]:
    """What the monitor was told, without greetings and looks."""
    lines = (place.state / "guests" / str(vmid) / "calls").read_text().splitlines()
    said = [json.loads(line)["execute"] for line in lines]
    return [call for call in said if call not in ("qmp_capabilities", "query-status")]


def test_a_clone_is_an_overlay_that_outlives_its_template(place: Place) -> None:
    template_and_clone(place)
    assert "create -q -f qcow2 -F" in disk_of(place, 101)
    before = disks(place)
    assert ended(place, "DELETE", "/nodes/pve/qemu/100") == "OK"
    assert disks(place) == before
    assert power(place, "start") == "OK"
    assert power(place, "stop") == "OK"
    assert ended(place, "DELETE", "/nodes/pve/qemu/101") == "OK"
    assert disks(place) == []


def test_a_guest_runs_with_its_seed_and_ends_by_its_button(place: Place) -> None:
    template_and_clone(place)
    place.call("PUT", "/nodes/pve/qemu/101/config", ciuser="lab", ipconfig0="ip=10.10.10.9/24,gw=10.10.10.1")
    assert power(place, "start") == "OK"
    argv = json.loads((place.state / "guests" / "101" / "argv").read_text())
    assert any("hostfwd=tcp:127.0.0.1:20101-10.10.10.9:22" in word for word in argv)
    assert "user: lab" in (place.state / "guests" / "101" / "seed" / "user-data").read_text()
    reached = json.loads((place.state / "guests" / "101" / "guest.json").read_text())
    assert reached["ssh_port"] == 20101
    assert power(place, "shutdown") == "OK"
    assert (status(place), calls(place)) == ("stopped", ["system_powerdown"])
    assert not Path(f"/proc/{reached['pid']}").exists()


def test_a_guest_that_powers_itself_off_is_a_vm_that_is_stopped(place: Place) -> None:
    template_and_clone(place)
    power(place, "start")
    os.kill(json.loads((place.state / "guests" / "101" / "guest.json").read_text())["pid"], 15)
    until(lambda: status(place) == "stopped")
    assert json.loads(place.states()["101.json"])["status"] == "stopped"
    assert power(place, "start") == "OK"


def test_a_guest_that_does_not_start_is_a_task_that_fails_with_its_last_words(place: Place) -> None:
    template_and_clone(place)
    place.call("PUT", "/nodes/pve/qemu/101/config", name="dead")
    assert power(place, "start") == "start failed: QEMU exited with code 1: qemu: cannot do that"
    assert status(place) == "stopped"
    place.call("PUT", "/nodes/pve/qemu/101/config", name="one", bios="ovmf")
    assert "bios=ovmf is not emulated" in power(place, "start")


def test_snapshots_are_of_the_disk_and_a_rollback_ends_the_guest(place: Place) -> None:
    template_and_clone(place)
    snapshot = "/nodes/pve/qemu/101/snapshot"
    assert ended(place, "POST", snapshot, snapname="still") == "OK"
    power(place, "start")
    assert ended(place, "POST", snapshot, snapname="live") == "OK"
    assert calls(place) == ["blockdev-snapshot-internal-sync"]
    with pytest.raises(Refused, match="without their memory"):
        place.call("POST", snapshot, snapname="memory", vmstate=1)
    assert ended(place, "POST", f"{snapshot}/still/rollback") == "OK"
    assert status(place) == "stopped"
    assert [line.split()[2:4] for line in disk_of(place, 101).splitlines() if line.startswith("snapshot")] == [
        ["-c", "still"],
        ["-a", "still"],
    ]
    assert ended(place, "DELETE", f"{snapshot}/still") == "OK"
    assert "snapshot -q -d still" in disk_of(place, 101)


def test_a_disk_grows_under_a_running_guest_and_under_one_that_is_off(place: Place) -> None:
    template_and_clone(place)
    assert ended(place, "PUT", "/nodes/pve/qemu/101/resize", disk="scsi0", size="4G") == "OK"
    assert disk_of(place, 101).splitlines()[-1].startswith("resize")
    power(place, "start")
    assert ended(place, "PUT", "/nodes/pve/qemu/101/resize", disk="scsi0", size="+1G") == "OK"
    assert calls(place) == ["block_resize"]
    assert place.config(101)["scsi0"].endswith("size=5G")


def test_a_running_vm_is_not_cloned(place: Place) -> None:
    template_and_clone(place)
    power(place, "start")
    with pytest.raises(Refused, match="clones no VM that runs: 101"):
        place.call("POST", "/nodes/pve/qemu/101/clone", newid=102)
    power(place, "stop")
    assert ended(place, "POST", "/nodes/pve/qemu/101/clone", newid=102) == "OK"
    assert "convert" in disk_of(place, 102)


def test_no_agent_in_the_guest_is_proxmoxs_own_refusal(place: Place) -> None:
    template_and_clone(place, agent="1")
    power(place, "start")
    with pytest.raises(Refused, match=r"^500 QEMU guest agent is not running"):
        place.call("GET", "/nodes/pve/qemu/101/agent/network-get-interfaces")


def test_guests_end_with_the_double(tmp_path: Path, place: Place) -> None:
    template_and_clone(place)
    power(place, "start")
    pid = json.loads((place.state / "guests" / "101" / "guest.json").read_text())["pid"]
    assert Path(f"/proc/{pid}").exists()
    place.stop()
    assert not Path(f"/proc/{pid}").exists()
