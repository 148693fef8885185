"""inventories/proxmox is whole: it has what the embedded lab's has, and nothing of the embedded lab in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import plan
from glasslab_policy import network_policy
from glasslab_policy_problems import policy_problems

ROOT = Path(__file__).resolve().parents[2]
LOCAL, PROXMOX = ROOT / "inventories" / "local", ROOT / "inventories" / "proxmox"
# What only a lab in this machine's namespaces has: a relay to a real model, and the file of the scripted one's key.
EMBEDDED_ONLY = {"lab_model_relay_url", "lab_api_key_file"}
ASKED = [
    "network_guests",
    "network_flows",
    "network_name_addresses",
    "build_hosts",
    "machine_leaves",
    "verify_sandboxes",
]
ASKED += ["agent_hec_url", "agent_ip_allow", "splunk_certificate", "witness_hec_url", "verify_targets", "machine_port"]
ASKED += [
    "machine_ssh_keys",
    "network_resolver_address",
    "machine_cpu_flags",
    "verify_log_environment",
    "verify_guest_ports",
    "ansible_ssh_common_args",
]


def defined(inventory: Path) -> dict[str, str]:
    """Every variable of an inventory's group_vars with the group that has it."""
    found = {}
    for file in sorted(inventory.glob("group_vars/**/*.yml")):
        group = file.parent.name if file.parent.name != "group_vars" else file.stem
        found |= dict.fromkeys(yaml.safe_load(file.read_text(encoding="utf-8")) or {}, group)
    return found


def shown(folder: Path, inventory: Path, ids: dict[str, int]) -> dict[str, dict[str, Any]]:
    """What Ansible makes of those variables for each host, with ids as the backend would have settled them."""
    (folder / "home" / ".ssh").mkdir(parents=True)
    (folder / "home" / ".ssh" / "id_ed25519.pub").write_text("ssh-ed25519 AAAA me\n")
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "vars": {"splunk_mode": "enterprise"},
            "tasks": [
                {
                    "ansible.builtin.set_fact": {"machine_found_vmid": f"{{{{ {ids}[inventory_hostname] }}}}"},
                    "when": "inventory_hostname in groups.guests",
                },
                {
                    "ansible.builtin.copy": {
                        "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
                        "content": "{{ shown | to_json }}",
                    },
                    "vars": {"shown": {name: f"{{{{ {name} | default(none) }}}}" for name in ASKED}},
                    "delegate_to": "localhost",
                },
            ],
        }
    ]
    (folder / "play.yml").write_text(json.dumps(play))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory), str(folder / "play.yml")],
        # A LAB_ID of whoever runs the tests would be the lab's.
        env={name: value for name, value in os.environ.items() if name != "LAB_ID"}
        | {"HOME": str(folder / "home"), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.fixture(scope="module")
def worked_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The inventory as it is."""
    return shown(tmp_path_factory.mktemp("inventory"), PROXMOX, {"agent": 105, "logs": 0})


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The inventory with a second node, that has agents and a log of its own."""
    folder = tmp_path_factory.mktemp("two_nodes")
    shutil.copytree(PROXMOX, folder / "proxmox")
    hosts = yaml.safe_load((PROXMOX / "hosts.yml").read_text(encoding="utf-8"))
    groups = hosts["all"]["children"]
    groups["hypervisor"]["hosts"]["pve2"] = {"machine_address": "192.168.1.11"}
    agents, logs = (groups["guests"]["children"][name]["hosts"] for name in ("agents", "logservers"))
    for name, of, number in (("agent2", agents, 11), ("agent3", agents, 12), ("logs2", logs, 21)):
        of[name] = {"machine_node": "pve2", "machine_address": f"10.10.10.{number}"}
        of[name]["machine_mac"] = f"02:10:00:00:00:{number}"
    (folder / "proxmox" / "hosts.yml").write_text(json.dumps(hosts))
    ids = {"agent": 105, "logs": 106, "agent2": 107, "agent3": 108, "logs2": 109}
    return shown(folder, folder / "proxmox", ids)


def test_every_lab_variable_of_the_embedded_inventory_has_its_counterpart() -> None:
    wanted = {name for name in defined(LOCAL) if name.startswith("lab_")} - EMBEDDED_ONLY
    assert wanted - set(defined(PROXMOX)) == set()


def test_every_role_variable_of_the_embedded_inventory_is_set_or_has_a_default_that_will_do() -> None:
    not_here = {
        # The stand-in model, its network and the place to try the lab from: all in this machine's namespaces.
        "machine_model_command",
        "machine_model_relay_url",
        "machine_model_relay_ca",
        "verify_controller_command",
        "network_special_ranges",
        "build_sources",
        "ansible_control_path_dir",
        # Harmless probes only, unless somebody asks for others.
        "verify_disruptive",
    }
    wanted = {name for name in defined(LOCAL) if not name.startswith("lab_")} - not_here
    assert wanted - set(defined(PROXMOX)) == set()


def test_nothing_of_the_embedded_lab_is_in_it() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(PROXMOX.glob("**/*")) if file.is_file())
    assert (
        re.findall(
            r"glasslab\.test|203\.0\.113\.|192\.168\.50\.|10\.20\.20\.|/var/lib/glasslab|/run/glasslab|nsenter", text
        )
        == []
    )


