"""The lab's walls: what is open, what is closed, that each rule matters, and that they stand again after everything."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from isolationtools import (
    LOADER,
    PLACES,
    answers,
    command,
    differing,
    door,
    heard,
    managed,
    playbook_lines,
    pve,
    reboot,
    rules,
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


def test_bridge_netfilter_makes_no_difference(bridge_netfilter: int) -> None:
    assert differing(take_receipt()) == []


def test_nothing_enters_the_lab_but_replies() -> None:
    assert not heard(AGENT, CTL, "10.10.10.10"), "a datagram from the LAN entered the lab"
    assert heard(AGENT, PLACES["hypervisor"], "10.10.10.10"), "the hypervisor itself may reach its guests"
    assert set(answers("controller", door("10.10.10.20", tcp=[22, 8088, 8089], ping=True))) == {"silent"}


# Each rule taken away alone: what is no longer closed, or no longer open. Where a second layer holds, both are named.
MUTATIONS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "filter INPUT jump": ("iptables -D INPUT -i vmbr1 -j GLASSLAB-INPUT", door("192.168.50.2", tcp=[22]), REACHED),
    "filter INPUT drop": ("iptables -D GLASSLAB-INPUT -j DROP", door("10.20.20.1", tcp=[8006], ping=True), REACHED),
    "filter FORWARD jump": (
        "iptables -D FORWARD -i vmbr1 -j GLASSLAB-FORWARD",
        door("192.168.50.10", tcp=[80]),
        REACHED,
    ),
    "filter FORWARD drop": (
        "iptables -D GLASSLAB-FORWARD -j DROP",
        door("203.0.113.80", tcp=[443], ping=True),
        REACHED,
    ),
    "bridge table": ("nft delete table bridge glasslab", LOGS_SSH, REACHED),
    "bridge drop": ("nft flush chain bridge glasslab forward", LOGS_SSH, REACHED),
    "foreign rule ahead in INPUT": ("iptables -I INPUT -i vmbr1 -j ACCEPT", door("10.10.10.1", tcp=[22]), REACHED),
    "foreign rule ahead in FORWARD": ("iptables -I FORWARD -j ACCEPT", door("192.168.50.1", tcp=[80]), REACHED),
    "masquerade": ("iptables -t nat -F GLASSLAB-POSTROUTING", MODEL, {"silent"}),
    "replies into the lab": ("iptables -D GLASSLAB-FORWARD 1", MODEL, {"silent"}),
    "forwarding": ("sysctl -qw net.ipv4.ip_forward=0", MODEL, {"silent"}),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_rule_matters(name: str) -> None:
    taken, target, expected = MUTATIONS[name]
    pve(taken)
    assert set(answers("agent", target)) <= expected, f"without {name} nothing changed at {target['name']}"
    assert pve(f"{LOADER} check", check=False) != "as loaded\n", f"the loader did not notice: {name}"
    foreign = [line for line in rules().splitlines() if line.endswith("-j ACCEPT") and "GLASSLAB" not in line]
    pve(f"{LOADER} apply")
    assert set(answers("agent", target)).isdisjoint(expected)
    # What somebody else put there is behind ours now, not gone.
    assert all(line in rules().splitlines() for line in foreign)
    for line in foreign:
        pve(f"iptables {line.replace('-A ', '-D ', 1)}")


def test_flow_to_the_log_where_bridged_frames_pass_iptables() -> None:
    """With br_netfilter 1 either layer closes, and the flow needs both."""
    former = int(pve("sysctl -n net.bridge.bridge-nf-call-iptables"))
    br_netfilter(1)
    try:
        pve("nft delete table bridge glasslab")
        assert answers("agent", LOGS_SSH) == ["silent"], "iptables alone did not hold"
        pve("iptables -D FORWARD -i vmbr1 -j GLASSLAB-FORWARD; iptables -D FORWARD -o vmbr1 -j GLASSLAB-FORWARD")
        assert answers("agent", LOGS_SSH) == ["open"]
        pve(f"{LOADER} apply")
        flow = next(line for line in rules().splitlines() if "flow log" in line)
        pve(f"iptables {flow.replace('-A ', '-D ', 1)}")
        assert answers("agent", LOGS_HEC) == ["silent"], "the flow's rule does nothing"
    finally:
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
    if not bridge_netfilter:  # the same packets, and nothing to stop them
        pve("iptables -D INPUT -i vmbr1 -j GLASSLAB-INPUT")
        assert set(crafted("agent", "pve", "10.10.10.1", marks, what="accepted")) == set(marks)


def test_from_the_log_to_the_agent_nothing_but_replies(bridge_netfilter: int) -> None:
    """Not even by the log's own port: nothing that opens a connection, nothing that goes to a service."""
    opening = [f"tcp.{SYN}.8088.{port}" for port in (22, 40000)]
    service = [f"tcp.{flags}.8088.22" for flags in (ACK, SYN | ACK, RST, 0)]
    marks = [*ODD, *opening, *service, f"tcp.{ACK}.9999.40000"]
    assert crafted("logs", "agent", "10.10.10.10", marks) == {}
    if not bridge_netfilter:
        pve("nft delete table bridge glasslab")
        assert set(crafted("logs", "agent", "10.10.10.10", marks)) == set(marks)


