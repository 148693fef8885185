"""Whatever happens to the hypervisor's rules: nothing is forwarded, and what rules alone close is closed again at once.

A prober knocks at every denied destination 500 times a second while it happens. What holds by routes lets not one
packet through; what holds by rules is open until the watcher has put them back. That time is measured here, and bounded
loosely, for machines are slow at times: bench/windows.py gives its distribution.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import firewalls
import flowprobes
from firewalls import FIREWALLS, Firewall
from isolationtools import LOADER, PLACES, managed, nobody_mends, pve, reboots, run, wait_for
from labtools import LAB_ID
from modes import hypervisor_in
from prober import Probe, Report, probing

AT_MOST_MS = 1000.0
SETTLE = 0.1  # seconds after the walls stand again that still belong to the event
EVENTS = {
    "ifreload -a": "ifreload -a",
    "systemctl restart networking": "systemctl restart networking",
    "nft flush ruleset": "nft flush ruleset",
    **{f"iptables -t {table} -F": f"iptables -t {table} -F" for table in ("raw", "mangle", "nat", "filter")},
    "ip6tables -F": "ip6tables -F; ip6tables -t raw -F",
    "nft delete table bridge glasslab": "nft delete table bridge glasslab",
    **{f"iptables -P {chain} ACCEPT": f"iptables -P {chain} ACCEPT" for chain in ("INPUT", "FORWARD")},
    **{f"iptables -I {chain} -j ACCEPT": f"iptables -I {chain} -j ACCEPT" for chain in ("INPUT", "FORWARD")},
    "iptables -I in mangle and raw": "for table in mangle raw; do iptables -t $table -I PREROUTING -j ACCEPT; done",
    "a whole rule set restored": "iptables-save | grep -v GLASSLAB | iptables-restore",
    "ip rule delete": "for at in 1 4; do while ip rule delete pref 470$at; do :; done; done",
}
# What somebody has put ahead of ours stays behind ours, and would be in the way of the next event.
LEFTOVERS = """
for chain in INPUT FORWARD; do iptables -D $chain -j ACCEPT; done
for table in mangle raw; do iptables -t $table -D PREROUTING -j ACCEPT; done
"""
# All of it away: the rules, the routes, and the settings that close IPv6.
OPEN = """
nft flush ruleset
for at in 0 1 2 3 4; do for family in -4 -6; do
    while ip $family rule delete pref 470$at 2>/dev/null; do :; done
done; done
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.vmbr1.disable_ipv6=0
for kind in all vmbr1; do sysctl -qw net.ipv4.conf.$kind.rp_filter=0; done
ip -6 address add fe80::1/64 dev vmbr1 nodad
"""
CLOSE = "ip -6 address delete fe80::1/64 dev vmbr1"
Seen = dict[str, tuple[Report, list[str]]]  # of each event: what the prober saw, and what else went wrong


def healed() -> bool:
    """Whether all stands as the role has loaded it."""
    return pve(f"{LOADER} check", check=False) == "as loaded\n"


SERVICES = "hypervisor's services from outside"
# What is not denied, by mode: the internet is allowed, or there are no services whose ports anything would guard.
ALLOWED = {"open": {"internet host", SERVICES}, "closed": {SERVICES}}


def leaks(report: Report, *layers: str, mode: str = "allowlist") -> list[str]:
    """A line for each denied class of these layers that something got through to."""
    allowed = ALLOWED.get(mode, set())
    return [
        f"{name}: {one['through']} of {one['sent']} got through, open for {one['window_ms']} ms ({one['frames']})"
        for name, one in report["classes"].items()
        if one["through"] and one["layer"] in layers and name not in allowed
    ]


def widest(report: Report, layer: str, mode: str) -> float:
    """The longest time in ms that something denied of that layer was open."""
    denied = [one for name, one in report["classes"].items() if name not in ALLOWED.get(mode, set())]
    return max((one["window_ms"] for one in denied if one["layer"] == layer), default=0.0)


def forget_neighbours() -> None:
    """What the prober's forged ARP has taught the guests while layer 2 was open would outlast it for half a minute."""
    for machine in (PLACES["agent"], ("exec", "logs")):
        run(machine, "ip", "neighbour", "flush", "dev", "eth0")


class Watched:
    """Events, one after the other, under the prober's eyes; nothing is asserted before all have happened."""

    def __init__(self, probe: Probe, mode: str) -> None:
        self.probe, self.mode = probe, mode
        self.wrong: dict[str, list[str]] = {}

    def during(self, name: str, event: Callable[[], Any], *, stops: tuple[str, ...] = ()) -> None:
        """Let it happen, and wait until the walls stand again and what is needed works again (but what it `stops`)."""
        self.probe.phase(name)
        wrong = self.wrong[name] = []
        try:
            event()
            wait_for("the walls stand again", healed, 20)
            time.sleep(SETTLE)
            self.probe.phase(f"after {name}")
            forget_neighbours()
            until = time.monotonic() + 20
            while (broken := flowprobes.broken(self.mode, 2.0, but=stops)) and time.monotonic() < until:
                time.sleep(0.2)
            wrong += broken
        except AssertionError as error:
            wrong.append(str(error))

    def seen(self) -> Seen:
        """Of each event, once the prober has ended."""
        every = ("forwarding", "input", "bridge")
        for name, wrong in self.wrong.items():
            later = self.probe.reports.get(f"after {name}")
            wrong += [f"afterwards, {line}" for line in leaks(later, *every, mode=self.mode)] if later else []
        return {name: (self.probe.reports[name], wrong) for name, wrong in self.wrong.items()}


