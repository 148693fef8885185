"""Network namespaces: made, cabled, entered, renewed and removed. The root namespace takes no part in any of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import topology
from errors import LabError, attempt, run
from topology import Lab

NETNS_DIR = Path("/run/netns")
CLONE_NEWNET = 0x40000000

# A new namespace copies IPv4 settings from the machine it is made on: a machine that routes (one with containers,
# say) must not give the lab a hypervisor that routes before its rules are there.
FRESH_SYSCTLS = {
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/arp_ignore": "0",
    # As Proxmox VE sets them. New namespaces begin with 1 once br_netfilter is loaded; absent without it.
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-arptables": "0",
}
ROUTER = {"net/ipv4/ip_forward": "1"}

_libc = ctypes.CDLL(None, use_errno=True)


def path(lab: Lab, name: str) -> Path:
    """Where the namespace is mounted."""
    return NETNS_DIR / lab.namespace(name)


def _setns(descriptor: int) -> None:
    # os.setns exists only from Python 3.12 on
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise LabError(f"cannot enter a network namespace: {os.strerror(number)}")


@contextmanager
def inside(where: Path) -> Iterator[None]:
    """Run the block in that namespace; this thread comes back afterwards. Raises LabError when it does not exist."""
    try:
        target = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        first = Lab(where.name.rpartition("-")[0]).make("demo")
        raise LabError(f"network namespace {where.name} does not exist: build the lab first ({first})") from None
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(target)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)
        os.close(target)


def write_sysctls(where: Path, values: dict[str, str]) -> None:
    """Set sysctls inside that namespace; keys whose kernel module is not loaded are passed over."""
    with inside(where):
        for key, value in values.items():
            file = Path("/proc/sys") / key
            if file.exists():
                file.write_text(value)


def _batch(lab: Lab, name: str, commands: list[str]) -> None:
    run(["ip", "-n", lab.namespace(name), "-batch", "-"], stdin="\n".join(commands) + "\n")


def _create(lab: Lab, name: str) -> None:
    run(["ip", "netns", "add", lab.namespace(name)])
    run(["ip", "-n", lab.namespace(name), "link", "set", "lo", "up"])
    write_sysctls(path(lab, name), FRESH_SYSCTLS)


def build(lab: Lab) -> None:
    """Make all namespaces and cables, and configure the bare hosts. Expects that none of them exists."""
    for name in topology.NAMESPACES:
        _create(lab, name)
    for near, far in topology.CABLES:
        peer = f"{far.interface} address {far.mac} netns {lab.namespace(far.namespace)}"
        _batch(lab, near.namespace, [f"link add {near.interface} address {near.mac} type veth peer name {peer}"])
    for name, commands in topology.HOST_COMMANDS.items():
        _batch(lab, name, list(commands))
    write_sysctls(path(lab, "lan"), ROUTER)


def missing(lab: Lab) -> list[str]:
    """Names of the namespaces that do not exist."""
    return [name for name in topology.NAMESPACES if not path(lab, name).exists()]


def renew(lab: Lab, name: str) -> None:
    """Replace a machine's namespace by a new one that holds the same cables, as a reboot empties a kernel's network.

    Addresses, routes, policy rules, bridges, packet filter and sysctls all start from nothing, and nothing can be
    forgotten in a list of things to flush. Expects that no process is left in the old one.
    """
    new = f"{name}-next"
    _create(lab, new)
    for end in [end for cable in topology.CABLES for end in cable if end.namespace == name]:
        run(["ip", "-n", lab.namespace(name), "link", "set", end.interface, "netns", lab.namespace(new)])
    run(["ip", "netns", "delete", lab.namespace(name)])
    path(lab, name).touch()
    run(["mount", "--bind", str(path(lab, new)), str(path(lab, name))])
    run(["ip", "netns", "delete", lab.namespace(new)])


def plug(lab: Lab, tap: topology.Tap) -> None:
    """Put a tap into its bridge and bring the port up, as Proxmox VE does when a guest starts."""
    write_sysctls(path(lab, "pve"), {f"net/ipv6/conf/{tap.interface}/disable_ipv6": "1"})
    run(["ip", "-n", lab.namespace("pve"), "link", "set", tap.interface, "master", tap.bridge, "up"])


def remove(lab: Lab) -> None:
    """Remove the lab's namespaces, also those of a renewal that was cut short. Cables go with them."""
    for name in topology.NAMESPACES:
        for candidate in (name, f"{name}-next"):
            where = path(lab, candidate)
            if where.exists() and not attempt(["ip", "netns", "delete", lab.namespace(candidate)]):
                # a name whose mount is gone (left by a kill between the two) is a plain file
                where.unlink(missing_ok=True)


def remove_directory() -> None:
    """Undo what the first `ip netns add` on a machine does to /run/netns, if nobody else keeps a namespace there."""
    if NETNS_DIR.is_dir() and not any(NETNS_DIR.iterdir()):
        while attempt(["umount", str(NETNS_DIR)]):
            pass
        NETNS_DIR.rmdir()
