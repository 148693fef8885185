"""Puts the hypervisor into a mode as its owner does, and bridged frames through iptables or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from isolationtools import playbook_lines, pve
from kernel_modules import load_br_netfilter
from labtools import ROOT, playbook

DEFAULT = yaml.safe_load((ROOT / "roles/network/defaults/main.yml").read_text(encoding="utf-8"))["network_mode"]
CALLS = ("iptables", "ip6tables", "arptables")


def set_mode(mode: str) -> None:
    """Run the play for that mode."""
    done = playbook("playbooks/network.yml", "--extra-vars", f"network_mode={mode}")
    assert done.returncode == 0, playbook_lines(done)


def set_bridge_netfilter(value: int) -> None:
    """Bridged frames pass iptables (1), or not (0)."""
    pve("sysctl -qw " + " ".join(f"net.bridge.bridge-nf-call-{call}={value}" for call in CALLS))


@contextmanager
def hypervisor_in(mode: str, bridge_netfilter: int = 0) -> Iterator[None]:
    """While the block runs; afterwards it is in its default again."""
    load_br_netfilter()
    if mode != DEFAULT:
        set_mode(mode)
    set_bridge_netfilter(bridge_netfilter)
    try:
        yield
    finally:
        set_bridge_netfilter(0)
        if mode != DEFAULT:
            set_mode(DEFAULT)
