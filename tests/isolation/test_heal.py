"""The walls come back by themselves, each change healed and recorded; what cannot be healed shuts the guests in."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from firewalls import FWBR, THERE, carry_over
from isolationtools import LOADER, PLACES, pve, rules, run, wait_for

WATCHER, TIMER, HEALER = (f"glasslab-network-{unit}" for unit in ("watch.service", "heal.timer", "heal.service"))
LOG = "/var/log/glasslab/drift.json"
MODEL = ("203.0.113.10", 443)
SOAK = bool(os.environ.get("GLASSLAB_SOAK"))


def whole() -> bool:
    return pve(f"{LOADER} check", check=False) == "as loaded\n"


def own() -> list[str]:
    """All that the kernel holds of ours; tables come in the order in which they were made."""
    return sorted(
        line for line in rules().splitlines() if "GLASSLAB" in line or line.startswith(("\t", "table bridge"))
    )


def drifts() -> list[dict[str, Any]]:
    """The drift recorded so far."""
    return [json.loads(line) for line in pve(f"cat {LOG} 2>/dev/null || true").splitlines()]


def healed(before: int, *, seconds: float = 10) -> dict[str, Any]:
    """Wait for the walls and for a line of drift since; what the line says."""
    wait_for("a line of drift", lambda: len(drifts()) > before, seconds)
    wait_for("the walls stand again", whole, seconds)
    return drifts()[before]


def reached(address: str, port: int, place: str = "agent") -> bool:
    """Whether the agent's machine, or another place, can open a connection."""
    knock = f"import socket; socket.create_connection(('{address}', {port}), 1.5)"
    return run(PLACES[place], "python3", "-c", knock, check=False).returncode == 0


