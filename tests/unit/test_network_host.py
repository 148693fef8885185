"""What the preflight refuses of a host: its packet filter, its networks, who calls from where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import preflight

PREFLIGHT = Path(__file__).resolve().parents[2] / "roles" / "network" / "files" / "preflight.py"
TOOLS = ("ifreload", "iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save", "nft", "ip")


@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
def test_legacy_iptables_is_refused_with_the_remedy(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in TOOLS:
        variant = "legacy" if tool == f"{family}-save" else "nf_tables"
        (tmp_path / tool).write_text(f"#!/bin/sh\necho '{tool} v1.8.11 ({variant})'\n", encoding="utf-8")
        (tmp_path / tool).chmod(0o755)
    assert preflight.tool_problems() == [
        f"{family}-save is the legacy variant, whose rules cannot be watched: "
        f"update-alternatives --set {family} /usr/sbin/{family}-nft"
    ]


POLICY = {
    "bridge": "vmbr1",
    "uplink": "vmbr0",
    "subnet": "10.10.10.0/24",
    "guests": [{"name": "agent", "port": "tap101i0"}],
    "flows": [{"name": "web", "to": "203.0.113.80"}, {"name": "log", "to": "logs"}, {"name": "model"}],
}


class Host:
    """A Proxmox VE host on which nothing stands against the policy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.interfaces = root / "interfaces"
        self.interfaces.write_text("auto vmbr0\niface vmbr0 inet static\n\taddress 192.168.50.2/24\n", encoding="utf-8")
        self.addresses = {"lo": "127.0.0.1/8", "vmbr0": "192.168.50.2/24"}
        self.routes: list[dict[str, str]] = [
            {"dst": "default", "gateway": "192.168.50.1", "dev": "vmbr0"},
            {"dst": "192.168.50.0/24", "dev": "vmbr0"},
        ]
        self.free = 1 << 30
        self.caller = "192.168.50.100 51000 192.168.50.2 22"
        (root / "net" / "vmbr0" / "bridge").mkdir(parents=True)

    def asked(self, *words: str) -> list[dict[str, Any]]:
        if "route" in words:
            return list(self.routes)
        pairs = [(name, *address.split("/")) for name, address in self.addresses.items()]
        return [
            {"ifname": name, "addr_info": [{"local": local, "prefixlen": int(size)}]} for name, local, size in pairs
        ]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    one = Host(tmp_path)
    monkeypatch.setattr(preflight, "INTERFACES", one.interfaces)
    monkeypatch.setattr(preflight, "NET", tmp_path / "net")
    monkeypatch.setattr(preflight, "tool_problems", list)
    monkeypatch.setattr(preflight, "ip_json", one.asked)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=one.free))
    return one


def problems(host: Host, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[str]:
    monkeypatch.setenv("SSH_CONNECTION", host.caller)
    found: list[str] = preflight.host_problems({**POLICY, **changes})
    return found


def test_a_host_that_has_room_for_the_lab_is_taken(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(host, monkeypatch) == []
    host.addresses["vmbr1"] = "10.10.10.1/24"  # the second run: bridge and route are the lab's own
    host.routes.append({"dst": "10.10.10.0/24", "dev": "vmbr1"})
    with host.interfaces.open("a", encoding="utf-8") as file:
        file.write("\nauto vmbr1\niface vmbr1 inet static\n\taddress 10.10.10.1/24\n# glasslab: ours\n")
    (host.root / "net" / "vmbr1" / "bridge").mkdir(parents=True)
    assert problems(host, monkeypatch) == []


IN_THE_WAY: dict[str, tuple[Callable[[Host], Any], str]] = {
    "an interface has the subnet": (
        lambda host: host.addresses.update(vmbr7="10.10.0.1/16"),
        "network_subnet 10.10.10.0/24 is in use: vmbr7 has 10.10.0.1/16",
    ),
    "a route leads there": (
        lambda host: host.routes.append({"dst": "10.10.10.128/25", "dev": "wg0"}),
        "network_subnet 10.10.10.0/24 is in use: a route to 10.10.10.128/25 leaves by wg0",
    ),
    "the caller is in the lab": (
        lambda host: setattr(host, "caller", "10.10.10.20 51000 10.10.10.1 22"),
        "this connection comes from 10.10.10.20, inside the lab, and would be cut: connect by vmbr0",
    ),
    "a flow to itself": (
        lambda host: host.addresses.update(vmbr0="203.0.113.80/24"),
        "network_flows: web: to 203.0.113.80 is this host itself, whose doors are shut for guests",
    ),
    "no room for backups": (
        lambda host: setattr(host, "free", 1 << 20),
        "less than 16 MiB are free below /var/lib, where the former files are kept: make room there",
    ),
    "no way out": (
        lambda host: (host.root / "net" / "vmbr0" / "bridge").parent.rename(host.root / "net" / "eno1"),
        "network_uplink vmbr0 does not exist on this host",
    ),
    "a guest's port is a bridge of the host's": (
        lambda host: (host.root / "net" / "tap101i0" / "bridge").mkdir(parents=True),
        "network_guests: port tap101i0 of agent is a bridge of this host: name the guest's own port",
    ),
    "an interface of that name": (
        lambda host: (host.root / "net" / "vmbr1").mkdir(),
        "an interface vmbr1 exists that this role did not make: choose another network_bridge",
    ),
    "changes that wait in Proxmox's editor": (
        lambda host: host.interfaces.with_name("interfaces.new").touch(),
        "interfaces.new holds changes of Proxmox VE's own network editor that would replace ours when they are applied",
    ),
    "no ifupdown2": (
        lambda host: host.interfaces.unlink(),
        "interfaces does not exist: this host is not configured by ifupdown2",
    ),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_in_the_way_is_one_line(what: str, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    change, said = IN_THE_WAY[what]
    change(host)
    (line,) = problems(host, monkeypatch)
    assert said in line
