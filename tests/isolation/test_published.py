"""The negative control: the same attacks on the published rules (a fixture), and on no rules at all.

Each row that our own rules close must be found open wherever the published rules leave it open, and nowhere else: so a
row that is blocked under ours is blocked by them, and not for want of a probe that works.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import observing
from attackrows import ROWS
from isolationtools import LOADER, PLACES, errors_unlimited, nobody_mends, pve, run, wait_for
from kernel_modules import load_br_netfilter

RULES = (Path(__file__).parent / "published" / "rules.sh").read_text(encoding="utf-8")
CALLS = ("iptables", "ip6tables", "arptables")
SYSCTLS = {
    "rp_filter": ("net.ipv4.conf.all.rp_filter", "net.ipv4.conf.vmbr1.rp_filter"),
    "source_route": ("net.ipv4.conf.all.accept_source_route", "net.ipv4.conf.vmbr1.accept_source_route"),
    "forwarding6": ("net.ipv6.conf.all.forwarding", "net.ipv6.conf.default.forwarding"),
    "br_netfilter": tuple(f"net.bridge.bridge-nf-call-{call}" for call in CALLS),
}
# Settings of the hypervisor under which the rules differ, beside br_netfilter.
ROUNDS = {
    "as installed": {"rp_filter": 0, "source_route": 0, "forwarding6": 0},
    "rp_filter loose, source routes, IPv6 forwarding": {"rp_filter": 2, "source_route": 1, "forwarding6": 1},
    "rp_filter strict": {"rp_filter": 1, "source_route": 0, "forwarding6": 0},
}


def fixture(verb: str) -> None:
    """Carry out a verb of the published rules on the hypervisor."""
    run(PLACES["hypervisor"], "sh", "-s", verb, stdin=RULES)


def setting(values: dict[str, int]) -> None:
    """Give the hypervisor's settings these values."""
    pve("sysctl -qw " + " ".join(f"{name}={value}" for what, value in values.items() for name in SYSCTLS[what]))


def plugged() -> bool:
    """Whether the guests' ports are in the bridge."""
    return all(f"{port}\n" in pve("ls /sys/class/net/vmbr1/brif") for port in ("tap101i0", "tap102i0"))


@pytest.fixture(scope="module")
def no_rules() -> Iterator[None]:
    """The lab with a bridge that has no rules; afterwards with ours again, whatever happened."""
    load_br_netfilter()
    assert pve(f"{LOADER} check") == "as loaded\n"
    outside = [name for names in SYSCTLS.values() for name in names if "vmbr1" not in name]
    former = " ".join(pve(f"sysctl {' '.join(outside)}").replace(" = ", "=").split())
    try:
        with nobody_mends():
            try:
                pve(f"ifdown vmbr1; {LOADER} remove; ip link delete vmbr1 2>/dev/null || true")
                fixture("bridge")
                wait_for("the guests are plugged in", plugged)
                with errors_unlimited(PLACES["hypervisor"]):
                    yield
            finally:
                fixture("unload")
                pve(f"sysctl -qw {former}; ifup vmbr1", check=False)
    finally:
        wait_for("the walls stand again", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 10)


@pytest.fixture(scope="module")
def published(no_rules: None) -> None:
    """The published rules in place of ours; they go with the bridge."""
    fixture("load")


def wrong(settings: dict[str, int], expected: dict[str, bool], mode: str = "open") -> list[str]:
    """One line a row that is not open or closed as expected under these settings."""
    setting(settings)
    rows = {row.id: row for row in ROWS}
    return [
        f"{name} ({rows[name].title}): {one.verdict} {' '.join(one.seen)}{one.why}"
        for name, one in observing.observe(ROWS, mode).items()
        if one.verdict != ("reachable" if expected[name] else "blocked")
    ]


@pytest.mark.parametrize("br_netfilter", [0, 1])
def test_without_rules_every_probe_arrives(no_rules: None, br_netfilter: int) -> None:
    """All but what the kernel itself refuses: so no row is blocked for want of a probe that works."""
    settings = {"rp_filter": 0, "source_route": 1, "forwarding6": 1, "br_netfilter": br_netfilter}
    # Nothing masquerades, so there is no connection to the outside either, as in the mode `closed`.
    found = wrong(settings, {row.id: row.open_without_rules(settings) for row in ROWS}, "closed")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("br_netfilter", [0, 1])
@pytest.mark.parametrize("name", ROUNDS)
def test_exactly_the_known_holes(published: None, name: str, br_netfilter: int) -> None:
    """Those that the published rules have, and none besides."""
    settings = {**ROUNDS[name], "br_netfilter": br_netfilter}
    found = wrong(settings, {row.id: row.open_under_published(settings) for row in ROWS})
    assert not found, "\n".join(found)
