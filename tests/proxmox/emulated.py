"""The inventory of scripts/test_emulated.py: the agent on the double, the rest as inventories/local has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lab

TO_THE_AGENT = """\
Host agent
  HostName 10.10.10.10
  User root
  IdentityFile {state}/ssh/id
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking accept-new
  UpdateHostKeys no
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 6
  ProxyCommand ssh -F {run}/ssh_config -W %h:%p pve
  ControlMaster auto
  ControlPath {run}/cm-emulated-%n
  ControlPersist 60s
  LogLevel ERROR
"""
# The rules name the agent's port after the id that it was given.
NETWORK_GUESTS = """\
{%- set guests = [] -%}
{%- for one in groups.guests | map('extract', hostvars) -%}
{%- set _ = guests.append({'name': one.inventory_hostname, 'address': one.machine_address, 'mac': one.machine_mac,
'port': one.machine_port}) -%}
{%- endfor -%}
{{ guests }}"""


def ssh_config(folder: Path) -> Path:
    """The file that leads to the agent, beside the inventory's folder, in which Ansible would read it."""
    return folder.parent / "ssh_config"


def write(folder: Path, ready: dict[str, Any], image: str, checksum: str) -> None:
    """Write hosts.yml, and the ssh_config that leads to the agent by way of the lab's hypervisor."""
    known_hosts = folder.parent / "known_hosts"
    agent: dict[str, Any] = {
        "machine_backend": "proxmox",
        "machine_port": "tap{{ machine_found_vmid | default(0) }}i0",
        "machine_node": ready["node"],
        "machine_image_url": image,
        "machine_image_checksum": checksum,
        "machine_cores": 2,
        "machine_memory_mb": 1024,
        "machine_disk_gb": 4,
        "machine_resolver": "203.0.113.53",
        "machine_ssh_keys": [(lab.STATE / "ssh" / "id.pub").read_text(encoding="utf-8").strip()],
        "machine_ssh_timeout": 300,
        # As in inventories/proxmox: a virtual machine asks its resolver by way of systemd-resolved.
        "agent_ip_allow": "{{ lab_agent_ip_allow + ['127.0.0.53'] }}",
        "machine_known_hosts": str(known_hosts),
        "ansible_ssh_common_args": f"-F {ssh_config(folder)}",
    }
    everyone = {
        "machine_proxmox_host": ready["host"],
        "machine_proxmox_port": ready["port"],
        "machine_proxmox_ca": ready["ca"],
        "machine_proxmox_user": ready["token"]["user"],
        "machine_proxmox_token_id": ready["token"]["id"],
        "machine_proxmox_token_secret": ready["token"]["secret"],
    }
    folder.mkdir(mode=0o700)
    tree = {"all": {"vars": everyone, "hosts": {"agent": agent, "pve": {"network_guests": NETWORK_GUESTS}}}}
    (folder / "hosts.yml").write_text(json.dumps(tree, indent=1), encoding="utf-8")
    config = TO_THE_AGENT.format(state=lab.STATE, run=lab.RUN, known_hosts=known_hosts)
    ssh_config(folder).write_text(config, encoding="utf-8")
