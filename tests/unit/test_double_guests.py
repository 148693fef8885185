"""The test double's real guests, as far as they need no guest: seeds, command lines, images, what a monitor says."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.append(str(Path(__file__).resolve().parents[2] / "molecule" / "proxmox"))

from double import cloudinit, commandline, image, qmp
from double.commandline import Drive, NotEmulated, Place
from double.guests import EmulatedDouble

CONFIG: dict[str, Any] = {
    "name": "lab-agent",
    "memory": "2048",
    "cores": 2,
    "scsihw": "virtio-scsi-single",
    "scsi0": "local-lvm:vm-101-disk-0,size=8G",
    "ide2": "local-lvm:vm-101-cloudinit,media=cdrom",
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr1",
    "boot": "order=scsi0",
    "agent": "enabled=1",
    "ciuser": "lab",
    "sshkeys": "ssh-ed25519%20AAAA%20one%0Assh-ed25519%20BBBB%20two%0A",
    "ipconfig0": "ip=10.10.10.10/24,gw=10.10.10.1",
    "nameserver": "203.0.113.53",
    "searchdomain": "lab.example",
}


def line(config: dict[str, Any], namespace: str | None = None) -> str:
    drives = [
        Drive(key, Path(f"/files/{key}"), cdrom)
        for key, _, cdrom in commandline.disks_of(config)
        if not key.startswith("efidisk")
    ]
    place = Place(Path("/guests/101"), 20101, namespace)
    return " ".join(commandline.arguments(101, "lab-agent", config, drives, place))


def test_a_seed_holds_what_the_configuration_says() -> None:
    files = cloudinit.files("lab-agent", CONFIG)
    assert files["user-data"].startswith("#cloud-config\n")
    user = yaml.safe_load(files["user-data"])
    assert (user["hostname"], user["fqdn"], user["user"]) == ("lab-agent", "lab-agent.lab.example", "lab")
    assert user["ssh_authorized_keys"] == ["ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two"]
    assert user["package_upgrade"] is True
    network = yaml.safe_load(files["network-config"])
    assert network["config"] == [
        {
            "type": "physical",
            "name": "eth0",
            "mac_address": "bc:24:11:00:00:01",
            "subnets": [
                {"type": "static", "address": "10.10.10.10", "netmask": "255.255.255.0", "gateway": "10.10.10.1"}
            ],
        },
        {"type": "nameserver", "address": ["203.0.113.53"], "search": ["lab.example"]},
    ]


def test_cloud_init_runs_anew_when_the_seed_changes_and_only_then() -> None:
    first = cloudinit.files("lab-agent", CONFIG)["meta-data"]
    assert cloudinit.files("lab-agent", {**CONFIG, "cores": 4})["meta-data"] == first
    assert cloudinit.files("lab-agent", {**CONFIG, "ciuser": "other"})["meta-data"] != first
    assert cloudinit.files("another", CONFIG)["meta-data"] != first


def test_no_upgrade_and_an_address_by_dhcp_when_asked_for() -> None:
    config = {**CONFIG, "ciupgrade": 0, "ipconfig0": "ip=dhcp"}
    assert "package_upgrade" not in cloudinit.user_data("a", config)
    assert cloudinit.network_config(config)["config"][0]["subnets"] == [{"type": "dhcp4"}]


def test_a_guest_has_the_devices_of_its_configuration() -> None:
    said = line(CONFIG)
    assert "-smp 2 -m 2048" in said
    assert "file=/files/scsi0,if=none,id=drive-scsi0,format=qcow2" in said
    assert "scsi-hd,bus=scsihw0.0,scsi-id=0,drive=drive-scsi0,id=scsi0,bootindex=100" in said
    assert "ide-cd,bus=ide.1,unit=0,drive=drive-ide2" in said
    assert "mac=BC:24:11:00:00:01" in said
    assert "org.qemu.guest_agent.0" in said
    assert "guest_agent" not in line({**CONFIG, "agent": "0"})


def test_a_guest_reaches_nothing_and_only_its_ssh_is_reached() -> None:
    said = line(CONFIG)
    assert "user,id=net0,restrict=on,ipv6=off,net=10.10.10.0/24,host=10.10.10.1," in said
    assert "hostfwd=tcp:127.0.0.1:20101-10.10.10.10:22" in said
    second = line({**CONFIG, "net1": "virtio=BC:24:11:00:00:02,bridge=vmbr0"})
    assert second.count("restrict=on") == second.count("user,id=net") == 2
    assert second.count("hostfwd") == 1


def test_a_guest_of_a_lab_has_a_tap_there_when_it_is_on_the_guests_bridge() -> None:
    said = line(CONFIG, "lab1-pve")
    assert "tap,id=net0,ifname=tap101i0,script=/guests/101/plug,downscript=no" in said
    assert "user," not in said
    other = {**CONFIG, "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}
    assert "tap," not in line(other, "lab1-pve")
    script = commandline.plug_script(101, "BC:24:11:00:00:01")
    assert "address fe:24:11:00:00:01" in script
    assert script.index("disable_ipv6") < script.index("master vmbr1 up")


def test_what_is_not_emulated_is_said() -> None:
    with pytest.raises(NotEmulated, match="bios=ovmf"):
        line({**CONFIG, "bios": "ovmf"})
    with pytest.raises(NotEmulated, match="drive unknown is not emulated"):
        commandline.arguments(1, "a", CONFIG, [Drive("unknown", Path("/x"), False)], Place(Path("/g"), 1, None))


def test_the_image_has_a_partition_table_that_boots() -> None:
    table = image._partition(6 * 2048 * 1024)
    assert len(table) == 512 - 446
    active, kind = table[0], table[4]
    first, length = struct.unpack("<II", table[8:16])
    assert (active, kind, first, first + length) == (0x80, 0x83, 2048, 6 * 2048 * 1024)
    assert table[-2:] == b"\x55\xaa"


def test_another_recipe_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.path()
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "one-more"))
    assert image.path() != before
    assert before.name.startswith("image-")


def served(folder: Path, answer: Callable[[dict[str, Any]], list[dict[str, Any]]], use: Any, hello: bytes = b"") -> Any:
    """What `use(socket)` returns while somebody answers there."""
    socket = folder / "s"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        while text := (await reader.readline()).lstrip(b"\xff"):
            for each in answer(json.loads(text)):
                writer.write(json.dumps(each).encode() + b"\n")
        writer.close()

    async def both() -> Any:
        server = await asyncio.start_unix_server(talk, str(socket))
        async with server:
            task: Awaitable[Any] = use(socket)
            return await task

    return asyncio.run(both())


def test_a_monitors_events_are_no_answers(tmp_path: Path) -> None:
    def answer(call: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"event": "RESUME"}, {"return": {"did": call["execute"]}}]

    hello = b'{"QMP": {}}\n'
    assert served(tmp_path, answer, lambda s: qmp.command(s, "stop"), hello) == {"did": "stop"}


def test_a_monitors_refusal_and_nobody_there_are_told(tmp_path: Path) -> None:
    def refuse(call: dict[str, Any]) -> list[dict[str, Any]]:
        good = call["execute"] == "qmp_capabilities"
        return [{"return": {}} if good else {"error": {"desc": "Device not found"}}]

    with pytest.raises(qmp.NoAnswer, match="Device not found"):
        served(tmp_path, refuse, lambda s: qmp.command(s, "block_resize"), b'{"QMP": {}}\n')
    with pytest.raises(qmp.NoAnswer, match="no monitor"):
        asyncio.run(qmp.command(tmp_path / "nobody", "stop"))


def test_what_an_earlier_caller_left_is_not_taken_for_the_agents_answer(tmp_path: Path) -> None:
    def answer(call: dict[str, Any]) -> list[dict[str, Any]]:
        if call["execute"] == "guest-sync-delimited":
            return [{"return": "somebody else's"}, {"return": call["arguments"]["id"]}]
        return [{"return": ["eth0"]}]

    assert served(tmp_path, answer, lambda s: qmp.agent(s, "guest-network-get-interfaces")) == ["eth0"]


def test_an_agent_that_says_nothing_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    with pytest.raises(qmp.NoAnswer, match="got timeout"):
        served(tmp_path, lambda call: [], lambda s: qmp.agent(s, "guest-ping", timeout=0.1))


#: Every method of fakepve, or of a room further back, that a room of the double stands in front of on purpose.
REPLACED = frozenset(
    """_agent_call _answer _apply_config _authenticate _build_app _decode_content _do_start _download_url _node_stats
    _permissions _powerdown _qm_alloc _qm_clone _qm_create _qm_free _qm_new_drive _qm_rollback _qm_snapshot
    _qm_snapshot_delete _routes_access after_task allowed check_permissions grow_image import_image start stop
    store_file task""".split()  # noqa: SIM905 - thirty names read better as words
)


def test_no_room_of_the_double_replaces_a_method_by_accident() -> None:
    order = EmulatedDouble.__mro__
    found = {
        name
        for place, kind in enumerate(order)
        if kind.__module__.startswith("double")
        for name in vars(kind)
        if not name.startswith("__") and any(name in vars(other) for other in order[place + 1 :])
    }
    assert found - {"directory", "version"} == REPLACED