def test_no_secret_is_in_it() -> None:
    names = {file.name for file in PROXMOX.glob("group_vars/all/*")}
    tracked = subprocess.run(
        ["git", "ls-files", str(PROXMOX)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "vault.example" in names
    assert "proxmox_token.yml" not in tracked
    assert "vault.yml" not in tracked


def test_a_guest_that_is_not_there_has_no_rules(worked_out: dict[str, dict[str, Any]]) -> None:
    assert worked_out["pve"]["network_guests"] == [
        {"name": "agent", "address": "10.10.10.10", "mac": "02:10:00:00:00:10", "port": "tap105i0"}
    ]
    assert worked_out["pve"]["build_hosts"] == "agent"


def policy_of(node: dict[str, Any]) -> dict[str, Any]:
    """What roles/network is told on a node: its defaults, and what the inventory says."""
    role = yaml.safe_load((ROOT / "roles" / "network" / "defaults" / "main.yml").read_text(encoding="utf-8"))
    said = {name: value for name, value in node.items() if name.startswith("network_") and value is not None}
    return {name.removeprefix("network_"): value for name, value in {**role, **said}.items()}


def test_its_policy_is_one_that_the_network_takes(worked_out: dict[str, dict[str, Any]]) -> None:
    policy = policy_of(worked_out["pve"])
    policy["guests"] = [
        *policy["guests"],
        {"name": "logs", "address": "10.10.10.20", "mac": "02:10:00:00:00:20", "port": "tap106i0"},
    ]
    assert policy_problems(policy) == []


def test_what_the_roles_are_given(worked_out: dict[str, dict[str, Any]]) -> None:
    pve, agent, logs = (worked_out[host] for host in ("pve", "agent", "logs"))
    assert agent["agent_hec_url"] == pve["witness_hec_url"] == "https://10.10.10.20:8088"
    assert agent["machine_ssh_keys"] == ["ssh-ed25519 AAAA me"]
    # A virtual machine asks systemd-resolved for names.
    assert agent["agent_ip_allow"] == ["192.0.2.10", "192.0.2.53", "10.10.10.20", "127.0.0.53"]
    assert logs["splunk_certificate"].endswith("/.local/state/glasslab/glasslab/ca/logs.crt")
    assert logs["machine_cpu_flags"] == ["avx"]
    assert [leaf["name"] for leaf in logs["machine_leaves"]] == ["logs"]
    assert pve["verify_sandboxes"]["tools' sandbox"]["allow"] == ["10.10.10.20"]
    assert agent["ansible_ssh_common_args"].startswith("-F ")


def test_agents_on_two_nodes_have_each_nodes_walls_and_one_receipt(two_nodes: dict[str, dict[str, Any]]) -> None:
    pve, second = two_nodes["pve"], two_nodes["pve2"]
    assert [guest["name"] for guest in pve["network_guests"]] == ["agent", "logs"]
    assert [guest["name"] for guest in second["network_guests"]] == ["agent2", "agent3", "logs2"]
    assert [policy_problems(policy_of(node)) for node in (pve, second)] == [[], []]
    assert two_nodes["agent"]["agent_hec_url"] == pve["witness_hec_url"] == "https://10.10.10.20:8088"
    assert two_nodes["agent3"]["agent_hec_url"] == second["witness_hec_url"] == "https://10.10.10.21:8088"
    logs = {name: two_nodes[name]["verify_log_environment"] for name in ("pve", "agent", "pve2", "agent3")}
    assert {name: (one["SPLUNK_URL"], one["SPLUNK_SSH"].split()[-1]) for name, one in logs.items()} == {
        **dict.fromkeys(("pve", "agent"), ("https://10.10.10.20:8089", "pve")),
        **dict.fromkeys(("pve2", "agent3"), ("https://10.10.10.21:8089", "pve2")),
    }
    boxes = pve["verify_sandboxes"]
    assert {name: (box["guest"], box["allow"][-1]) for name, box in boxes.items()} == {
        "agent's sandbox": ("agent", "10.10.10.20"),
        "tools' sandbox": ("agent", "10.10.10.20"),
        "agent2's sandbox": ("agent2", "10.10.10.21"),
        "agent2's tools": ("agent2", "10.10.10.21"),
    }
    begun = {"addresses": [["vmbr1", "10.10.10.1"]], "mac": "02:00:00:00:00:01", "link_local": "fe80::1", "watch": {}}
    addresses = {"pve": "192.168.1.10", "pve2": "192.168.1.11"}
    nodes = {
        name: {
            "known": {"declared": policy_of(node), "policy": network_policy(policy_of(node))},
            "begun": json.dumps(begun),
            "address": addresses[name],
        }
        for name, node in (("pve", pve), ("pve2", second))
    }
    order = {"nodes": nodes, "sandboxes": boxes, "targets": pve["verify_targets"], "outside": [], "other_names": []}
    order |= {"guests": ["agent", "agent2", "agent3", "logs", "logs2"], "guest_ports": pve["verify_guest_ports"]}
    found = plan.together({**order, "controller_command": [], "timeout": 1.0, "ca": None, "disruptive": False})
    asked = {
        (name, row["place"]): row["expected"]
        for name, made in found["nodes"].items()
        for row in made["rows"]
        if row["port"] == 8088 and row["address"] == {"pve": "10.10.10.20", "pve2": "10.10.10.21"}[name]
    }
    reached = {place for place, expected in asked.items() if expected == "reachable"}
    assert reached == {
        *(("pve", place) for place in ("agent", "agent's sandbox", "tools' sandbox")),
        *(("pve2", place) for place in ("agent2", "agent3", "agent2's sandbox", "agent2's tools")),
    }


def test_what_the_emulated_lab_lays_over_it_is_there_to_be_read() -> None:
    """scripts/test_emulated.py runs too seldom to be the one that finds a renamed variable."""
    code = "import json, sys; sys.path.append('../tests/proxmox'); from emulated import {0}; print(json.dumps({0}()))"
    done = subprocess.run(
        [sys.executable, "-c", code.format("surroundings")],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    laid = json.loads(done.stdout)
    assert laid["all"]["machine_backend"] == "nspawn"
    # The agent takes no other.
    assert re.fullmatch(r"[!-~]+", laid["all"]["lab_model_api_key"])
    files = [ROOT / "roles" / role / "defaults" / "main.yml" for role in ("agent", "machine", "network", "runtime")]
    files += [ROOT / "roles" / "verify" / "defaults" / "main.yml", PROXMOX / "group_vars" / "all" / "vault.example"]
    known = {name for file in files for name in yaml.safe_load(file.read_text(encoding="utf-8"))}
    known |= set(defined(LOCAL)) | set(defined(PROXMOX))
    assert {name for group in laid.values() for name in group} - known == set()