def test_what_leaves_does_so_under_the_hypervisors_address() -> None:
    """Segments of no connection are not masqueraded: they are dropped rather than sent with the lab's own address."""
    marks = [f"tcp.{flags}.{40000 + flags}.443" for flags in (0, RST, SYN | ACK, 1, 41)]
    opening = f"tcp.{SYN}.41000.443"
    assert crafted("agent", "lan", "203.0.113.10", [*marks, opening]) == {opening: "192.168.50.2"}
    pve("iptables -D GLASSLAB-FORWARD -m conntrack --ctstate INVALID -j DROP")
    assert "10.10.10.10" in crafted("agent", "lan", "203.0.113.10", marks).values()


def test_segments_of_no_connection_do_not_enter_the_lab() -> None:
    marks = [f"tcp.{flags}.443.40000" for flags in (ACK, RST, RST | ACK, SYN | ACK, 1, 0)]
    run(("ns-exec", "lan"), "ip", "route", "add", "10.10.10.0/24", "via", "192.168.50.2")
    try:
        assert crafted("lan", "agent", "10.10.10.10", [*ODD, *marks]) == {}
        pve("iptables -D FORWARD -o vmbr1 -j GLASSLAB-FORWARD")
        assert set(marks) <= set(crafted("lan", "agent", "10.10.10.10", [*ODD, *marks]))
    finally:
        run(("ns-exec", "lan"), "ip", "route", "delete", "10.10.10.0/24")


def test_inbound_jump_matters() -> None:
    pve("iptables -D FORWARD -o vmbr1 -j GLASSLAB-FORWARD")
    assert heard(AGENT, CTL, "10.10.10.10")
    pve(f"{LOADER} apply")
    assert not heard(AGENT, CTL, "10.10.10.10")


def test_port_outside_the_bridge_is_closed_too() -> None:
    """`systemctl restart networking` deletes the bridge: the guest's port is then one of the hypervisor's own."""
    mac = pve("cat /sys/class/net/vmbr1/address").strip()
    # The hypervisor would answer ARP on the bare port; the guest is spared the lookup, its frames are taken there.
    run(AGENT, "ip", "neighbour", "replace", "10.10.10.1", "lladdr", mac, "dev", "eth0", "nud", "permanent")
    try:
        pve(f"ip link set tap101i0 nomaster; ip link set tap101i0 down; ip link set tap101i0 address {mac} up")
        assert not heard(PLACES["hypervisor"], AGENT, "192.168.50.2")
        pve("iptables -D INPUT -i tap101i0 -j GLASSLAB-INPUT")
        assert heard(PLACES["hypervisor"], AGENT, "192.168.50.2")
    finally:
        run(AGENT, "ip", "neighbour", "del", "10.10.10.1", "dev", "eth0")
        pve(f"{LOADER} apply")


