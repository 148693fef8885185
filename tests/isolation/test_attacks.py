"""Every attack on the rules as they are, in each mode, with bridged frames passing iptables or not; the bound on flows.

That the same probes arrive where the rules are others, or none, is test_published.py's.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import firewalls
import observing
from attackrows import ROWS
from forging import AGENT, INTERNET, TELLS_NOBODY, Row, ip, udp
from isolationtools import (
    LOADER,
    PLACES,
    answers,
    command,
    door,
    errors_unlimited,
    playbook_lines,
    pve,
    run,
    wait_for,
)
from kernel_modules import load_br_netfilter
from labtools import LAB_ID, ROOT, playbook
from modes import set_bridge_netfilter
from prober import inside

DEFAULTS = yaml.safe_load((ROOT / "roles/network/defaults/main.yml").read_text(encoding="utf-8"))
MODES = ("allowlist", "open", *(("closed", "build") if os.environ.get("GLASSLAB_SOAK") else ()))
CALLS = ("iptables", "ip6tables", "arptables")


def set_mode(mode: str) -> None:
    """Put the hypervisor into a mode, as its owner does."""
    done = playbook("playbooks/network.yml", "--extra-vars", f"network_mode={mode}")
    assert done.returncode == 0, playbook_lines(done)


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The hypervisor in a mode, and afterwards in its default again."""
    load_br_netfilter()
    if request.param != DEFAULTS["network_mode"]:
        set_mode(request.param)
    assert pve(f"{LOADER} check") == "as loaded\n"
    with errors_unlimited(PLACES["hypervisor"]):
        yield str(request.param)
    if request.param != DEFAULTS["network_mode"]:
        set_mode(DEFAULTS["network_mode"])


@pytest.fixture(params=[0, 1], ids=["br_netfilter=0", "br_netfilter=1"])
def bridge_netfilter(request: pytest.FixtureRequest) -> Iterator[None]:
    names = [f"net.bridge.bridge-nf-call-{call}" for call in CALLS]
    former = pve(f"sysctl -n {' '.join(names)}").split()
    pve("sysctl -qw " + " ".join(f"{name}={request.param}" for name in names))
    yield
    pve("sysctl -qw " + " ".join(f"{name}={value}" for name, value in zip(names, former, strict=True)))


@pytest.mark.usefixtures("bridge_netfilter")
def test_every_attack_is_blocked(mode: str) -> None:
    """All but what the mode lets through by design, which must get through."""
    rows = {row.id: row for row in ROWS}
    wrong = [
        f"{name} ({rows[name].title}): {one.verdict} {' '.join(one.seen)}{one.why}"
        for name, one in observing.observe(ROWS, mode).items()
        if one.verdict != ("reachable" if rows[name].open_in(mode) else "blocked")
    ]
    assert not wrong, "\n".join(wrong)


FORGET_CONNECTIONS = """
import socket, struct
one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
one.send(struct.pack("=IHHIIBBH", 20, 0x0102, 5, 1, 0, 0, 0, 0))  # IPCTNL_MSG_CT_DELETE of all, acknowledged
assert struct.unpack_from("=i", one.recv(4096), 16)[0] == 0
"""


def test_connections_of_a_guest_are_bounded(mode: str) -> None:
    """As many as the limit get through, and not one more, until some of them are forgotten; in `closed` none do."""
    target, port, seen = (INTERNET, 443, "internet") if mode == "open" else ("203.0.113.53", 53, "pve:accepted")
    limit = 0 if mode == "closed" else DEFAULTS["network_connection_limit"]
    flows = [Row(f"flow {number}", "one more", "agent", (udp(target, port),), (seen,)) for number in range(limit + 2)]
    run(PLACES["hypervisor"], "python3", "-", stdin=FORGET_CONNECTIONS)
    verdicts = [one.verdict for one in observing.observe(flows, mode).values()]
    assert verdicts == ["reachable"] * limit + ["blocked"] * 2
    run(PLACES["hypervisor"], "python3", "-", stdin=FORGET_CONNECTIONS)
    assert observing.observe(flows[:1], mode)["flow 0"].verdict == ("reachable" if limit else "blocked")


# Sends a datagram each from so many ports to where nothing may go.
PORTS = """
import socket, sys
for port in range(20000, 20000 + int(sys.argv[1])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", port))
        one.sendto(b"x", ("203.0.113.80", 9))
"""


