"""The flows that must work, carried out for real: what is closed too far is noticed as surely as what is open.

From the agent: the model's name looked up and its API spoken to over TLS under that name, the log likewise. From the
hypervisor: its guests. From outside: the hypervisor's management, and what it forwards for its other bridges. All of
it by this process, in the machines' network namespaces: a mutant takes milliseconds to be looked at.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from labtools import LAB_ID, STATE
from prober import inside

IP_RECVERR = 11  # linux/in.h; Python has a name for it since 3.14
RESOLVER, MODEL = "203.0.113.53", "model.glasslab.test"
Flow = tuple[str, str, Callable[[float], None]]  # the namespace, a name, and what fails when the flow is broken


def tcp(address: str, port: int) -> Callable[[float], None]:
    """A connection."""
    return lambda patience: socket.create_connection((address, port), patience).close()


def tls(address: str, port: int, name: str) -> Callable[[float], None]:
    """A TLS session with the one who has that name's certificate; without an address, the resolver is asked for it."""

    def speak(patience: float) -> None:
        context = ssl.create_default_context(cafile=str(STATE / "ca" / "ca.crt"))
        where = address or lookup(name, socket.SOCK_DGRAM, patience)
        with socket.create_connection((where, port), patience) as one:
            context.wrap_socket(one, server_hostname=name).close()

    return speak


def lookup(name: str, kind: socket.SocketKind, patience: float) -> str:
    """The address that the resolver gives for a name."""
    number = os.urandom(2)
    labels = b"".join(bytes([len(one)]) + one.encode("ascii") for one in name.split("."))
    asked = number + b"\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
    framed = kind == socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as one:
        one.settimeout(patience)
        one.connect((RESOLVER, 53))
        one.send(struct.pack("!H", len(asked)) + asked if framed else asked)
        answer = one.recv(4096)[2 if framed else 0 :]
    if answer[:2] != number or answer[6:8] == b"\0\0":
        raise OSError("no address in the answer")
    return socket.inet_ntoa(answer[-4:])


def resolver_over_tcp(patience: float) -> None:
    """A lookup over TCP."""
    lookup(MODEL, socket.SOCK_STREAM, patience)


def echo(address: str) -> Callable[[float], None]:
    """An echo request, answered."""

    def ask(patience: float) -> None:
        body = os.urandom(8)
        head = struct.pack("!BBHHH", 8, 0, 0, 0x474C, 1)
        words = struct.unpack("!8H", head + body)
        total = sum(words)
        total = (total & 0xFFFF) + (total >> 16)
        checked = head[:2] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[4:] + body
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as one:
            one.settimeout(patience)
            one.sendto(checked, (address, 0))
            while body not in (answer := one.recv(512)) or answer[20] != 0:
                pass

    return ask


def refused(address: str) -> Callable[[float], None]:
    """A datagram to a port where nobody listens: the ICMP error comes back."""

    def ask(patience: float) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(patience)
            one.connect((address, 9))
            one.send(b"glasslab")
            try:
                one.recv(16)
            except ConnectionRefusedError:
                return

    return ask


def too_far(address: str, hops: int) -> Callable[[float], None]:
    """A datagram with so many hops to live: the router where they end says so."""

    def ask(patience: float) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(patience)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
            one.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            one.connect((address, 9))
            one.send(b"glasslab")
            try:
                one.recv(16)
            except OSError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise

    return ask


LOG: Flow = ("agent", "the log", tls("10.10.10.20", 8088, "10.10.10.20"))
OUTWARD: tuple[Flow, ...] = (
    ("agent", "the model by its name", tls("", 443, MODEL)),
    ("agent", "the resolver over TCP", resolver_over_tcp),
)
# Where the internet is reached by NAT: its errors come back to the guest.
BY_NAT: tuple[Flow, ...] = (
    ("agent", "a port of the internet's that is closed", refused("203.0.113.80")),
    ("agent", "a router's word that it was too far", too_far("203.0.113.80", 2)),
)
IN_EVERY_MODE: tuple[Flow, ...] = (
    LOG,
    ("pve", "SSH of the agent", tcp("10.10.10.10", 22)),
    ("pve", "an echo of the agent", echo("10.10.10.10")),
    ("pve", "a port of the agent that is closed", refused("10.10.10.10")),
    ("pve", "a port of the log's machine that is closed", refused("10.10.10.20")),
    ("pve", "the log's searches", tls("10.10.10.20", 8089, "10.10.10.20")),
    ("pve", "the LAN", tcp("192.168.50.10", 80)),
    ("pve", "the other lab", tcp("10.20.20.10", 80)),
    ("ctl", "management", tcp("192.168.50.2", 22)),
    ("ctl", "the web interface", tcp("192.168.50.2", 8006)),
    ("ctl", "the other lab", tcp("10.20.20.10", 80)),
    ("otherlab", "its gateway", tcp("10.20.20.1", 8006)),
)


def at_a_time(tried: int = 280) -> int:
    """How many of so many questions from ports of their own the resolver answers, asked by the agent within moments."""
    asked = b"gl\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(one)]) + one.encode() for one in MODEL.split("."))
    with inside(Path("/run/netns") / f"{LAB_ID}-agent"):
        lookup(MODEL, socket.SOCK_DGRAM, 1.0)  # from here on the gateway's address is known
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(tried)]
    answered: set[socket.socket] = set()

    def take(patience: float) -> None:
        while ready := select.select([one for one in sockets if one not in answered], [], [], patience)[0]:
            answered.update(ready)

    # All of them at once would be more than the resolver's socket holds while it waits for its turn on a busy machine.
    for batch in itertools.batched(sockets, 40):
        for one in batch:
            one.sendto(asked + b"\0\0\1\0\1", (RESOLVER, 53))
        take(0.05)
    take(0.8)
    for one in sockets:
        one.close()
    return len(answered)


def broken(mode: str = "allowlist", patience: float = 0.7, *, but: tuple[str, ...] = ()) -> list[str]:
    """The flows that do not work in that mode; waits so many seconds for each, and leaves out those that are named."""
    flows = [*IN_EVERY_MODE, *(() if mode == "closed" else OUTWARD), *(BY_NAT if mode == "open" else ())]
    flows = [one for one in flows if f"{one[0]}: {one[1]}" not in but]

    def problem(flow: Flow) -> str:
        place, name, carry_out = flow
        try:
            with inside(Path("/run/netns") / f"{LAB_ID}-{place}"):
                carry_out(patience)
        except OSError as error:
            return f"{place}: {name}: {error}"
        return ""

    # The agent's first: what it cannot find out by itself, nobody's question has told it yet.
    found = []
    for here in ([one for one in flows if one[0] == "agent"], [one for one in flows if one[0] != "agent"]):
        with ThreadPoolExecutor(len(here)) as pool:
            found += [line for line in pool.map(problem, here) if line]
    return found