@contextmanager
def watched(mode: str) -> Iterator[Watched]:
    """The prober beside the block."""
    with probing(LAB_ID) as probe:
        probe.phase("before")
        time.sleep(0.2)
        yield Watched(probe, mode)


def assert_held(name: str, seen: Seen, mode: str) -> None:
    """Nothing forwarded; what rules close, closed again; what is needed works again."""
    report, wrong = seen[name]
    windows = {layer: widest(report, layer, mode) for layer in ("input", "bridge")}
    print(f"{name}: forwarded 0, open at most {windows} ms, {report['rounds']} rounds in {report['seconds']} s")
    assert report["rounds"] > 20
    assert leaks(report, "forwarding", mode=mode) == []
    assert max(windows.values()) <= AT_MOST_MS, leaks(report, "input", "bridge", mode=mode)
    assert wrong == []


SETTINGS = [("allowlist", 0)]
if os.environ.get("GLASSLAB_SOAK"):
    SETTINGS = [(mode, value) for mode in ("allowlist", "open", "closed", "build") for value in (0, 1)] * 2


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda one: f"{one[0]}, br_netfilter={one[1]}")
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The mode, with what br_netfilter is set to."""
    mode, value = request.param
    with hypervisor_in(mode, value):
        firewalls.carry_over()
        yield mode
        pve(f"rm -rf {firewalls.THERE}")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Each test ends with the walls up, so that one that fails takes no other with it."""
    yield
    if not healed():
        pve(f"{LOADER} apply || ifup vmbr1", check=False)
        wait_for("the walls stand", healed)


def test_prober_sees_what_is_open(mode: str) -> None:
    """Without any of it everything gets through: that nothing does, elsewhere, says something."""
    with nobody_mends():
        try:
            with watched(mode) as seen:
                pve(OPEN)
                seen.probe.phase("open")
                time.sleep(0.5)
                pve(f"{firewalls.FWBR} plug")
                seen.probe.phase("open behind fwbr")
                time.sleep(0.3)
        finally:
            pve(f"{firewalls.FWBR} unplug; {CLOSE}; {LOADER} apply")
    inner = "by the inner bridge"
    classes = seen.probe.reports["open"]["classes"]
    classes |= {inner: seen.probe.reports["open behind fwbr"]["classes"][inner]}
    for name, one in classes.items():
        assert one["through"] >= 0.9 * one["sent"] > 50, f"{name}: the prober is blind here"


@pytest.fixture(scope="module")
def events(mode: str) -> Seen:
    """All events that are a command, under one prober."""
    with watched(mode) as seen:
        for name, order in EVENTS.items():
            seen.during(name, lambda order=order: pve(order))
            pve(LEFTOVERS, check=False)
    return seen.seen()


@pytest.mark.parametrize("name", EVENTS)
def test_event(name: str, events: Seen, mode: str) -> None:
    assert_held(name, events, mode)


def test_reboot(mode: str) -> None:
    """From the order to reboot to the walls' standing again, in the new boot."""
    before = reboots()

    def event() -> None:
        run(PLACES["hypervisor"], "systemctl", "reboot", check=False)
        wait_for("the hypervisor reboots", lambda: reboots() > before)
        wait_for("the hypervisor can be managed", managed)

    with watched(mode) as seen:
        seen.during("reboot", event)
    assert_held("reboot", seen.seen(), mode)


@pytest.mark.parametrize("firewall", FIREWALLS, ids=lambda one: one.name)
def test_other_firewall(firewall: Firewall, mode: str) -> None:
    """Loaded, flushed and loaded again: ours hold all the time, and what it wants holds as well, behind ours."""
    steps = {"started": firewall.start, "stopped": firewall.stop, "reloaded": firewall.start}
    missing = {}
    with watched(mode) as seen, firewalls.about(firewall):
        for step, order in steps.items():
            stops = firewall.stops if step != "stopped" else ()
            seen.during(f"{firewall.name} {step}", lambda order=order: pve(order), stops=stops)
            missing[step] = firewalls.holding(firewall) if step != "stopped" else []
        seen.probe.phase("taken away")
    for step in steps:
        assert_held(f"{firewall.name} {step}", seen.seen(), mode)
    assert {step: lines for step, lines in missing.items() if lines} == {}
    assert leaks(seen.probe.reports["taken away"], "forwarding", mode=mode) == []
