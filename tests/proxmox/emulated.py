"""The inventory of scripts/test_emulated.py: inventories/proxmox with the agent on the double, and what it stands in.

Flows, names, ports, tokens, units and the receipt's places are those that a user of a Proxmox VE host has. What only
the embedded lab's namespaces have (its internet, its LAN, the machine that stands for the node) is read from
inventories/local and laid over it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

import lab

BASE = lab.ROOT / "inventories" / "proxmox"
LOCAL = lab.ROOT / "inventories" / "local" / "group_vars"
# The lab's places on this machine, the stand-ins of model and internet, and from where the receipt is taken.
OF_THIS_MACHINE = (
    "lab_state_dir",
    "lab_run_dir",
    "ansible_control_path_dir",
    "ansible_ssh_common_args",
    "machine_model_command",
    "machine_model_relay_url",
    "machine_model_relay_ca",
    "lab_model_relay_url",
    "lab_model_url",
    "verify_disruptive",
    "verify_controller_command",
    "verify_outside",
    "verify_other_names",
    "verify_ca",
    "verify_log_environment",
)
# Of the roles' own defaults: certificates of the stand-ins, wheels, and the doors of the embedded lab's surroundings.
DEFAULTS = {
    "machine": ("machine_ca_dir", "machine_leaves"),
    "runtime": ("runtime_cache",),
    "verify": ("verify_targets",),
}
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


def reset_seconds(said: str) -> dict[str, float]:
    """What playbooks/reset.yml says that it took, by the names of bench/proxmox.py."""
    found = re.findall(r"([\d.]+) s to the first acknowledged frame, ([\d.]+) s to the first answer", said)
    assert found, "the reset does not say how long it took"
    return {"reset to frame": float(found[-1][0]), "reset to answer": float(found[-1][1])}


def ssh_config(folder: Path) -> Path:
    """The file that leads to the agent, beside the inventory's folder, in which Ansible would read it."""
    return folder.parent / "ssh_config"


def read(file: Path) -> dict[str, Any]:
    """The variables of a file."""
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def surroundings() -> dict[str, dict[str, Any]]:
    """By group, what is laid over inventories/proxmox so that pve and logs are machines of this lab's namespaces."""
    local, hypervisor = read(LOCAL / "all.yml"), read(LOCAL / "hypervisor.yml")
    everyone = {name: local[name] for name in OF_THIS_MACHINE}
    for role, names in DEFAULTS.items():
        defaults = read(lab.ROOT / "roles" / role / "defaults" / "main.yml")
        everyone |= {name: defaults[name] for name in names}
    everyone |= {"machine_backend": "nspawn", "machine_ssh_config": "", "lab_model_api_key": "of-the-scripted-model"}
    return {
        "all": everyone,
        "hypervisor": {"network_special_ranges": hypervisor["network_special_ranges"]},
        # The lab's documents are fictional: all 25 frames.
        "agents": {"agent_model_ca": "{{ lab_ca }}", "agent_lab_trace": "full"},
    }


def write(folder: Path, ready: dict[str, Any], image: str, checksum: str) -> None:
    """Write the inventory, and the ssh_config that leads to the agent by way of the lab's hypervisor."""
    known_hosts = folder.parent / "known_hosts"
    agent: dict[str, Any] = {
        "machine_backend": "proxmox",
        "machine_node": ready["node"],
        "machine_image_url": image,
        "machine_image_checksum": checksum,
        "machine_cores": 2,
        "machine_memory_mb": 1024,
        "machine_disk_gb": 4,
        "machine_ssh_keys": [(lab.STATE / "ssh" / "id.pub").read_text(encoding="utf-8").strip()],
        # An emulated machine on a busy one boots in minutes.
        "machine_ssh_timeout": 900,
        "machine_cloud_init_timeout": 900,
        "machine_known_hosts": str(known_hosts),
        "ansible_ssh_common_args": f"-F {ssh_config(folder)}",
    }
    over = surroundings()
    over["all"] |= {
        "machine_proxmox_host": ready["host"],
        "machine_proxmox_port": ready["port"],
        "machine_proxmox_ca": ready["ca"],
        "machine_proxmox_user": ready["token"]["user"],
        "machine_proxmox_token_id": ready["token"]["id"],
        "machine_proxmox_token_secret": ready["token"]["secret"],
    }
    (folder / "group_vars").mkdir(mode=0o700, parents=True)
    # The log's machine is a container: its cable has the name that the embedded lab gives it.
    hosts = {"pve": {"machine_address": "192.168.50.2"}, "agent": agent, "logs": {"machine_port": "tap102i0"}}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}, indent=1), encoding="utf-8")
    for group, variables in over.items():
        (folder / "group_vars" / f"{group}.yml").write_text(json.dumps(variables, indent=1), encoding="utf-8")
    config = TO_THE_AGENT.format(state=lab.STATE, run=lab.RUN, known_hosts=known_hosts)
    ssh_config(folder).write_text(config, encoding="utf-8")