@pytest.fixture(autouse=True)
def _watched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that does something begins and ends with the walls up and watched."""
    if "changed" in request.fixturenames:
        yield
        return
    pve(f"systemctl start {WATCHER} {TIMER}")
    yield
    if not whole():
        pve(f"{LOADER} apply", check=False)


# What is done to the walls, how it is undone where it is somebody else's, and what the line of drift says.
CHANGES: dict[str, tuple[str, str, str]] = {
    "nft flush ruleset": ("nft flush ruleset", "", "the kernel's rules differ from /etc/glasslab/network/bridge.nft"),
    **{
        f"{tool} -t {table} -F": (f"{tool} -t {table} -F", "", f"the kernel's rules differ from {path}: {table}")
        for tool, path, tables in (
            ("iptables", "/etc/glasslab/network/rules.v4", ("raw", "mangle", "filter")),
            ("ip6tables", "/etc/glasslab/network/rules.v6", ("raw", "filter")),
        )
        for table in tables
    },
    "our jumps deleted": (
        "iptables -t raw -D PREROUTING -i vmbr1 -j GLASSLAB-RAW",
        "",
        "the kernel's rules differ from /etc/glasslab/network/rules.v4: raw",
    ),
    "one rule deleted": (
        "iptables -D GLASSLAB-INPUT -j DROP",
        "",
        "the kernel's rules differ from /etc/glasslab/network/rules.v4: filter",
    ),
    "a rule added to ours": (
        "iptables -I GLASSLAB-INPUT -j ACCEPT",
        "",
        "the kernel's rules differ from /etc/glasslab/network/rules.v4: filter",
    ),
    "accepted ahead in INPUT": (
        "iptables -I INPUT -j ACCEPT",
        "iptables -D INPUT -j ACCEPT",
        "iptables: a foreign rule stands before ours in filter INPUT",
    ),
    "accepted ahead in v6 raw": (
        "ip6tables -t raw -I PREROUTING -j ACCEPT",
        "ip6tables -t raw -D PREROUTING -j ACCEPT",
        "ip6tables: a foreign rule stands before ours in raw PREROUTING",
    ),
    # Listed as ever, and no packet asks it.
    **{
        f"{family} {table} put to sleep": (
            f"nft add table {family} {table} '{{ flags dormant; }}'",
            "",
            f"the table {table if family != 'bridge' else 'bridge glasslab'} is dormant",
        )
        for family, table in (("ip", "filter"), ("ip", "raw"), ("ip6", "raw"), ("bridge", "glasslab"))
    },
    "bridge table deleted": ("nft delete table bridge glasslab", "", "bridge.nft: glasslab"),
    "a pin deleted": (
        "nft flush set bridge glasslab pins",
        "",
        "the kernel's rules differ from /etc/glasslab/network/bridge.nft: glasslab",
    ),
    "policy route deleted": (
        "ip rule del pref 4701 iif vmbr1",
        "",
        "the policy route `ip -4 rule pref 4701 iif vmbr1 blackhole` is missing",
    ),
    "all policy routes flushed": (
        "ip rule flush; ip rule add from all lookup main pref 32766; ip rule add from all lookup default pref 32767",
        "",
        "the policy route `ip -4 rule pref 470",
    ),
    "v6 policy route deleted": (
        "ip -6 rule del pref 4701 iif vmbr1",
        "",
        "the policy route `ip -6 rule pref 4701 iif vmbr1 blackhole` is missing",
    ),
    "another route in the place of ours": (
        "ip rule add pref 4701 from 10.10.10.10 lookup main",
        "",
        "the policy route `ip -4 rule pref 4701 from 10.10.10.10/32 lookup 254` is none of the policy's",
    ),
    "ours on a condition in the place of ours": (
        "ip rule add pref 4701 iif vmbr1 dscp 10 blackhole; ip rule del pref 4701 iif vmbr1",
        "",
        "the policy route `ip -4 rule pref 4701 iif vmbr1 blackhole` is missing",
    ),
    "sysctl changed": (
        "sysctl -qw net.ipv4.conf.vmbr1.arp_ignore=0",
        "",
        "sysctl net.ipv4.conf.vmbr1.arp_ignore is 0, not 1",
    ),
    "IPv6 turned on": ("sysctl -qw net.ipv6.conf.vmbr1.disable_ipv6=0", "", "IPv6 is on at vmbr1"),
    "isolation turned off": (
        "bridge link set dev tap101i0 isolated off",
        "",
        "tap101i0 is not isolated from the other guests",
    ),
    "learning from link-local frames turned on": (
        "ip link set vmbr1 type bridge no_linklocal_learn 0",
        "",
        "vmbr1 learns from frames to link-local groups",
    ),
    "port of nobody": (
        "ip link add stray0 type veth peer name tap999i0; ip link set tap999i0 master vmbr1 up; ip link set stray0 up",
        "ip link del stray0",
        "port tap999i0 of vmbr1 is no guest's",
    ),
    "port taken out": ("ip link set tap102i0 nomaster", "", "guest port tap102i0 is in no bridge"),
    # The watcher sleeps meanwhile, or it would put the port back while it is in no bridge.
    "port moved to another bridge": (
        "pid=$(systemctl show --property MainPID --value glasslab-network-watch); kill -STOP $pid; "
        "ip link set tap102i0 master vmbr2; kill -CONT $pid",
        "ip link set tap102i0 master vmbr1",
        "guest port tap102i0 is in vmbr2, not in vmbr1",
    ),
    "port left and came back": (
        "ip link set tap101i0 nomaster; ip link set tap101i0 master vmbr1",
        "",
        "tap101i0 is ",  # in no bridge, or, when the watcher comes later, not isolated
    ),
}


# Does each change in turn on the hypervisor; prints which drift each left, and whether the walls stood again.
CHANGE = """
import json, pathlib, subprocess, sys, time
log, loader, changes = pathlib.Path(sys.argv[1]), sys.argv[2], json.load(sys.stdin)
def lines(size):
    return [json.loads(line) for line in log.read_bytes()[size:].splitlines()] if log.exists() else []
