"""Applies mutants of the walls one by one and says what noticed: an attack that gets through, or a flow that breaks.

A mutant that nothing notices may be defence in depth: defence.py names the layer that holds in its place. That claim is
proven here: with the named layer taken away the mutant must make a difference, against the layer's absence alone.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import flowprobes
import logsigns
from attackrows import ROWS as ATTACKS
from defence import HELD, LAYERS, Claim
from firewalls import FWBR
from forging import HELD as HELD_PORT
from isolationtools import LOADER, PLACES, errors_unlimited, nobody_mends, pve, sysctl_at, wait_for
from labtools import LAB_ID
from mutantrows import INNER
from mutantrows import ROWS as MORE
from mutations import Mutant
from observing import LINKS, observe

# The port outside its bridge, reached under the address that the guest has for its gateway.
LOOSE = """
cat /sys/class/net/tap101i0/address >/run/tap101i0.address
ip link set tap101i0 nomaster
ip link set tap101i0 down
ip link set tap101i0 address $(cat /sys/class/net/vmbr1/address) up
"""
NOT_LOOSE = """
ip link set tap101i0 down
ip link set tap101i0 address $(cat /run/tap101i0.address)
rm /run/tap101i0.address
"""
FILTER = "for call in iptables ip6tables; do echo {} >/proc/sys/net/bridge/bridge-nf-call-$call; done"
# How each topology is set up, and how it is taken back. `loose` and `third` are made anew for each mutant.
TOPOLOGIES = {
    "plain": ("true", "true"),
    "filtered": (FILTER.format(1), FILTER.format(0)),  # bridged frames pass iptables
    "fwbr": (f"{FWBR} plug", f"{FWBR} unplug"),  # Proxmox's bridges between
    "inner": (f"{FWBR} plug; {FILTER.format(1)}", f"{FWBR} unplug; {FILTER.format(0)}"),
    "loose": ("true", "true"),  # the agent's port outside its bridge
    "third": ("true", "true"),  # the other lab's port in the lab's bridge
}
ROWS = (*ATTACKS, *MORE)
THIRD = "ip link set tap201i0 master vmbr1 up"
NOT_THIRD = "ip link set tap201i0 master vmbr2 up"
# The agent's many flows, and connections that were made up, are forgotten again.
FORGET = "for end in -s -d; do conntrack -D $end 10.10.10.10; done >/dev/null 2>&1 || :"
# How many are tracked in the bridge of Proxmox's firewall, whose zone is its own.
OWN = "conntrack -L --zone 71 --orig-src 10.10.10.10 2>/dev/null | wc -l"
# What others sent to the port of the agent's connection while it had none would be a connection of theirs.
UNHELD = f"conntrack -D -p tcp --orig-port-dst {HELD_PORT} >/dev/null 2>&1 || :"
ANSWERING = (("exec", "agent"), ("exec", "pve"), ("ns-exec", "internet"), ("ns-exec", "lan"))
BOUND = 256
Signs = frozenset[str]


@dataclass
class Result:
    """What became of a mutant: `caught`, `held` (elsewhere, proven), `explained` or `survived`."""

    mutant: Mutant
    verdict: str
    signs: list[str] = field(default_factory=list)
    held_by: str = ""
    seconds: float = 0.0
    tries: int = 1

    def line(self) -> str:
        """For a report."""
        why = "in the second try; " if self.tries > 1 else ""
        why += f"{self.held_by}; then " if self.held_by else ""
        more = f" and {len(self.signs) - 2} more" if len(self.signs) > 2 else ""
        return f"{self.verdict:<9} {self.mutant.name}  [{why}{'; '.join(self.signs[:2])}{more}]"


class Bench:
    """The lab with the watcher out of the way, in one mode."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.alone: dict[tuple[str, tuple[str, ...], bool], tuple[Signs, Signs]] = {}

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """While the block runs nothing puts rules back but this program."""
        with (
            nobody_mends(),
            errors_unlimited(*ANSWERING),
            # A guest that a mutant let somebody call would answer that call for a minute, long after the mutant.
            sysctl_at("net.ipv4.tcp_synack_retries", 0, PLACES["agent"], PLACES["logs"]),
        ):
            try:
                yield
            finally:
                pve(f"{LOADER} apply")

    @contextmanager
    def topology(self, name: str) -> Iterator[None]:
        """The guests' ports as that name says."""
        before, after = TOPOLOGIES[name]
        pve(f"{before}; {LOADER} apply")
        self.alone.clear()
        if name in ("fwbr", "inner"):
            LINKS["inner"] = ("pve", "fwbr101i0")
        # What is cut off while ports are plugged would be a sign that comes without any mutant.
        wait_for("what is needed works", lambda: not flowprobes.broken(self.mode, 2.0), 20)
        try:
            yield
        finally:
            LINKS.pop("inner", None)
            pve(f"{after}; {LOADER} apply")

    def signs(self, topology: str, layers: tuple[str, ...] = (), command: str = "", *, bounds: bool = False) -> Signs:
        """What can be seen without these layers and with that change; afterwards all is as it was."""
        before, after = {"loose": (LOOSE, NOT_LOOSE), "third": (THIRD, NOT_THIRD)}.get(topology, ("", ""))
        away = [LAYERS[layer][0] for layer in layers]
        back = [LAYERS[layer][1] for layer in layers]
        try:
            pve("\n".join(["set -e", before, *away, command]))
            return self.look(topology, bounds=bounds)
        finally:
            pve("\n".join([after, *back, f"{LOADER} apply"]))

    def look(self, topology: str, *, bounds: bool = False) -> Signs:
        """Which attacks get through, which flows are broken, what the witness writes; with `bounds` how many flows."""
        rows = (*ROWS, *INNER) if "inner" in LINKS else ROWS
        pve(UNHELD)
        forget_neighbours()
        witness = logsigns.Witness()
        logsigns.tease()
        # What came of those has told guests where their gateway is.
        forget_neighbours()
        found = {f"broken: {line}" for line in flowprobes.broken(self.mode, 0.4)} if topology != "loose" else set()
        try:
            seen = observe(rows, self.mode)
        except AssertionError as error:
            found.add(f"broken: {error}")
            seen = observe([row for row in rows if not row.connection], self.mode)
        found |= {f"open: {name} at {place(where)}" for name, one in seen.items() for where in one.seen}
        if bounds:
            pve(FORGET)
            found |= {"more flows at a time than the bound"} if flowprobes.at_a_time() > BOUND else set()
            found |= {"more connections in the agent's own bridge than the bound"} if int(pve(OWN)) > BOUND else set()
            pve(FORGET)
        return frozenset(found | witness.signs())

    def without(self, topology: str, layers: tuple[str, ...], *, bounds: bool) -> tuple[Signs, Signs]:
        """What can always, and what can at times, be seen with those layers taken away and no mutant."""
        key = topology, layers, bounds
        if key not in self.alone:
            looks = [self.signs(topology, layers, bounds=bounds) for _ in range(2)]
            self.alone[key] = frozenset.intersection(*looks), frozenset.union(*looks)
        return self.alone[key]

    def difference(self, mutant: Mutant, layers: tuple[str, ...]) -> Signs:
        """What a mutant changes of what can be seen without these layers: seen twice, and gone again without it."""
        bounds = re.search("connlimit|LIMIT", mutant.part) is not None
        always, ever = self.without(mutant.topology, layers, bounds=bounds)
        looks: list[Signs] = []
        for _ in range(2):
            looks.append(self.signs(mutant.topology, layers, mutant.command, bounds=bounds))
            if not changed(looks, always, ever):
                return frozenset()
        again = self.signs(mutant.topology, layers, bounds=bounds)
        always, ever = self.alone[mutant.topology, layers, bounds] = always & again, ever | again
        return changed(looks, always, ever)

    def judge(self, mutant: Mutant) -> Result:
        """Apply one mutant, and where nothing notices, prove or refute what is claimed to hold.

        What would survive is tried once more against looks of now: on a busy machine a flow is late at times, and one
        that was late without a mutant is no sign of it from then on.
        """
        result = self.judge_once(mutant)
        if result.verdict == "survived":
            self.alone.clear()
            first, result = result, self.judge_once(mutant)
            result.seconds += first.seconds
            result.tries = 2
        return result

    def judge_once(self, mutant: Mutant) -> Result:
        """The verdict of one try."""
        began = time.monotonic()
        signs = self.difference(mutant, ())
        result = Result(mutant, "caught" if signs else "survived", sorted(signs))
        if not signs and (claim := claim_of(mutant, self.mode)):
            result.held_by = f"held by {' and '.join(claim.layers) or claim.why}"
            result.verdict = "explained"
            if claim.layers:
                signs = self.difference(mutant, claim.layers)
                result.signs = sorted(signs) or ["nothing even so"]
                result.verdict = "held" if signs else "survived"
        result.seconds = time.monotonic() - began
        return result


def changed(looks: list[Signs], always: Signs, ever: Signs) -> Signs:
    """What each of the looks has and none ever had without the mutant, and what is gone in each of them."""
    there = frozenset.intersection(*looks) - ever
    return there | {f"gone: {sign}" for sign in always - frozenset.union(*looks)}


def place(where: str) -> str:
    """Where something was seen, and as whose: its answers differ from time to time."""
    name, _, rest = where.partition(" ")
    return where if rest.startswith("from ") and name != "reply" else name


def forget_neighbours() -> None:
    """Let each machine ask again where the others are. The hypervisor first: its own question tells where it is."""
    for machine in ("pve", "agent", "logs"):
        command = ["ip", "-n", f"{LAB_ID}-{machine}", "neighbour", "flush", "all"]
        subprocess.run(command, check=False, capture_output=True)


def claim_of(mutant: Mutant, mode: str) -> Claim | None:
    """What defence.py says of a mutant."""
    return next((claim for claim in HELD if claim.fits(mutant.name, mode)), None)
