"""An inventory of guests on a Proxmox VE API, written as a user would: roles/machine is all that is played on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pvehost import Host, Token

LAB_ID = "gltest"
# Against the double nothing is slow; a fault that lets a client wait shall cost seconds, not minutes.
CALL_SECONDS = 4
TASK_SECONDS = 20


def guest(number: int, **own: Any) -> dict[str, Any]:
    """A guest's variables: the address and the hardware address of its number."""
    return {"machine_address": f"10.10.10.{number}", "machine_mac": f"02:10:00:00:00:{number:02x}"} | own


def two() -> dict[str, dict[str, dict[str, Any]]]:
    """The lab that the published inventory has: one agent and its log."""
    return {"agents": {"agent": guest(10)}, "logservers": {"logs": guest(20)}}


def write(
    folder: Path,
    host: Host,
    token: Token,
    guests: dict[str, dict[str, dict[str, Any]]] | None = None,
    **own: Any,
) -> Path:
    """Write hosts.yml into a folder and return the folder. `own` are variables for all hosts."""
    variables: dict[str, Any] = {
        "lab_id": LAB_ID,
        "machine_lab_id": "{{ lab_id }}",
        "machine_backend": "proxmox",
        "machine_certificates": False,
        # The double's guests are only told about: nobody is there to answer.
        "machine_ssh_wait": False,
        "machine_proxmox_host": host.address,
        "machine_proxmox_port": host.port,
        "machine_proxmox_ca": host.ca,
        "machine_proxmox_user": token.user,
        "machine_proxmox_token_id": token.name,
        "machine_proxmox_token_secret": token.secret,
        "machine_proxmox_timeout": CALL_SECONDS,
        "machine_proxmox_task_timeout": TASK_SECONDS,
        "machine_node": host.node,
        "machine_storage": "local-lvm",
        "machine_image_storage": "local",
        "machine_gateway": "10.10.10.1",
        "machine_resolver": "203.0.113.53",
        "machine_resume_playbook": "playbooks/machines.yml",
        "machine_ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFDNb2Zo0nLfRLsd5nqFLtwWWXTsu6hpJqPmJbRYQxMR test"],
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    groups = two() if guests is None else guests
    tree = {
        "all": {
            "vars": variables | own,
            "children": {
                "hypervisor": {"hosts": {"pve": {"machine_address": host.address}}},
                "guests": {"children": {name: {"hosts": hosts} for name, hosts in groups.items()}},
            },
        }
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts.yml").write_text(json.dumps(tree, indent=1), encoding="utf-8")
    (folder / "hosts.yml").chmod(0o600)
    return folder
