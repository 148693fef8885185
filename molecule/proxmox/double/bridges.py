"""What a network device of a VM's configuration says: its bridge, its VLAN, its hardware address."""

from __future__ import annotations

from fakepve.qemu import NET_MODELS


def bridge_of(net: str) -> tuple[str | None, str | None]:
    """(bridge, VLAN tag) of a network device."""
    options = dict(part.partition("=")[::2] for part in net.split(","))
    return options.get("bridge"), options.get("tag")


def mac_of(net: str) -> str | None:
    """The hardware address of a network device."""
    for part in net.split(","):
        key, _, value = part.partition("=")
        if (key in NET_MODELS or key == "macaddr") and value:
            return value
    return None
