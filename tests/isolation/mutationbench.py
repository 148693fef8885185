"""Applies mutants of the walls one by one and says what noticed: an attack that gets through, or a flow that breaks.

A mutant that nothing notices may be defence in depth: defence.py names the layer that holds in its place. That claim is
proven here: with the named layer taken away the mutant must make a difference, against the layer's absence alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import flowprobes
from attackrows import ROWS
from defence import HELD, LAYERS, Claim
from firewalls import FWBR
from isolationtools import LOADER, pve
from mutations import Mutant
from observing import observe

WATCH = "glasslab-network-watch.service glasslab-network-heal.timer"
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
Signs = frozenset[str]


@dataclass
class Result:
    """What became of a mutant: `caught`, `held` (elsewhere, and proven) or `survived`."""

    mutant: Mutant
    verdict: str
    signs: list[str] = field(default_factory=list)
    held_by: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """For a report."""
        why = f"{self.held_by}; then " if self.held_by else ""
        more = f" and {len(self.signs) - 2} more" if len(self.signs) > 2 else ""
        return f"{self.verdict:<8} {self.mutant.name}  [{why}{'; '.join(self.signs[:2])}{more}]"


class Bench:
    """The lab with the watcher out of the way, in one mode."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.alone: dict[tuple[str, tuple[str, ...]], Signs] = {}

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """While the block runs nothing puts rules back but this program."""
        pve(f"systemctl stop {WATCH}")
        try:
            yield
        finally:
            pve(f"{LOADER} apply; systemctl start {WATCH}")

    @contextmanager
    def topology(self, name: str) -> Iterator[None]:
        """The guests' ports as that name says."""
        pve(f"{FWBR} plug; {LOADER} apply" if name == "fwbr" else "true")
        try:
            yield
        finally:
            pve(f"{FWBR} unplug; {LOADER} apply" if name == "fwbr" else "true")

    def signs(self, topology: str, *commands: str) -> Signs:
        """What can be seen with these changes made; afterwards all is as it was."""
        changes = "\n".join([LOOSE if topology == "loose" else "", *commands])
        try:
            pve(f"set -e\n{changes}")
            return self.look(flows=topology != "loose")
        finally:
            pve((NOT_LOOSE if topology == "loose" else "") + f"{LOADER} apply")

    def look(self, *, flows: bool) -> Signs:
        """Which attacks get through and which flows are broken."""
        seen = observe(ROWS, self.mode)
        found = {f"open: {name}" for name, one in seen.items() if one.verdict == "reachable"}
        if not flows:
            return frozenset(found)
        return frozenset(found | {f"broken: {line}" for line in flowprobes.broken(self.mode)})

    def without(self, topology: str, layers: tuple[str, ...]) -> Signs:
        """What can be seen with those layers taken away and no mutant."""
        if (topology, layers) not in self.alone:
            self.alone[topology, layers] = self.signs(topology, *(LAYERS[layer] for layer in layers))
        return self.alone[topology, layers]

    def judge(self, mutant: Mutant) -> Result:
        """Apply one mutant, and where nothing notices, prove or refute what is claimed to hold."""
        began = time.monotonic()
        signs = self.signs(mutant.topology, mutant.command) ^ self.without(mutant.topology, ())
        result = Result(mutant, "caught" if signs else "survived", sorted(signs))
        if not signs and (claim := claim_of(mutant)):
            taken = [LAYERS[layer] for layer in claim.layers]
            signs = self.signs(mutant.topology, *taken, mutant.command) ^ self.without(mutant.topology, claim.layers)
            result.held_by = f"held by {' and '.join(claim.layers)}"
            result.signs = sorted(signs) or ["nothing even so"]
            result.verdict = "held" if signs else "survived"
        result.seconds = time.monotonic() - began
        return result


def claim_of(mutant: Mutant) -> Claim | None:
    """What defence.py says of a mutant."""
    return next((claim for claim in HELD if claim.fits(mutant.name)), None)
