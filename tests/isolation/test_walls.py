"""The lab's walls: odd packets, rules that cannot be loaded, policies that are refused, and teardown."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from isolationtools import (
    LOADER,
    PLACES,
    answers,
    command,
    differing,
    door,
    managed,
    playbook_lines,
    pve,
    reboot,
    run,
    see,
    take_receipt,
    wait_for,
)
from kernel_modules import load_br_netfilter
from labtools import playbook

REACHED = {"open", "refused"}
AGENT, CTL = PLACES["agent"], PLACES["controller"]
LOGS_SSH = door("10.10.10.20", tcp=[22])
LOGS_HEC = door("10.10.10.20", tcp=[8088])
MODEL = door("203.0.113.10", tcp=[443])


@pytest.fixture(autouse=True, scope="module")
def _walls_are_up() -> None:
    load_br_netfilter()
    assert pve(f"{LOADER} check") == "as loaded\n"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Each test ends with the walls up, so that one that fails takes no other with it."""
    yield
    assert pve(f"{LOADER} apply && {LOADER} check || {{ ifup vmbr1; {LOADER} check; }}").endswith("as loaded\n")


def br_netfilter(value: int) -> None:
    calls = ("iptables", "ip6tables", "arptables")
    pve("sysctl -qw " + " ".join(f"net.bridge.bridge-nf-call-{call}={value}" for call in calls))


@pytest.fixture(params=[0, 1], ids=["br_netfilter=0", "br_netfilter=1"])
def bridge_netfilter(request: pytest.FixtureRequest) -> Iterator[int]:
    former = int(pve("sysctl -n net.bridge.bridge-nf-call-iptables"))
    br_netfilter(request.param)
    yield request.param
    br_netfilter(former)


# What a sender that is root on its machine can put on the wire: IP packets of its own making, each with a tag.
CRAFT = """
import socket, struct, sys
source, target, marks = sys.argv[1], sys.argv[2], sys.argv[3:]
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def total(data):
    data += bytes(len(data) % 2)
    value = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((value & 65535) + (value >> 16)) & 65535
ends = socket.inet_aton(source) + socket.inet_aton(target)
for mark in marks:
    kind, *numbers = mark.split(".")
    numbers = [int(one) for one in numbers]
    tag, protocol = f"<{mark}>".encode(), 6
    if kind == "tcp":
        flags, sport, dport = numbers
        body = struct.pack("!HHIIBBHHH", sport, dport, 7, 9, 0x50, flags, 999, 0, 0) + tag
        body = body[:16] + struct.pack("!H", total(ends + struct.pack("!HH", 6, len(body)) + body)) + body[18:]
    elif kind == "icmp":
        protocol, body = 1, struct.pack("!BBHI", numbers[0], 0, 0, 7) + tag
        body = body[:2] + struct.pack("!H", total(body)) + body[4:]
    else:
        protocol, body = numbers[0], b"...." + tag
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0) + ends
    wire.sendto(head + body, (target, 0))
"""
# Prints as JSON {mark: source address} what arrived with a tag on any interface, or, for `accepted`, got past INPUT.
WATCH = """
import json, re, select, socket, sys
if sys.argv[1] == "accepted":
    watched = [socket.socket(socket.AF_INET, socket.SOCK_RAW, one) for one in (1, 2, 6, 47, 132, 253)]
else:
    watched = [socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))]
print("up", flush=True)
seen, waiting = {}, True
while waiting:
    for one in select.select([*watched, sys.stdin], [], [])[0]:
        if one is sys.stdin:
            waiting = False
            continue
        data, sender = one.recvfrom(4096)
        if sender[2:3] != (socket.PACKET_OUTGOING,):
            seen |= {mark.decode(): socket.inet_ntoa(data[12:16]) for mark in re.findall(rb"<([a-z]+[.0-9]+)>", data)}
print(json.dumps(seen))
"""
SYN, RST, ACK = 2, 4, 16


