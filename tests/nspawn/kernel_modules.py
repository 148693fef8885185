"""Loads br_netfilter, which the tests try in both positions. A machine without container engines has it not loaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

SETTINGS = Path("/proc/sys/net/bridge")


def load_br_netfilter() -> None:
    """Load it unless it is there, and at once set what it would change on this machine's own bridges back to off.

    Namespaces that exist already begin with on, as the kernel does it: load it before a lab is built.
    """
    if SETTINGS.is_dir():
        return
    subprocess.run(["modprobe", "br_netfilter"], check=True)
    for name in ("iptables", "ip6tables", "arptables"):
        (SETTINGS / f"bridge-nf-call-{name}").write_text("0")
