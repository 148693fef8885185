"""Defence in depth, as claims that test_mutations.py proves: which layer holds where a part of another one is missing.

A claim's layers are those that close the same way; with all of them away, and not before, the part that it is about
decides alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# How each layer is taken away as a whole.
LAYERS = {
    "policy routes": "for at in 0 1 2 3 4; do while ip rule delete pref 470$at 2>/dev/null; do :; done; done",
    "policy routes v6": "while ip -6 rule delete pref 4701 2>/dev/null; do :; done",
    "filter FORWARD": "for way in i o; do iptables -D FORWARD -$way vmbr1 -j GLASSLAB-FORWARD; done",
    "filter INPUT": "iptables -D INPUT -i vmbr1 -j GLASSLAB-INPUT",
    "raw sources": "iptables -t raw -D PREROUTING -i vmbr1 -j GLASSLAB-RAW",
    "raw ports": "iptables -t raw -F GLASSLAB-PORTS",
    "raw v6": "ip6tables -t raw -F GLASSLAB-RAW; ip6tables -t raw -F GLASSLAB-PORTS",
    "filter v6": "ip6tables -F GLASSLAB-FORWARD; ip6tables -F GLASSLAB-OUTPUT",
    "IPv6 off": "echo 0 >/proc/sys/net/ipv6/conf/vmbr1/disable_ipv6",
    "bridge entering": "nft flush chain bridge glasslab prerouting",
    "bridge between": "nft flush chain bridge glasslab forward",
}


@dataclass(frozen=True)
class Claim:
    """Mutants whose name matches are held by these layers, for this reason."""

    mutants: str
    layers: tuple[str, ...]
    why: str

    def fits(self, name: str) -> bool:
        """Whether the claim is about that mutant."""
        return re.search(self.mutants, name) is not None


HELD: tuple[Claim, ...] = ()