seen = {}
for name, (done, undone, _) in changes.items():
    size = log.stat().st_size if log.exists() else 0
    subprocess.run(done, shell=True)
    until = time.monotonic() + 5
    while time.monotonic() < until and not lines(size):
        time.sleep(0.01)
    subprocess.run(undone, shell=True)
    while True:
        said = subprocess.run([loader, "check"], capture_output=True, text=True).stdout
        if said == "as loaded\\n" or time.monotonic() > until:
            break
        time.sleep(0.1)
    seen[name] = {"check": said, "drift": lines(size)}
size = log.stat().st_size
time.sleep(1)
seen["afterwards"] = {"check": "", "drift": lines(size)}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def changed() -> dict[str, dict[str, Any]]:
    """Every change done once, healed by the watcher."""
    pve(f"systemctl start {WATCHER}")
    standing = own()
    order = json.dumps(CHANGES)
    done = run(PLACES["hypervisor"], "python3", "-c", CHANGE, LOG, LOADER, stdin=order)
    seen: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert own() == standing, "the rules are not what they were"
    return seen


@pytest.mark.parametrize("name", CHANGES)
def test_healed_and_recorded(name: str, changed: dict[str, dict[str, Any]]) -> None:
    said, seen = CHANGES[name][2], changed[name]
    assert seen["check"] == "as loaded\n"
    for line in seen["drift"]:
        assert set(line) == {"time", "event", "found", "outcome", "milliseconds"}
        assert (line["event"], line["outcome"]) == ("drift", "restored")
    lines = [line for line in seen["drift"] if any(said in words for words in line["found"])]
    assert 1 <= len(lines) <= 2, seen["drift"]


def test_the_watcher_does_not_heal_itself(changed: dict[str, dict[str, Any]]) -> None:
    assert changed["afterwards"]["drift"] == []


def test_a_port_that_comes_is_isolated_before_it_can_drift() -> None:
    """Under the name that Proxmox's firewall gives it, too; only what happens to it later is drift."""
    before = len(drifts())
    pve("ip link add fwpr101p0 type veth peer name fwln101i0; ip link set fwpr101p0 master vmbr1 up")
    try:
        flag = "cat /sys/class/net/fwpr101p0/brport/isolated"
        wait_for("the port is isolated", lambda: pve(flag) == "1\n", 5)
        time.sleep(0.3)
        assert drifts()[before:] == []
        pve("bridge link set dev fwpr101p0 isolated off")
        assert healed(before)["found"] == ["fwpr101p0 is not isolated from the other guests"]
        assert pve(flag) == "1\n"
    finally:
        pve("ip link del fwpr101p0")


def test_a_bridge_of_proxmoxs_firewall_learns_nothing_from_link_local_frames() -> None:
    """They pass every hook of it: a guest could teach it without end, or whom it likes. Set as it comes: no drift."""
    carry_over()
    before = len(drifts())
    learns = "cat /sys/class/net/fwbr10?i0/bridge/no_linklocal_learn"
    try:
        pve(f"{FWBR} plug")
        wait_for("neither learns", lambda: pve(learns) == "1\n1\n", 5)
        time.sleep(0.3)
        assert drifts()[before:] == []
        pve("ip link set fwbr101i0 type bridge no_linklocal_learn 0")
        assert healed(before)["found"] == ["fwbr101i0 learns from frames to link-local groups"]
        assert pve(learns) == "1\n1\n"
    finally:
        pve(f"{FWBR} unplug; rm -rf {THERE}")


def test_somebody_elses_rule_stays_behind_ours() -> None:
    before = len(drifts())
    pve("iptables -I FORWARD -d 198.51.100.7 -j ACCEPT")
    try:
        healed(before)
        lines = pve("iptables -S FORWARD").splitlines()
        assert lines[-1] == "-A FORWARD -d 198.51.100.7/32 -j ACCEPT"
        assert all("GLASSLAB-" in line for line in lines[1:-1])
    finally:
        pve("iptables -D FORWARD -d 198.51.100.7 -j ACCEPT")


