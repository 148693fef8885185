"""The seed that a guest's cloud-init reads, made from the VM's configuration as Proxmox VE makes it."""

from __future__ import annotations

import hashlib
import ipaddress
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from .bridges import mac_of

Values = dict[str, Any]


def options_of(text: str) -> dict[str, str]:
    """'ip=10.0.0.2/24,gw=10.0.0.1' as a dictionary."""
    return dict(part.partition("=")[::2] for part in text.split(",") if "=" in part)


def user_data(name: str, config: Values) -> Values:
    """Host name, user and keys."""
    domain = str(config.get("searchdomain") or "").split(" ")[0]
    keys = urllib.parse.unquote(str(config.get("sshkeys") or "")).splitlines()
    made: Values = {"hostname": name, "manage_etc_hosts": True, "fqdn": f"{name}.{domain}" if domain else name}
    if config.get("ciuser"):
        made["user"] = config["ciuser"]
    if config.get("ciuser") == "root":
        made["disable_root"] = False
    if config.get("cipassword"):
        made["password"] = config["cipassword"]
    made["ssh_authorized_keys"] = [key.strip() for key in keys if key.strip()]
    made["chpasswd"] = {"expire": False}
    made["users"] = ["default"]
    if str(config.get("ciupgrade", 1)) not in ("0", "False"):
        made["package_upgrade"] = True
    return made


def network_config(config: Values) -> Values:
    """Each network device by its hardware address; resolver and search domain."""
    devices: list[Values] = []
    for number in range(32):
        if f"net{number}" not in config:
            continue
        given = options_of(str(config.get(f"ipconfig{number}") or ""))
        subnets: list[Values] = []
        if given.get("ip") == "dhcp":
            subnets.append({"type": "dhcp4"})
        elif given.get("ip"):
            address = ipaddress.IPv4Interface(given["ip"])
            static = {"type": "static", "address": str(address.ip), "netmask": str(address.netmask)}
            subnets.append({**static, **({"gateway": given["gw"]} if given.get("gw") else {})})
        device = {"type": "physical", "name": f"eth{number}", "subnets": subnets}
        mac = mac_of(str(config[f"net{number}"]))
        devices.append({**device, "mac_address": mac.lower()} if mac else device)
    resolver: Values = {"type": "nameserver", "address": str(config.get("nameserver") or "").split()}
    if config.get("searchdomain"):
        resolver["search"] = str(config["searchdomain"]).split()
    return {"version": 1, "config": [*devices, *([resolver] if resolver["address"] or len(resolver) > 2 else [])]}


def files(name: str, config: Values) -> dict[str, str]:
    """The files of a NoCloud seed; the instance's id changes with them, so that cloud-init runs anew."""
    user = "#cloud-config\n" + yaml.safe_dump(user_data(name, config), sort_keys=False)
    network = yaml.safe_dump(network_config(config), sort_keys=False)
    identity = hashlib.sha1(f"{user}{network}".encode(), usedforsecurity=False).hexdigest()
    return {"user-data": user, "network-config": network, "meta-data": f"instance-id: {identity}\n"}


def write_seed(folder: Path, name: str, config: Values) -> Path:
    """An ISO image that cloud-init finds by its label."""
    place = folder / "seed"
    place.mkdir(parents=True, exist_ok=True)
    for file, text in files(name, config).items():
        (place / file).write_text(text, encoding="utf-8")
    image = folder / "seed.iso"
    argv = ["xorriso", "-as", "genisoimage", "-quiet", "-V", "cidata", "-J", "-r", "-o", str(image), str(place)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return image
