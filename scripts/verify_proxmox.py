"""make verify-proxmox PROXMOX_HOST=...: the Molecule scenario `proxmox` on a live Proxmox VE host.

It says what it will create and remove, and asks (CONFIRM=1 answers). The token is the one that
playbooks/proxmox_access.yml makes. From the environment: PROXMOX_HOST, PROXMOX_PORT (8006), PROXMOX_CA (what its
certificate is verified by: a copy of the node's /etc/pve/local/pve-ssl.pem; empty: the system's CAs), PROXMOX_USER
(glasslab@pve), PROXMOX_TOKEN_ID (lab), the secret in PROXMOX_TOKEN_SECRET or in the file PROXMOX_TOKEN_SECRET_FILE,
PROXMOX_NODE (the only one), PROXMOX_STORAGE (local-lvm), PROXMOX_IMAGE_STORAGE (local), PROXMOX_BRIDGE (vmbr1),
PROXMOX_IMAGE_URL and PROXMOX_IMAGE_SUM (Debian's).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import given
from children import child
from lab import BIN, ROOT, fail, run

sys.path.append(str(ROOT / "tests" / "proxmox"))

import requests
from proxmoxer import ResourceException

import labinventory
import place
import pvehost

LAB_ID = "glverify"
SIZES = {"machine_cores": 1, "machine_memory_mb": 1024, "machine_disk_gb": 4}
# A real node's storage may be slow.
PATIENCE = {"machine_proxmox_timeout": 60, "machine_proxmox_task_timeout": 900}


def secret() -> str:
    """The token's secret, from the environment or a file: it alone, or as playbooks/proxmox_access.yml writes it."""
    found = given.secret("PROXMOX_TOKEN_SECRET")
    if found.startswith("$ANSIBLE_VAULT"):
        fail("PROXMOX_TOKEN_SECRET_FILE is encrypted; give a file that holds what `ansible-vault view` shows of it")
    if written := re.search(r"^machine_proxmox_token_secret: *[\"']?([^\"'\s]+)", found, re.MULTILINE):
        return written[1]
    if not found:
        make = "ansible-playbook -i inventories/proxmox playbooks/proxmox_access.yml"
        fail(f"no token: give PROXMOX_TOKEN_SECRET_FILE; `{make}` writes one to group_vars/all/proxmox_token.yml there")
    return found


def host() -> pvehost.Host:
    """The live host and its node; ends with one line when it cannot be asked."""
    address, port = given.text("PROXMOX_HOST"), given.port("PROXMOX_PORT", 8006)
    if not address:
        fail("no host: make verify-proxmox PROXMOX_HOST=pve.example")
    ca = given.text("PROXMOX_CA")
    trusted = str(given.file("PROXMOX_CA", ca, "a copy of the node's /etc/pve/local/pve-ssl.pem")) if ca else ""
    token = pvehost.Token(given.text("PROXMOX_USER", "glasslab@pve"), given.text("PROXMOX_TOKEN_ID", "lab"), secret())
    one = pvehost.Host(address, port, trusted, token, given.text("PROXMOX_NODE"))
    try:
        nodes = sorted(str(node["node"]) for node in one.api().nodes.get())
    except (requests.RequestException, ResourceException, OSError) as error:
        fail(f"{address}:{port} cannot be asked ({' '.join(str(error).split())[:300]}): see PROXMOX_HOST, PROXMOX_CA")
    if one.node not in nodes and (one.node or len(nodes) != 1):
        fail(f"PROXMOX_NODE={one.node!r}: name one of {', '.join(nodes) or 'none that the token sees'}")
    return pvehost.Host(one.address, one.port, one.ca, token, one.node or nodes[0])


def ask(one: pvehost.Host) -> None:
    """Say what is going to happen, and have it confirmed."""
    storage, images = given.text("PROXMOX_STORAGE", "local-lvm"), given.text("PROXMOX_IMAGE_STORAGE", "local")
    print(f"On node {one.node} of {one.address}, as {one.token.user}!{one.token.name}, this makes and then removes:")
    for name in ("agent", "logs"):
        print(f"  virtual machine {LAB_ID}-{name}: 1 core, 1 GiB of memory, a disk of 4 GiB on {storage}, running")
    print(f"  template {LAB_ID}-debian13 on {storage}, made of Debian's cloud image")
    print(f"It also has the node fetch that image to {images}, and leaves it there (pvesm free removes it).")
    print("Nothing else is changed; the machines that the token sees are compared before and after.")
    sys.stdout.flush()
    if given.switch("CONFIRM"):
        return
    if not sys.stdin.isatty() or input("The node's name, to go on: ").strip() != one.node:
        fail("nothing was done: answer with the node's name at a terminal, or set CONFIRM=1")


def molecule(folder: Path) -> int:
    """The scenario on that place; its exit code."""
    environment = os.environ | {
        "GLASSLAB_PROXMOX_PLACE": str(folder / "place.json"),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
    }
    environment.pop("PROXMOX_TOKEN_SECRET", None)
    command = [str(BIN / "molecule"), "test", "-s", "proxmox", "--destroy=never"]
    with child(command, environment) as process:
        return process.wait()


def remove(inventory: Path) -> bool:
    """What is left after a failure; True when it is gone."""
    command = ["ansible-playbook", "-i", str(inventory), "playbooks/destroy.yml", "-e", "confirm=true"]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    with child([str(BIN / command[0]), *command[1:]], environment) as process:
        code = process.wait()
    if code:
        print(f"verify-proxmox: something may be left on the host; this removes it: {shlex.join(command)}")
    return code == 0


def main() -> None:
    """Ask, run, clean up, compare."""
    one = host()
    ask(one)
    before = pvehost.everything(one.api())
    folder = Path(tempfile.mkdtemp(prefix="glasslab-verify-proxmox-"))
    own = SIZES | PATIENCE | {"lab_id": LAB_ID, "machine_bridge": given.text("PROXMOX_BRIDGE", "vmbr1")}
    own |= {"machine_storage": given.text("PROXMOX_STORAGE", "local-lvm")}
    own |= {"machine_image_storage": given.text("PROXMOX_IMAGE_STORAGE", "local")}
    for name, variable in (("PROXMOX_IMAGE_URL", "machine_image_url"), ("PROXMOX_IMAGE_SUM", "machine_image_checksum")):
        own |= {variable: given.text(name)} if given.text(name) else {}
    inventory = labinventory.write(folder / "inventory", one, one.token, **own)
    place.Place(inventory, one).save(folder / "place.json")
    code = molecule(folder)
    if remove(inventory):
        after = pvehost.everything(one.api())
        if after != before:
            names = sorted(set(before.items()) ^ set(after.items()))
            fail(f"other machines are not as they were: VM {', '.join(sorted({str(vmid) for vmid, _ in names}))}", 1)
        print("verify-proxmox: every machine that was there before is as it was")
    sys.exit(code)


if __name__ == "__main__":
    run(main)