def test_policies_and_tables_of_others_are_none_of_our_business() -> None:
    """Our chains drop by themselves, whatever a hook's policy is."""
    before = len(drifts())
    pve("iptables -P FORWARD DROP; iptables -P FORWARD ACCEPT; iptables -P INPUT ACCEPT; nft add table inet foreign")
    # What they say in their comments, in whatever encoding, included.
    comment = "OUTPUT -m comment --comment \"$(printf 'f\\374r')\" -j ACCEPT"
    pve(f"iptables -A {comment}; ip6tables -A {comment}")
    try:
        time.sleep(0.8)
        assert whole()
        assert drifts()[before:] == []
    finally:
        pve(f"nft delete table inet foreign; iptables -D {comment}; ip6tables -D {comment}")


# Until nothing passes the guest's port any more, and until the walls stand; in milliseconds after the flush has ended.
MEASURE = """
import json, pathlib, subprocess, sys, time
log, port = pathlib.Path(sys.argv[1]), pathlib.Path("/sys/class/net/tap101i0/brport/state")
shut, whole = [], []
for _ in range(int(sys.argv[2])):
    size = log.stat().st_size
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    began = time.monotonic()
    while time.monotonic() < began + 5 and port.read_text().strip() == "3" and log.stat().st_size == size:
        pass
    shut.append((time.monotonic() - began) * 1e3)
    while time.monotonic() < began + 5 and log.stat().st_size == size:
        time.sleep(0.001)
    whole.append((time.monotonic() - began) * 1e3)
    time.sleep(0.6)
print(json.dumps([shut, whole]))
"""


def test_a_flush_shuts_the_ports_at_once_and_is_healed_soon() -> None:
    times = 20 if SOAK else 3
    shut, restored = json.loads(pve(f"python3 - {LOG} {times} <<'END'\n{MEASURE}\nEND"))
    print(f"shut after {statistics.median(shut):.1f} ms (at most {max(shut):.1f})", end=", ")
    print(f"walls after {statistics.median(restored):.0f} ms (at most {max(restored):.0f}), {times} flushes")
    assert statistics.median(shut) < 20
    assert max(shut) < 100
    assert statistics.median(restored) < 500
    assert whole()


def test_connections_go_on_after_a_heal() -> None:
    before = len(drifts())
    pve("nft flush ruleset")
    healed(before)
    wait_for("the model can be reached", lambda: reached(*MODEL), 5)
    assert pve("cat /sys/class/net/tap10?i0/brport/state") == "3\n3\n"


def main_pid() -> int:
    return int(pve(f"systemctl show --property MainPID --value {WATCHER}"))


def test_a_killed_watcher_comes_back_and_heals_what_it_missed() -> None:
    """Killed while it holds the ports shut, too."""
    for _ in range(2 if SOAK else 1):
        before, pid = len(drifts()), main_pid()
        pve(f"kill -STOP {pid}; bridge link set dev tap101i0 state 1; nft flush ruleset; kill -KILL {pid}")
        assert healed(before)["outcome"] == "restored"
        assert main_pid() not in (0, pid)
        assert pve("cat /sys/class/net/tap101i0/brport/state") == "3\n"


def test_the_watchdog_is_armed() -> None:
    shown = pve(f"systemctl show --property WatchdogUSec,Restart,Type {WATCHER}")
    assert set(shown.split()) == {"WatchdogUSec=30s", "Restart=always", "Type=notify"}
    if SOAK:
        pid = main_pid()
        pve(f"kill -STOP {pid}")
        wait_for("a hung watcher is replaced", lambda: main_pid() not in (0, pid), 45)


