"""Netlink in Python: what the kernel is asked, told and heard of without starting a program.

Used where time counts (the watcher) and where no program may be needed (closing the guests' ports).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

ROUTE, NETFILTER = socket.NETLINK_ROUTE, 12
REQUEST, ACK, DUMP, CREATE_NEW = 0x1, 0x4, 0x300, 0x400 | 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
NESTED, TYPE_MASK = 0x8000, 0x3FFF
SOL_NETLINK, ADD_MEMBERSHIP, SO_RCVBUFFORCE = 270, 1, 33
# linux/rtnetlink.h, linux/netfilter/nfnetlink.h: groups by number
GROUPS = {ROUTE: (1, 5, 8, 9, 12, 19, 24, 25), NETFILTER: (7,)}  # link, of v4 and v6 ifaddr, rule, netconf, v6 ifinfo
NFT_SUBSYSTEM = 10
NFT_GETTABLE, NFT_NEWCHAIN, NFT_DELCHAIN, NFT_NEWRULE, NFT_DELRULE = 1, 3, 5, 6, 8
NFT_NEWGEN, NFT_GETGEN = 15, 16
FAMILIES = {2: "ip", 10: "ip6", 7: "bridge", 1: "inet", 3: "arp", 5: "netdev"}
HEADER = struct.Struct("=IHHII")

Message = tuple[int, bytes]  # type, and what follows the header
Attribute = tuple[int, bytes]


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> Iterator[Attribute]:
    """The attributes in data, nested ones as they are."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            return
        yield kind & TYPE_MASK, data[4:length]
        data = data[(length + 3) & ~3 :]


def messages(data: bytes) -> Iterator[Message]:
    """The messages in one datagram."""
    while len(data) >= HEADER.size:
        length, kind, _, _, _ = HEADER.unpack_from(data)
        if not HEADER.size <= length <= len(data):
            return
        yield kind, data[HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def request(protocol: int, kind: int, body: bytes, flags: int = ACK) -> list[Message]:
    """Ask or tell the kernel; its answers. Raises OSError with the kernel's number when it refuses."""
    found: list[Message] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as link:
        link.settimeout(5)
        link.send(HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body)
        while True:
            for answer, data in messages(link.recv(1 << 18)):
                if answer == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", data)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return found
                if answer == NLMSG_DONE:
                    return found
                found.append((answer, data))
                if not flags & (ACK | DUMP):
                    return found


def _nft(message: int, flags: int) -> list[Message]:
    return request(NETFILTER, NFT_SUBSYSTEM << 8 | message, struct.pack("=BBH", 0, 0, 0), flags)


def nft_generation() -> int | None:
    """A number that changes with every change of any nftables rule; None when the kernel does not tell."""
    try:
        for _, data in _nft(NFT_GETGEN, 0):
            for kind, value in attributes(data[4:]):
                if kind == 1:
                    return int.from_bytes(value, "big")
    except OSError:
        pass
    return None


def nft_tables() -> dict[str, bool]:
    """The tables there are, such as `ip filter`, and whether each is dormant: no packet asks its rules."""
    found = {}
    for _, data in _nft(NFT_GETTABLE, DUMP):
        told = dict(attributes(data[4:]))
        name = told.get(1, b"").rstrip(bytes(1)).decode(errors="replace")
        flags = int.from_bytes(told.get(2, b""), "big")
        found[f"{FAMILIES.get(data[0], str(data[0]))} {name}"] = bool(flags & 1)
    return found


def nft_event(message: Message) -> tuple[int, str, str] | None:
    """(kind, table, chain) of an nftables event, chain only for rules and chains; None for anything else."""
    kind, data = message
    if kind >> 8 != NFT_SUBSYSTEM or len(data) < 4:
        return None
    kind &= 0xFF
    found = dict(attributes(data[4:]))
    chain = found.get({NFT_NEWCHAIN: 3, NFT_DELCHAIN: 3, NFT_NEWRULE: 2, NFT_DELRULE: 2}.get(kind, -1), b"")
    table = b"" if kind == NFT_NEWGEN else found.get(1, b"")
    names = [name.rstrip(bytes(1)).decode(errors="replace") for name in (table, chain)]
    return kind, f"{FAMILIES.get(data[0], str(data[0]))} {names[0]}", names[1]


def listen(protocol: int) -> socket.socket:
    """A socket on which the kernel reports changes (GROUPS); it does not block."""
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
    heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
    heard.bind((0, 0))
    for group in GROUPS[protocol]:
        heard.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, group)
    return heard


def drain(heard: socket.socket) -> tuple[list[Message], bool]:
    """What has been reported since the last look, and whether reports were lost."""
    found: list[Message] = []
    lost = False
    while len(found) < 20_000:
        try:
            found += messages(heard.recv(1 << 18))
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            lost = True
    return found, lost