def crafted(sender: str, watcher: str, target: str, marks: list[str], *, what: str = "arrived") -> dict[str, str]:
    """Send packets from one machine or namespace; which of them came to another, and from which source address."""
    places = {**PLACES, "pve": PLACES["hypervisor"], "logs": ("exec", "logs")}
    places |= {name: ("ns-exec", name) for name in ("lan", "internet")}
    source = {"agent": "10.10.10.10", "logs": "10.10.10.20", "lan": "192.168.50.10"}[sender]
    with subprocess.Popen(
        command(places[watcher], "python3", "-c", WATCH, what), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "up\n"
        run(places[sender], "python3", "-c", CRAFT, source, target, *marks)
        time.sleep(0.4)  # what is on its way arrives
        seen: dict[str, str] = json.loads(watching.communicate("enough", timeout=10)[0])
    return seen


ODD = [f"{kind}.{one}" for kind, ones in (("icmp", (8, 13, 42)), ("proto", (2, 47, 132, 253))) for one in ones]


def test_no_protocol_reaches_the_hypervisor(bridge_netfilter: int) -> None:
    marks = [*ODD, *(f"tcp.{flags}.40000.22" for flags in (SYN, ACK, SYN | ACK, RST))]
    for sender, address in (("agent", "10.10.10.1"), ("agent", "192.168.50.2"), ("logs", "10.20.20.1")):
        assert crafted(sender, "pve", address, marks, what="accepted") == {}


def test_from_the_log_to_the_agent_nothing_but_replies(bridge_netfilter: int) -> None:
    """Not even by the log's own port: nothing that opens a connection, nothing that goes to a service."""
    opening = [f"tcp.{SYN}.8088.{port}" for port in (22, 40000)]
    service = [f"tcp.{flags}.8088.22" for flags in (ACK, SYN | ACK, RST, 0)]
    marks = [*ODD, *opening, *service, f"tcp.{ACK}.9999.40000"]
    assert crafted("logs", "agent", "10.10.10.10", marks) == {}


def test_segments_of_no_connection_do_not_enter_the_lab() -> None:
    marks = [f"tcp.{flags}.443.40000" for flags in (ACK, RST, RST | ACK, SYN | ACK, 1, 0)]
    run(("ns-exec", "lan"), "ip", "route", "add", "10.10.10.0/24", "via", "192.168.50.2")
    try:
        assert crafted("lan", "agent", "10.10.10.10", [*ODD, *marks]) == {}
    finally:
        run(("ns-exec", "lan"), "ip", "route", "delete", "10.10.10.0/24")


ETC = "/etc/glasslab/network"
SAID = "glasslab-network: apply:"
# How it breaks, how it is repaired, what the journal says.
BROKEN = {
    "iptables-restore cannot be run": (
        "chmod -x /usr/sbin/xtables-nft-multi",
        "chmod +x /usr/sbin/xtables-nft-multi",
        SAID,
    ),
    "rules.v4 is corrupt": (
        f"echo 'nonsense' >> {ETC}/rules.v4",
        f"sed -i '$d' {ETC}/rules.v4",
        f"{SAID} {ETC}/rules.v4",
    ),
    "rules.v4 is empty": (
        f"cp {ETC}/rules.v4 /root/kept; truncate --size 0 {ETC}/rules.v4",
        f"mv /root/kept {ETC}/rules.v4",
        f"{SAID} {ETC}/rules.v4: cut short",
    ),
    "settings.json is damaged": (
        f"cp {ETC}/settings.json /root/kept; truncate --size 20 {ETC}/settings.json",
        f"mv /root/kept {ETC}/settings.json",
        f"{SAID} {ETC}/settings.json is damaged",
    ),
    "the loader cannot be run": (f"chmod -x {LOADER}", f"chmod +x {LOADER}", f"{LOADER}: Permission denied"),
    "nft is missing": ("mv /usr/sbin/nft /usr/sbin/nft.away", "mv /usr/sbin/nft.away /usr/sbin/nft", SAID),
}
# What the rest of a boot would not bring to light: tried with a reboot, too.
AT_BOOT = ("iptables-restore cannot be run", "rules.v4 is empty")


def assert_closed_but_managed() -> None:
    # A restart of networking takes every bridge down and up, management's too: its first packet afterwards may be lost.
    wait_for("management is up", managed, 5)
    assert "UP" not in pve("ip -oneline link show vmbr1").split(">")[0], "the bridge is up without rules"
    loose = (
        "for port in tap101i0 tap102i0; do [ -e /sys/class/net/$port/master ] || ip -oneline link show $port up; done"
    )
    assert pve(loose) == "", "a guest's port is up outside the bridge"
    reached = [probe for probe in see("agent", TARGETS_OF_THE_AGENT) if probe["answer"] in REACHED]
    assert reached == []


TARGETS_OF_THE_AGENT = [door("192.168.50.2", tcp=[22]), door("10.10.10.1", tcp=[22, 8006], ping=True), LOGS_SSH, MODEL]


@pytest.mark.parametrize("broken", BROKEN)
def test_fails_closed(broken: str) -> None:
    """What cannot be loaded leaves the bridge down and management up, says so, and stops the role."""
    breaks, repairs, said = BROKEN[broken]
    pve(breaks)
    try:
        pve("systemctl restart networking")
        assert_closed_but_managed()
        assert said in pve("journalctl --unit networking --unit glasslab-network --lines 20")
        if broken in AT_BOOT:
            reboot()
            assert_closed_but_managed()
            assert said in pve("journalctl --boot --unit glasslab-network")
        if broken.startswith("iptables-restore"):
            done = playbook("playbooks/network.yml")
            assert done.returncode != 0
            assert "iptables-restore cannot be run" in playbook_lines(done)
    finally:
        pve(repairs)
    pve("ifup vmbr1")
    wait_for("the model can be reached again", lambda: answers("agent", MODEL) == ["open"], 10)
    assert differing(take_receipt()) == []


def test_playbooks_without_a_lab_say_how_to_get_one() -> None:
    for name in ("network", "verify"):
        done = playbook(f"playbooks/{name}.yml", "--extra-vars", "machine_lab_id=nosuchlab")
        assert done.returncode != 0
        assert "no lab nosuchlab stands on this machine: `make demo` builds one" in playbook_lines(done)
        assert "UNREACHABLE" not in done.stdout


REFUSED = {
    "flow to a special-purpose range": (
        {
            "network_flows": [
                {"name": "x", "from": "agent", "to": "192.168.50.10", "protocol": "tcp", "ports": [22], "why": "-"}
            ]
        },
        "network_flows: x: to 192.168.50.10 is inside the special-purpose range 192.168.0.0/16",
    ),
    "subnet in use": (
        {"network_subnet": "10.20.20.0/24", "network_address": "10.20.20.2", "network_guests": [], "network_flows": []},
        "network_subnet 10.20.20.0/24 is in use: vmbr2 has 10.20.20.1/24",
    ),
    "bridge that is somebody else's": (
        {"network_bridge": "vmbr2", "network_guests": [], "network_flows": []},
        "vmbr2 is already defined in /etc/network/interfaces",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_changed(case: str) -> None:
    variables, said = REFUSED[case]
    before = pve("sha256sum /etc/glasslab/network/* /etc/network/interfaces")
    done = playbook("playbooks/network.yml", "--extra-vars", json.dumps(variables))
    assert done.returncode != 0
    assert said in playbook_lines(done)
    assert pve("sha256sum /etc/glasslab/network/* /etc/network/interfaces") == before