def test_without_the_watcher_the_timer_heals() -> None:
    assert "OnUnitInactiveUSec=1min" in pve(f"systemctl show --property TimersMonotonic {TIMER}")
    pve(f"systemctl stop {WATCHER}")
    before = len(drifts())
    pve("nft flush ruleset; ip rule del pref 4701 iif vmbr1; sysctl -qw net.ipv4.conf.vmbr1.arp_ignore=0")
    if not SOAK:
        pve(f"systemctl start {HEALER}")
    line = healed(before, seconds=75 if SOAK else 10)
    assert line["outcome"] == "restored"
    assert any("arp_ignore" in words for words in line["found"])


@pytest.mark.parametrize("by", ["watcher", "timer"])
def test_what_cannot_be_healed_shuts_the_guests_in(by: str) -> None:
    """Guests' ports and bridge go down and stay so, management goes on, and with the tool back all comes up again."""
    links = "cat /sys/class/net/vmbr1/flags /sys/class/net/tap10?i0/flags"
    up = pve(links)
    before = len(drifts())
    if by == "timer":
        pve(f"systemctl stop {WATCHER}")
    pve("mv /usr/sbin/nft /usr/sbin/nft.away; /usr/sbin/nft.away flush ruleset")
    try:
        if by == "timer":
            pve(f"systemctl start {HEALER}", check=False)
        wait_for("a line of drift", lambda: len(drifts()) > before, 10)
        line = drifts()[before]
        assert line["outcome"] == "closed"
        assert any("nft cannot be run" in words for words in line["found"]), line["found"]
        assert [int(flags, 16) & 1 for flags in pve(links).split()] == [0, 0, 0]
        assert not reached("10.10.10.1", 22)
        assert not reached(*MODEL)
        assert reached("192.168.50.2", 22, "controller")
        if by == "watcher":
            pve("ip link set vmbr1 up; ip link set tap101i0 up")
            wait_for("it is down again", lambda: [int(one, 16) & 1 for one in pve(links).split()] == [0, 0, 0], 5)
    finally:
        pve("mv /usr/sbin/nft.away /usr/sbin/nft")
    if by == "timer":
        pve(f"systemctl start {HEALER}")
    wait_for("the walls stand again", whole, 20)
    assert drifts()[-1]["outcome"] == "restored"
    assert pve(links) == up
    wait_for("the model can be reached", lambda: reached(*MODEL), 10)


def test_a_guest_that_is_started_while_the_others_are_shut_in_comes_up_with_them() -> None:
    """Behind bridges of Proxmox's firewall, whose ports come in that time: nobody else would bring them up."""
    carry_over()
    up = "cat /sys/class/net/fwpr10?p0/flags /sys/class/net/fwln10?i0/flags /sys/class/net/tap10?i0/flags"
    before = len(drifts())
    try:
        pve("mv /usr/sbin/nft /usr/sbin/nft.away; /usr/sbin/nft.away flush ruleset")
        wait_for("the guests are shut in", lambda: len(drifts()) > before, 10)
        pve(f"{FWBR} plug")
        wait_for("all are down", lambda: not any(int(flags, 16) & 1 for flags in pve(up).split()), 5)
        pve("mv /usr/sbin/nft.away /usr/sbin/nft")
        wait_for("the walls stand again", whole, 40)
        assert all(int(flags, 16) & 1 for flags in pve(up).split())
        wait_for("the log can be reached", lambda: reached("10.10.10.20", 8088), 10)
    finally:
        pve(f"mv /usr/sbin/nft.away /usr/sbin/nft; {FWBR} unplug; rm -rf {THERE}", check=False)
    wait_for("the log can be reached directly", lambda: reached("10.10.10.20", 8088), 10)