def test_ipv6_is_closed_twice() -> None:
    """Off on the bridge, and dropped when somebody turns it on."""
    assert pve("sysctl -n net.ipv6.conf.vmbr1.disable_ipv6") == "1\n"
    assert set(answers("agent", door("ff02::1%eth0", ping=True))) == {"silent"}
    pve("sysctl -qw net.ipv6.conf.vmbr1.disable_ipv6=0; ip -6 address add fe80::1/64 dev vmbr1 nodad")
    target = door("fe80::1%eth0", tcp=[22, 8006], ping=True)
    assert set(answers("agent", target)) == {"silent"}, "ip6tables did not hold"
    pve("ip6tables -D INPUT -i vmbr1 -j GLASSLAB-INPUT; ip6tables -D OUTPUT -o vmbr1 -j GLASSLAB-OUTPUT")
    assert set(answers("agent", target)) == {"open"}
    assert "IPv6 is on at vmbr1" in pve(f"{LOADER} check", check=False)
    pve(f"{LOADER} apply")
    assert pve("ip -6 address show dev vmbr1") == ""


EVENTS = {
    "loaded three times": f"{LOADER} apply; {LOADER} apply; {LOADER} apply",
    "ifreload -a": "ifreload -a",
    "systemctl restart networking": "systemctl restart networking",
}


@pytest.mark.parametrize("event", [*EVENTS, "reboot", "reboot of all three at once"])
def test_same_after(event: str) -> None:
    """The same rules, none doubled, and the same receipt."""
    before = rules()
    if event.startswith("reboot"):
        guests = [AGENT, ("exec", "logs")] if "all" in event else []
        for guest in guests:
            run(guest, "systemctl", "reboot", check=False)
        reboot()
        for guest in guests:
            wait_for(f"{guest[1]} is up", lambda guest=guest: run(guest, "true", check=False).returncode == 0)
    else:
        pve(EVENTS[event])
    wait_for("the walls stand again", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 10)
    wait_for("the model can be reached again", lambda: answers("agent", MODEL) == ["open"], 10)
    wait_for("the log can be reached again", lambda: answers("agent", LOGS_HEC) == ["open"], 10)
    assert rules() == before
    assert differing(take_receipt()) == []


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


def test_torn_down_byte_for_byte() -> None:
    interfaces = pve("cat /etc/glasslab/network/interfaces.before")
    former = json.loads(pve("cat /run/glasslab-network/former.json"))
    done = playbook("playbooks/network.yml", "--extra-vars", "network_state=absent")
    assert done.returncode == 0, playbook_lines(done)
    left = pve(
        "cat /etc/network/interfaces; echo ---; iptables-save; ip6tables-save; ls -d /etc/glasslab "
        "/sys/class/net/vmbr1 "
        "/usr/local/sbin/glasslab-network /run/glasslab-network /etc/systemd/system/glasslab-network.service "
        "/etc/systemd/system/*/glasslab-network.service 2>/dev/null; nft list tables",
        check=False,
    )
    try:
        assert left == interfaces + "---\n" + "".join(f"table {table}\n" for table in former["tables"])
        paths = [path for path in former["sysctl"] if "/vmbr1/" not in path]
        now = pve(f"cd /proc/sys; cat {' '.join(paths)}").split()
        assert dict(zip(paths, now, strict=True)) == {path: former["sysctl"][path] for path in paths}
        shown = playbook("playbooks/network.yml", "--check", "--diff")
        assert shown.returncode == 0, playbook_lines(shown)
        assert "+-A GLASSLAB-FORWARD -j DROP\n" in shown.stdout
        assert "+auto vmbr1\n" in shown.stdout
        assert pve("ls -d /etc/glasslab", check=False) == ""
    finally:
        done = playbook("playbooks/network.yml")
    assert done.returncode == 0, playbook_lines(done)
    wait_for("the model can be reached again", lambda: answers("agent", MODEL) == ["open"], 10)
    assert differing(take_receipt()) == []
