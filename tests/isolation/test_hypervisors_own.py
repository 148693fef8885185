"""What the hypervisor does for itself is none of a guest's business: its connections to anywhere but the guests."""

from __future__ import annotations

import errno
import importlib
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forging import AGENT, LOGS
from isolationtools import VERIFY, nobody_mends, pve
from labtools import LAB_ID
from prober import inside

SERVER = "203.0.113.53"  # its port takes what is no question, without a word
sys.path.append(str(VERIFY / "files"))
attacks = importlib.import_module("attacks")  # the role's files are no package
ERRORS = {"nobody listens": (3, 0, "ECONNREFUSED"), "too big": (4, 600, "EMSGSIZE")}


def namespace(name: str) -> Path:
    return Path("/run/netns") / f"{LAB_ID}-{name}"


def complain(talker: socket.socket, code: int, mtu: int) -> None:
    """As the agent's root: an ICMP error that quotes what the talker has sent."""
    (source, sport), (target, dport) = talker.getsockname(), talker.getpeername()
    outer = {"src": AGENT, "dst": source}
    layers = [
        ["ether", {"dst": "gateway"}],
        ["ip", outer],
        ["icmp", {"type": 3, "code": code, "rest": f"0000{mtu:04x}"}],
        ["ip", {"src": source, "dst": target, "proto": 17}],
        ["udp", {"sport": sport, "dport": dport}],
    ]
    gateway = pve("cat /sys/class/net/vmbr1/address").strip()
    with inside(namespace("agent")):
        attacks.send(
            {"interface": "eth0", "macs": {"gateway": gateway}, "frames": [{"tag": "0badc0de", "layers": layers}]}
        )


def fate(target: str, code: int, mtu: int) -> str:
    """What becomes of the hypervisor's exchange with the target when the agent complains about it."""
    with inside(namespace("pve")):
        talker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with talker:
        talker.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: told of what is too big
        talker.settimeout(0.5)
        talker.connect((target, 53))
        talker.send(b"x")
        complain(talker, code, mtu)
        try:
            talker.recv(1)
        except TimeoutError:
            return "undisturbed"
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "answered"


@pytest.fixture(autouse=True)
def _paths_forgotten() -> Iterator[None]:
    yield
    pve("ip route flush cache")


@pytest.mark.parametrize("what", ERRORS)
def test_a_guest_cannot_complain_about_connections_to_others(what: str) -> None:
    """An ICMP error would cut them off, or make every packet to that place small; about its own it may complain."""
    code, mtu, sign = ERRORS[what]
    assert fate(SERVER, code, mtu) == "undisturbed"
    assert fate(AGENT, code, mtu) == sign
    with inside(namespace("logs")):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with listener:
        listener.bind((LOGS, 53))
        assert fate(LOGS, code, mtu) == "undisturbed", "nor about another guest's"
        # And it is these parts of the rule that hold: mutants of it are told from here.
        for part, whose, target in (("--ctorigdst", AGENT, SERVER), ("-s", LOGS, LOGS)):
            rule = pve(f"iptables -S GLASSLAB-INPUT | grep -- '--ctorigdst {whose} '").strip()
            wider = re.sub(rf"{part} {whose}(/32)? ", "", rule.removeprefix("-A GLASSLAB-INPUT "))
            with nobody_mends():
                pve(f"iptables -I GLASSLAB-INPUT {wider}")
                try:
                    assert fate(target, code, mtu) == sign
                finally:
                    pve(f"iptables -D GLASSLAB-INPUT {wider}")
            pve("ip route flush cache")