def test_a_removal_is_not_healed_and_puts_settings_back() -> None:
    former = json.loads(pve("cat /run/glasslab-network/former.json"))["sysctl"]
    there = pve(
        f"cd /proc/sys; ls {' '.join(former)} 2>/dev/null", check=False
    ).split()  # bridges of a firewall come and go
    former = {path: value for path, value in former.items() if path in there}
    before = len(drifts())
    pve(f"{LOADER} remove")
    try:
        time.sleep(0.8)
        left = pve("iptables-save; ip6tables-save; nft list tables; ip rule; ip -6 rule")
        assert "GLASSLAB" not in left
        assert "bridge glasslab" not in left
        assert "proto 71" not in left
        assert dict(zip(former, pve(f"cd /proc/sys; cat {' '.join(former)}").split(), strict=True)) == former
        assert drifts()[before:] == []
        pve(f"systemctl start {HEALER}; systemctl restart {WATCHER}")
        time.sleep(0.3)
        assert "GLASSLAB" not in pve("iptables-save")
    finally:
        pve(f"{LOADER} apply")
    assert whole()


ROUTES = "/proc/sys/net/ipv4/ip_forward"
KEPT = "/root/owner.kept"  # what the owner's other bridge has set, for a test away
THEIRS = (
    "nft add table ip theirs; nft add chain ip theirs out '{ type nat hook postrouting priority 100; }';"
    " nft add rule ip theirs out oifname vmbr0 ip saddr 10.99.0.0/24 masquerade"
)
ASKING = "/etc/sysctl.d/99-needed.conf"
NEEDED = {"by nobody": "true", "by the host's settings": f"cp {KEPT} {ASKING}", "by rules of nftables": THEIRS}


@pytest.mark.parametrize("needed", NEEDED)
def test_routing_that_the_lab_has_switched_on_goes_with_it_unless_it_is_needed(needed: str) -> None:
    """On a host that did not route before; what needs it has come meanwhile."""
    settings = "/etc/glasslab/network/settings.json"
    owners = pve("grep -l '^net.ipv4.ip_forward = 1' /etc/sysctl.d/*.conf").strip()
    pve(f"cp -p {settings} /root/settings.kept; {LOADER} remove; mv {owners} {KEPT}; echo 0 >{ROUTES}")
    try:
        pve(f'sed -i \'s/"forwarding": false/"forwarding": true/\' {settings}; {LOADER} apply')
        assert pve(f"cat {ROUTES}") == "1\n"
        pve(f"{NEEDED[needed]}; {LOADER} remove")
        assert pve(f"cat {ROUTES}") == f"{needed != 'by nobody':d}\n"
    finally:
        pve(f"nft delete table ip theirs; rm {ASKING}; mv {KEPT} {owners}; echo 1 >{ROUTES}", check=False)
        pve(f"mv /root/settings.kept {settings}; {LOADER} apply")
    assert whole()


def test_applying_again_is_no_drift() -> None:
    before = len(drifts())
    pve(f"{LOADER} apply; {LOADER} apply")
    time.sleep(0.8)
    assert drifts()[before:] == []
    assert whole()


def test_a_route_of_somebody_else_before_ours_is_reported_and_left_alone() -> None:
    pve("ip rule add pref 100 from all lookup main")
    try:
        said = pve(f"{LOADER} check", check=False)
        assert said == "`ip -4 rule pref 100 lookup 254` of somebody else stands before the lab's policy routes\n"
    finally:
        pve("ip rule del pref 100")


def test_a_firewall_that_reloads_all_the_time_costs_little() -> None:
    """Each time the walls come back behind it, with a bounded share of one processor."""
    seconds = 30 if SOAK else 3
    usage = f"systemctl show --property CPUUsageNSec --value {WATCHER}"
    began, used = time.monotonic(), int(pve(usage))
    pve(
        f"for i in $(seq {seconds}); do printf '*filter\\n:INPUT ACCEPT\\n-A INPUT -i nowhere -j ACCEPT\\nCOMMIT\\n' "
        "| iptables-restore; nft add table inet foreign; nft delete table inet foreign; sleep 0.9; done"
    )
    share = (int(pve(usage)) - used) / 1e9 / (time.monotonic() - began)
    print(f"{share:.0%} of one processor, one reload a second")
    pve("iptables -D INPUT -i nowhere -j ACCEPT", check=False)
    wait_for("the walls stand", whole, 10)
    assert share < 0.5