def test_what_a_guest_sends_by_the_bridge_of_proxmoxs_firewall_is_bounded_as_well() -> None:
    """Where bridged frames pass iptables it is tracked there, before it comes to the lab's bridge and is denied."""
    firewalls.carry_over()
    load_br_netfilter()
    pve(f"{firewalls.FWBR} plug")
    set_bridge_netfilter(1)
    try:
        wait_for("the log can be reached", lambda: answers("agent", door("10.10.10.20", tcp=[8088])) == ["open"])
        run(PLACES["hypervisor"], "python3", "-", stdin=FORGET_CONNECTIONS)
        answers("agent", door("10.10.10.1", tcp=[22]))  # from here on the agent knows where its gateway is
        run(PLACES["agent"], "python3", "-c", PORTS, "500")
        tracked = pve("conntrack -L --zone 71 --orig-src 10.10.10.10 --proto udp 2>/dev/null").splitlines()
    finally:
        set_bridge_netfilter(0)
        pve(f"{firewalls.FWBR} unplug; rm -rf {firewalls.THERE}")
    assert DEFAULTS["network_connection_limit"] - 9 <= len(tracked) <= DEFAULTS["network_connection_limit"]


# Sends so many first fragments of datagrams whose rest never comes.
FRAGMENTS = """
import socket, struct, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("eth0", 0))
ether = bytes.fromhex(sys.argv[1].replace(":", "")) + wire.getsockname()[4] + bytes.fromhex("0800")
ends = socket.inet_aton("10.10.10.10") + socket.inet_aton("10.10.10.1")
for number in range(int(sys.argv[2])):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 1420, number, 0x2001, 64, 17, 0) + ends
    total = sum(struct.unpack("!10H", head))
    total = (total >> 16) + (total & 0xFFFF)
    head = head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + head[12:]
    wire.send(ether + head + bytes(1400))
"""
HEAR = "import socket;s=socket.socket(2,2);s.bind(('',9999));s.settimeout(1.5);print('up',flush=True);s.recv(9000)"
SEND = "import socket;s=socket.socket(2,2);[s.sendto(bytes(4000),('192.168.50.2',9999)) for _ in '123']"


def test_a_guest_cannot_fill_the_hypervisors_store_of_fragments() -> None:
    """It holds four megabytes, for whatever comes from anywhere: what others send in fragments would be lost."""
    run(PLACES["agent"], "python3", "-c", FRAGMENTS, pve("cat /sys/class/net/vmbr1/address").strip(), "6000")
    with subprocess.Popen(command(PLACES["hypervisor"], "python3", "-c", HEAR), stdout=-1, stderr=-3, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        run(PLACES["controller"], "python3", "-c", SEND)
        assert one.wait(10) == 0


def complaint(about: str, port: int) -> Row:
    """The agent's ICMP error about what an internet host is said to have sent to that address and port."""
    quoted = [["ip", {"src": INTERNET, "dst": about, "proto": 17}], ["udp", {"sport": TELLS_NOBODY, "dport": port}]]
    layers = ip(INTERNET, AGENT, "@gateway", ["icmp", {"type": 3, "code": 3}], *quoted)
    return Row(f"about {about}", "an error", "agent", (layers,), ("internet",))


def test_a_guests_errors_are_about_its_own_connections_alone(mode: str) -> None:
    """About the hypervisor's, it would cut that off at its other end, and leave under the lab's own address."""
    rows, talkers = [], []
    for place, address in (("pve", "192.168.50.2"), ("agent", AGENT)):
        with inside(Path("/run/netns") / f"{LAB_ID}-{place}"):
            talkers.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        talkers[-1].connect((INTERNET, TELLS_NOBODY))
        talkers[-1].send(b"x")
        rows.append(complaint(address, talkers[-1].getsockname()[1]))
    verdicts = [one.verdict for one in observing.observe(rows, mode).values()]
    for talker in talkers:
        talker.close()
    assert verdicts == ["blocked", "reachable" if mode == "open" else "blocked"]


def test_what_is_silent_by_itself_is_not_called_blocked() -> None:
    """With the agent's cable out nothing arrives: no row of its own may count as blocked for that."""
    run(PLACES["agent"], "ip", "link", "set", "eth0", "down")
    try:
        observed = observing.observe(ROWS, "closed")
    finally:
        run(PLACES["agent"], "sh", "-c", "ip link set eth0 up && ip route replace default via 10.10.10.1")
    senders = {row.id: row.sender for row in ROWS}
    assert {one.verdict for name, one in observed.items() if senders[name] == "agent"} == {"unproven"}


def test_a_place_that_sees_nothing_proves_nothing() -> None:
    """Whichever place's watch is deaf, no row that would be seen there counts as blocked."""
    batch = observing.carry_out(ROWS, "closed")
    heard = dict(batch.reports)
    for deaf in heard:
        batch.reports = {**heard, deaf: {**heard[deaf], "sightings": [], "answers": [], "arp": []}}
        verdicts = {name: one.verdict for name, one in batch.judge().items()}
        concerned = [
            row
            for row in ROWS
            if row.id in verdicts and (row.seen == (deaf,) or (deaf == "pve" and row.sender != "pve/vmbr1"))
        ]
        assert concerned, deaf
        assert {verdicts[row.id] for row in concerned} <= {"unproven", "reachable"}, deaf
