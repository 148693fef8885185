"""The QEMU command line of a VM's configuration: no I/O."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakepve.qemu import drives_of

from .bridges import bridge_of, mac_of
from .cloudinit import options_of

Values = dict[str, Any]
#: Slower than the real thing by far; a model without AVX is quicker to emulate than one with.
CPU = "Nehalem"
BUS = re.compile(r"([a-z]+)(\d+)")


class NotEmulated(Exception):
    """The configuration asks for something that the double's guests do not have."""


@dataclass(frozen=True)
class Drive:
    """A drive of the configuration and the file behind it."""

    key: str
    file: Path
    cdrom: bool

    @property
    def node(self) -> str:
        """Its name in QEMU, as Proxmox forms it."""
        return f"drive-{self.key}"


@dataclass(frozen=True)
class Place:
    """Where a guest's sockets and logs are, and how it is reached."""

    folder: Path
    ssh_port: int
    lab_namespace: str | None

    def socket(self, name: str) -> Path:
        """qmp, qga or serial0."""
        return self.folder / f"{name}.sock"


def boot_indices(config: Values) -> dict[str, int]:
    """Device -> place in the boot order."""
    order = str(config.get("boot") or "").removeprefix("order=").split(";")
    return {device: index for index, device in enumerate(filter(None, order), 100)}


def on_lab_bridge(config: Values, place: Place) -> bool:
    """Whether the first network device belongs on the lab's bridge for guests."""
    return place.lab_namespace is not None and bridge_of(str(config.get("net0", "")))[0] == "vmbr1"


def arguments(vmid: int, name: str, config: Values, drives: list[Drive], place: Place) -> list[str]:
    """Everything after the program's name."""
    machine = "q35" if "q35" in str(config.get("machine", "")) else "pc"
    if config.get("bios") == "ovmf":
        raise NotEmulated("the double's guests start by BIOS only: bios=ovmf is not emulated")
    memory = str(config.get("memory", 512)).split("=")[-1]
    cores = int(config.get("cores", 1)) * int(config.get("sockets", 1))
    argv = ["-name", f"vm{vmid}-{name}", "-machine", machine, "-accel", "tcg,thread=multi,tb-size=512"]
    argv += ["-cpu", CPU, "-smp", str(cores), "-m", memory, "-nodefaults", "-display", "none", "-vga", "none"]
    argv += ["-chardev", f"socket,id=qmp,path={place.socket('qmp')},server=on,wait=off", "-mon", "qmp,mode=control"]
    log = place.folder / "serial.log"
    console = f"socket,id=serial0,path={place.socket('serial0')},server=on,wait=off,logfile={log},logappend=on"
    argv += ["-chardev", console, "-device", "isa-serial,chardev=serial0"]
    argv += ["-device", "virtio-rng-pci"]
    if re.match(r"(?:enabled=)?1\b", str(config.get("agent", ""))):
        argv += ["-device", "virtio-serial-pci,id=qga", "-chardev"]
        argv += [f"socket,id=qga0,path={place.socket('qga')},server=on,wait=off", "-device"]
        argv += ["virtserialport,bus=qga.0,chardev=qga0,name=org.qemu.guest_agent.0"]
    argv += _disks(config, drives, machine)
    for number in range(8):
        if f"net{number}" in config:
            argv += _network(number, vmid, config, place)
    return argv


def _disks(config: Values, drives: list[Drive], machine: str) -> list[str]:
    argv: list[str] = []
    if any(drive.key.startswith("scsi") for drive in drives):
        controller = "virtio-scsi-pci" if "virtio" in str(config.get("scsihw", "")) else "lsi53c895a"
        argv += ["-device", f"{controller},id=scsihw0"]
    if any(drive.key.startswith("sata") for drive in drives):
        argv += ["-device", "ahci,id=ahci0"]
    boot = boot_indices(config)
    for drive in drives:
        found = BUS.fullmatch(drive.key)
        if found is None:
            raise NotEmulated(f"drive {drive.key} is not emulated")
        kind, number = found[1], int(found[2])
        what = "cd" if drive.cdrom else "hd"
        device = {
            "scsi": f"scsi-{what},bus=scsihw0.0,scsi-id={number}",
            "virtio": "virtio-blk-pci",
            "sata": f"ide-{what},bus=ahci0.{number}",
            "ide": f"ide-{what},bus=ide.{number // 2},unit={number % 2}"
            if machine == "pc"
            else f"ide-{what},bus=ide.{number}",
        }[kind]
        index = f",bootindex={boot[drive.key]}" if drive.key in boot else ""
        options = "media=cdrom,readonly=on,format=raw" if drive.cdrom else "format=qcow2,cache=unsafe,discard=unmap"
        argv += ["-drive", f"file={drive.file},if=none,id={drive.node},{options}"]
        argv += ["-device", f"{device},drive={drive.node},id={drive.key}{index}"]
    return argv


def _network(number: int, vmid: int, config: Values, place: Place) -> list[str]:
    mac = mac_of(str(config[f"net{number}"]))
    if number == 0 and on_lab_bridge(config, place):
        backend = f"tap,id=net0,ifname=tap{vmid}i0,script={place.folder / 'plug'},downscript=no"
    else:
        backend = f"user,id=net{number},restrict=on,ipv6=off"
        if number == 0:
            backend += _user_network(config, place.ssh_port)
    return ["-netdev", backend, "-device", f"virtio-net-pci,netdev=net{number},id=nic{number},mac={mac}"]


def _user_network(config: Values, port: int) -> str:
    """QEMU's own network around the address that the guest was told to have; SSH is forwarded, nothing gets out."""
    given = options_of(str(config.get("ipconfig0") or ""))
    if given.get("ip") in (None, "", "dhcp"):
        return f",hostfwd=tcp:127.0.0.1:{port}-:22"
    address = ipaddress.IPv4Interface(given["ip"])
    gateway = given.get("gw") or str(next(host for host in address.network.hosts() if host != address.ip))
    return f",net={address.network},host={gateway},hostfwd=tcp:127.0.0.1:{port}-{address.ip}:22"


def plug_script(vmid: int, mac: str) -> str:
    """What QEMU runs for a new tap: into the bridge, up, without an address of its own, as Proxmox VE does it.

    A bridge takes the lowest hardware address of its ports: the tap's is high, so that the bridge keeps its own.
    """
    high = "fe:" + mac.lower().split(":", 1)[1]
    return (
        "#!/bin/sh -e\n"
        f'[ "$1" = tap{vmid}i0 ]\n'
        'echo 1 >"/proc/sys/net/ipv6/conf/$1/disable_ipv6"\n'
        f'ip link set "$1" address {high}\n'
        'ip link set "$1" master vmbr1 up\n'
    )


def disks_of(config: Values) -> list[tuple[str, str, bool]]:
    """(key, volume, whether it is a CD-ROM) of each drive with something in it."""
    found = [(key, volume, props.get("media") == "cdrom") for key, volume, props in drives_of(config)]
    return [each for each in found if each[1] not in ("none", "cdrom")]
