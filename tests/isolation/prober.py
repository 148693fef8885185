"""Knock at everything that is denied, 500 times a second each, and say what got through and for how long.

Usage: prober.py LAB_ID; prints `up` once it runs. A line on its standard input begins a phase of that name, its end
ends the program with a JSON report by phase. As a module: `with probing(LAB_ID) as probe: probe.phase("NAME") ...`
fills `probe.reports` when the block ends.

One process holds sockets in several of the lab's namespaces: frames go out by packet sockets of the agent, the log's
machine, the LAN and the other lab; packet sockets there see what arrives, and on the hypervisor raw sockets, which get
what INPUT has let pass. Each frame carries the class and number of its round, so an arrival tells when it was sent.
A window is the time from the first frame that got through to the next that did not: an upper bound on how long the
way was open. Only the standard library.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "roles" / "verify" / "files"))

import attacks
import knocks

INTERVAL = 0.002
LOOK_AGAIN = 10  # rounds after which the hypervisor's addresses and namespace are looked at anew
MAGIC = b"<gl" + os.urandom(5)  # of this run: an ICMP error may quote a frame of an earlier one seconds later
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_RCVBUFFORCE, SIOCGIFHWADDR = 33, 0x8927
Report = dict[str, Any]


def mark(number: int, tick: int) -> bytes:
    """What a frame carries: the number of its class and of its round, and the complement, which keeps checksums."""
    return MAGIC + struct.pack("!HII", number, tick, tick ^ 0xFFFFFFFF)


@contextmanager
def inside(where: Path) -> Iterator[None]:
    """Run the block in that network namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    target = os.open(where, os.O_RDONLY)
    try:
        os.setns(target, os.CLONE_NEWNET)
        yield
    finally:
        os.setns(home, os.CLONE_NEWNET)
        os.close(target)
        os.close(home)


def packet_socket(interface: str = "", protocol: int = 0) -> socket.socket:
    """A packet socket of the namespace we are in: to send on an interface, or to see all that arrives."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    one.setblocking(False)
    if interface:
        one.bind((interface, protocol))
    if protocol:
        one.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)
    return one


class Hypervisor:
    """What the prober sees of the hypervisor: what its INPUT passes, and its bridges' MACs. A reboot makes it anew."""

    def __init__(self, where: Path) -> None:
        self.where, self.inode = where, 0
        self.sinks: list[socket.socket] = []
        self.macs: dict[str, bytes] = {}
        self.look()

    def look(self) -> bool:
        """Look again; whether sockets were opened anew or a bridge has another MAC."""
        before = self.inode, dict(self.macs)
        # While the hypervisor reboots there is nothing to be seen, and nothing to get through to.
        with suppress(OSError):
            if (inode := self.where.stat().st_ino) != self.inode:
                with inside(self.where):
                    opened = [self._raw(family) for family in (socket.AF_INET, socket.AF_INET6)]
                for one in self.sinks:
                    one.close()
                self.sinks, self.inode = opened, inode
            for bridge in {*knocks.GATEWAYS.values(), knocks.INNER_BRIDGE}:
                self.macs.pop(bridge, None)
                order = struct.pack("16s16x", bridge.encode("ascii"))
                with suppress(OSError):
                    self.macs[bridge] = fcntl.ioctl(self.sinks[0], SIOCGIFHWADDR, order)[18:24]
        return before != (self.inode, self.macs)

    @staticmethod
    def _raw(family: int) -> socket.socket:
        one = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_UDP)
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 23)
        return one


