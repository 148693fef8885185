"""The lab's bridge and the guests' ports at it, under every name that Proxmox VE gives them.

A guest's port tapVMIDiN is in the lab's bridge itself, or, with Proxmox's firewall on, in a bridge fwbrVMIDiN of its
own whose pair fwlnVMIDiN - fwprVMIDpN leads to the lab's.
Links are told through netlink: no program is needed to close.
"""

from __future__ import annotations

import pathlib
import re
import struct

from . import netlink
from .kernel import Failure
from .settings import Settings

NET = pathlib.Path("/sys/class/net")
SETLINK, NEWLINK, GETLINK = 19, 16, 18
AF_BRIDGE, IFF_UP = 7, 1
IFNAME, MASTER, PROTINFO, PORT_STATE, PORT_ISOLATED, PORT_LOCKED = 3, 10, 12, 1, 33, 39
LINKINFO, INFO_KIND, INFO_DATA, BOOLOPT, NO_LINKLOCAL_LEARN = 18, 1, 2, 46, 1
LISTENING, FORWARDING = 1, 3  # a port without spanning tree is never listening: it is how the watcher holds one shut
PROXMOX = re.compile(r"(tap|veth)(\d+)i(\d+)")
BEHIND = re.compile(r"(tap|veth|fwln)(\d+)i(\d+)")


def link(name: str) -> pathlib.Path:
    """Where the kernel shows an interface."""
    return NET / name


def exists(name: str) -> bool:
    """Whether there is such an interface."""
    return bool(name) and link(name).exists()


def attribute(name: str, key: str) -> str | None:
    """What the kernel shows of an interface; None when there is no such thing, or the interface has just gone."""
    try:
        return (link(name) / key).read_text(encoding="ascii").strip()
    except OSError:
        return None


def is_up(name: str) -> bool:
    """Administratively up (IFF_UP); operstate would also be down for want of a port."""
    return bool(int(attribute(name, "flags") or "0", 16) & IFF_UP)


def master(name: str) -> str | None:
    """The bridge that an interface is a port of."""
    there = link(name) / "master"
    return there.resolve().name if there.exists() else None


def place(name: str) -> str | None:
    """Which interface this is, and in which bridge; one that was made anew, or is in another, is another place."""
    index = attribute(name, "ifindex")
    return index and f"{index}@{attribute(name, 'master/ifindex')}"


def names(port: str) -> list[str]:
    """Every name under which the guest behind a port has an interface on the hypervisor, the inner ones first."""
    found = PROXMOX.fullmatch(port)
    if not found:
        return [port]
    _, guest, number = found.groups()
    return [port, f"fwln{guest}i{number}", f"fwpr{guest}p{number}"]


def all_names(config: Settings) -> list[str]:
    """Those of all guests."""
    return list(dict.fromkeys(name for port in config.ports for name in names(port)))


def members(bridge: str) -> list[str]:
    """The ports in the lab's bridge, whosever they are."""
    try:
        return sorted(path.name for path in (link(bridge) / "brif").iterdir())
    except OSError:
        return []


def belongs(name: str) -> bool:
    """Whether a port without a bridge belongs in the lab's: a tap behind Proxmox's firewall, and fwln, do not."""
    found = PROXMOX.fullmatch(name)
    behind = found and exists(f"fwbr{found[2]}i{found[3]}")
    return not behind and not name.startswith("fwln")


def strays(config: Settings) -> list[str]:
    """Guests' ports that exist and are in no bridge: `systemctl restart networking` deletes the bridge under them."""
    return [name for name in all_names(config) if exists(name) and master(name) is None]


def strangers(config: Settings) -> list[str]:
    """Ports of the lab's bridge that are up and are no guest's: the bridge's table of rules knows nothing of them."""
    known = all_names(config)
    return [name for name in members(config.bridge) if name not in known and is_up(name)]


def unisolated(config: Settings) -> list[str]:
    """Ports at the lab's bridge that must reach no other guest's and may."""
    return [
        name
        for name in dict.fromkeys(one for port in config.isolated for one in names(port))
        if master(name) == config.bridge and attribute(name, "brport/isolated") == "0"
    ]


def credulous(config: Settings) -> list[str]:
    """The lab's bridge and those of Proxmox's firewall that learn senders from frames to link-local groups (LLDP).

    Those never reach the table of rules: a guest would have another's frames sent to itself, or teach without end.
    """
    inner = [f"fwbr{found[2]}i{found[3]}" for found in map(PROXMOX.fullmatch, config.ports) if found]
    return [name for name in (config.bridge, *inner) if attribute(name, "bridge/no_linklocal_learn") == "0"]


def is_away(name: str, config: Settings) -> bool:
    """Whether a guest's port is in a bridge that is neither the lab's nor its own, that of Proxmox's firewall."""
    found = BEHIND.fullmatch(name)
    return master(name) not in (None, config.bridge, found and f"fwbr{found[2]}i{found[3]}")


def away(config: Settings) -> list[str]:
    """Guests' ports in a bridge that is not the lab's, where nothing but the rules of bridges holds what they send."""
    return [name for name in all_names(config) if is_away(name, config)]


def locked() -> list[str]:
    """Ports of any bridge that take frames in from no sender that they have not heard before."""
    try:
        answers = netlink.request(
            netlink.ROUTE, GETLINK, struct.pack("=BBHiII", AF_BRIDGE, 0, 0, 0, 0, 0), netlink.DUMP
        )
    except OSError:
        return []
    told = [dict(netlink.attributes(body[16:])) for kind, body in answers if kind == NEWLINK]
    shut = [one for one in told if any(dict(netlink.attributes(one.get(PROTINFO, b""))).get(PORT_LOCKED, b""))]
    return [one[IFNAME].rstrip(b"\0").decode(errors="surrogateescape") for one in shut if IFNAME in one]


def held(config: Settings) -> list[str]:
    """Ports that the watcher holds shut, or has left so."""
    shut = locked()
    return [
        name for name in members(config.bridge) if name in shut or attribute(name, "brport/state") == str(LISTENING)
    ]


def _tell(name: str, kind: int, body: bytes, what: str) -> None:
    index = attribute(name, "ifindex")
    if index is None:
        return
    family, change = (AF_BRIDGE, 0) if kind == SETLINK else (0, IFF_UP)
    flags = change if what == "up" else 0
    head = struct.pack("=BBHiII", family, 0, 0, int(index), flags, change if what in ("up", "down") else 0)
    try:
        netlink.request(netlink.ROUTE, kind, head + body)
    except OSError as error:
        if attribute(name, "ifindex") == index:
            raise Failure(f"{name} cannot be set {what} ({error.strerror})") from error


def set_up(name: str, *, up: bool) -> None:
    """Bring an interface up or down; one that has gone is left alone, as in all of these."""
    _tell(name, NEWLINK, b"", "up" if up else "down")


def enslave(name: str, bridge: str) -> None:
    """Put a port into the bridge."""
    index = attribute(bridge, "ifindex")
    if index is not None:
        _tell(name, NEWLINK, netlink.attribute(MASTER, struct.pack("=I", int(index))), f"a port of {bridge}")


def _tell_port(name: str, what: str, *values: tuple[int, int]) -> None:
    inner = b"".join(netlink.attribute(kind, bytes([value])) for kind, value in values)
    _tell(name, SETLINK, netlink.attribute(PROTINFO | netlink.NESTED, inner), what)


def isolate(name: str) -> None:
    """From now on this port reaches no other isolated one."""
    _tell_port(name, "isolated", (PORT_ISOLATED, 1))


def disbelieve(name: str) -> None:
    """From now on a bridge learns nothing from frames to link-local groups."""
    option = netlink.attribute(BOOLOPT, struct.pack("=II", NO_LINKLOCAL_LEARN, NO_LINKLOCAL_LEARN))
    kind = netlink.attribute(INFO_KIND, b"bridge")
    info = netlink.attribute(LINKINFO | netlink.NESTED, kind + netlink.attribute(INFO_DATA | netlink.NESTED, option))
    _tell(name, NEWLINK, info, "deaf to link-local frames")


def hold(config: Settings) -> list[str]:
    """Nothing passes the bridge's ports until release(), and no guest loses its carrier; the ports held.

    A guest whose cable goes out and in has its port forward again; locked as well, the port has then forgotten whom it
    heard, and takes nothing in. Best effort, and within a millisecond: what cannot be held is closed when the rules
    stand again.
    """
    shut = []
    for name in members(config.bridge):
        forwards = attribute(name, "brport/state") == str(FORWARDING)
        try:
            _tell_port(name, "held", (PORT_LOCKED, 1), *[(PORT_STATE, LISTENING)] * forwards)
        except Failure:
            continue
        if forwards:
            shut.append(name)
    return shut


def release(config: Settings) -> None:
    """Let pass again what was held."""
    for name in held(config):
        listens = attribute(name, "brport/state") == str(LISTENING)
        _tell_port(name, "forwarding", (PORT_LOCKED, 0), *[(PORT_STATE, FORWARDING)] * listens)


def plug(config: Settings) -> None:
    """Put stray ports back into the bridge, and up what unplug() took down; a port in another bridge is left alone."""
    for name in all_names(config):
        if not exists(name):
            continue
        there = master(name)
        if there is None and belongs(name):
            try:
                enslave(name, config.bridge)
            except Failure:
                set_up(name, up=False)
                raise
            set_up(name, up=True)
        elif there is not None and not is_away(name, config) and not is_up(name):
            set_up(name, up=True)


def unplug(config: Settings) -> None:
    """A port outside the bridge is an interface of the hypervisor like any other: without rules it must not be up."""
    for name in strays(config):
        set_up(name, up=False)


def loose(config: Settings) -> list[str]:
    """Ports in no bridge that could be in the lab's; one that is down was taken out on purpose, or cannot be put in."""
    if not is_up(config.bridge):
        return []
    # Up is asked first: a port comes up after it was put in, and is not to be seen halfway.
    could = [name for name in all_names(config) if exists(name) and is_up(name) and belongs(name)]
    return [name for name in could if master(name) is None]


def up(config: Settings) -> list[str]:
    """Of the bridge, its ports and the guests' ports those that are up."""
    found = [config.bridge, *members(config.bridge), *all_names(config)]
    return [name for name in dict.fromkeys(found) if exists(name) and is_up(name)]


def close(names: list[str]) -> None:
    """These down; Failure, when all have been tried, for what stays up."""
    failures = []
    for name in names:
        try:
            set_up(name, up=False)
        except Failure as error:
            failures.append(str(error))
    if failures:
        raise Failure("; ".join(failures))