class Prober:
    """Sends and watches, in one thread."""

    def __init__(self, lab_id: str) -> None:
        places = {name: Path("/run/netns") / f"{lab_id}-{name}" for name in (*knocks.SENDERS, "lan", "internet")}
        self.hypervisor = Hypervisor(Path("/run/netns") / f"{lab_id}-pve")
        self.wires, self.sinks, self.own = {}, {}, {}
        for name, where in places.items():
            with inside(where):
                self.sinks[name] = packet_socket(protocol=0x0003)
                if name in knocks.SENDERS:
                    wire = self.wires[name] = packet_socket("eth0")
                    self.own[name] = wire.getsockname()[4]
        self.frames: list[list[tuple[str, bytes, bytes]]] = []
        self.sent_at: list[float] = []
        self.unsent: list[list[int]] = [[] for _ in knocks.CLASSES]
        self.through: list[dict[int, str]] = [{} for _ in knocks.CLASSES]
        self.build()

    def build(self) -> None:
        """The frames of each class, whole but for the round's number."""
        self.frames = []
        for number, one in enumerate(knocks.CLASSES):
            found = []
            for sender, stack in one.frames:
                macs = {name: self.own[name].hex() for name in self.own}
                for name, bridge in (("gateway", knocks.GATEWAYS[sender]), ("inner", knocks.INNER_BRIDGE)):
                    macs[name] = self.hypervisor.macs.get(bridge, bytes(6)).hex()
                data = attacks.layers(stack, mark(number, 0), self.own[sender], macs)
                head, _, tail = data.partition(mark(number, 0))
                found.append((sender, head, tail))
            self.frames.append(found)

    def round(self) -> None:
        """One frame of each class."""
        tick = len(self.sent_at)
        self.sent_at.append(time.monotonic())
        for number, frames in enumerate(self.frames):
            sender, head, tail = frames[tick % len(frames)]
            try:
                self.wires[sender].send(head + mark(number, tick) + tail)
            except OSError:  # the cable is being plugged, or its queue is full
                self.unsent[number].append(tick)

    def watch(self, seconds: float) -> None:
        """Take what arrives within that time."""
        named = {one: name for name, one in self.sinks.items()} | dict.fromkeys(self.hypervisor.sinks, "pve")
        until = time.monotonic() + seconds
        while True:
            for one in select.select(list(named), [], [], max(0.0, until - time.monotonic()))[0]:
                with suppress(OSError):
                    self.take(named[one], one.recv(2048))
            if time.monotonic() >= until:
                return

    def take(self, sink: str, data: bytes) -> None:
        """Note an arrival, where its class is denied there."""
        at = data.find(MAGIC)
        if at < 0 or len(data) < at + len(MAGIC) + 6:
            return
        number, tick = struct.unpack_from("!HI", data, at + len(MAGIC))
        if number < len(knocks.CLASSES) and sink in knocks.CLASSES[number].sinks:
            self.through[number].setdefault(tick, sink)

    def run(self) -> dict[str, Report]:
        """Knock until standard input ends."""
        phases: list[tuple[str, int]] = []
        began = time.monotonic()
        print("up", flush=True)
        while True:
            if len(self.sent_at) % LOOK_AGAIN == 0:
                if select.select([sys.stdin], [], [], 0)[0]:
                    if not (line := sys.stdin.readline()):
                        break
                    phases.append((line.strip(), len(self.sent_at)))
                    print(line, end="", flush=True)
                if self.hypervisor.look():
                    self.build()
            self.round()
            # Late rounds are not made up for: a burst would tell nothing of the time it is late.
            self.watch(INTERVAL - (time.monotonic() - began) % INTERVAL)
        self.watch(0.3)  # what is on its way arrives
        ends = [first for _, first in phases[1:]] + [len(self.sent_at)]
        return {name: self.report(first, end) for (name, first), end in zip(phases, ends, strict=True)}

    def report(self, first: int, end: int) -> Report:
        """What got through of these rounds, by class."""
        classes = {}
        for number, one in enumerate(knocks.CLASSES):
            ticks = [tick for tick in sorted(self.through[number]) if first <= tick < end]
            windows = self.windows(ticks, 2 * len(one.frames))
            classes[one.name] = {
                "layer": one.layer,
                "sent": end - first - sum(first <= tick < end for tick in self.unsent[number]),
                "through": len(ticks),
                "frames": sorted({f"{tick % len(one.frames)} at {self.through[number][tick]}" for tick in ticks}),
                "window_ms": max((round(width, 1) for _, width in windows), default=0.0),
            }
        times = self.sent_at[first:end]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        pace = {"rounds": end - first, "longest_pause_ms": round(1000 * max(gaps, default=0), 1)}
        return {"seconds": round(times[-1] - times[0], 2) if times else 0.0, **pace, "classes": classes}

    def windows(self, ticks: list[int], patience: int) -> list[tuple[float, float]]:
        """(begin, width) in ms of each run of rounds that got through; so many in between may not have."""
        found: list[tuple[int, int]] = []
        for tick in ticks:
            if found and tick - found[-1][1] <= patience:
                found[-1] = found[-1][0], tick
            else:
                found.append((tick, tick))
        ends = [*self.sent_at, time.monotonic()]
        return [(1000 * (ends[a] - ends[0]), 1000 * (ends[b + 1] - ends[a])) for a, b in found]


class Probe:
    """A running prober, as its caller sees it; `reports` has one a phase once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.reports: dict[str, Report] = {}

    def phase(self, name: str) -> None:
        """What is seen from now on belongs to that phase."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{name}\n", "the prober has ended"


@contextmanager
def probing(lab_id: str) -> Iterator[Probe]:
    """Run the prober beside the block."""
    command = [sys.executable, str(Path(__file__).resolve()), lab_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n", "the prober did not start"
            probe = Probe(process)
            yield probe
        except BaseException:
            process.kill()
            raise
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0, f"the prober ended with {process.returncode}"
    probe.reports |= json.loads(out)


if __name__ == "__main__":
    print(json.dumps(Prober(sys.argv[1]).run()))
