"""Whatever resolver.conf has become: what a guest asks goes nowhere, and the receipt says when it would."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from egresstools import AGENT, MODEL, MODEL_ADDRESS, asked, dns, ends, queries_upstream
from isolationtools import differing, pve, take_receipt, wait_for

CONFIG, UNIT = "/etc/glasslab/network/resolver.conf", "/etc/systemd/system/glasslab-resolver.service"
RESTART = "systemctl daemon-reload; systemctl restart glasslab-resolver"
# What the resolver's unit may send to is what holds them. (What sed is to append it takes before it deletes.)
FAULTS = {
    "it is told whom to ask": "s/^no-resolv/server=203.0.113.53/",
    "it asks whom the host asks": "/^no-resolv/d",
    "the names are nobody's own": "s/^no-resolv/server=203.0.113.53/; /^local=/d",
    "it is told whom to ask for one name": "$a server=/glasslab.test/203.0.113.53",
    "it is told whom to ask, and the rest of it is lost": "$a server=203.0.113.53\n/^port=\\|^keep-in\\|^pid-/!d",
}


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    pve(f"cp -p {CONFIG} /root/resolver.conf.kept; cp -p {UNIT} /root/resolver.service.kept")
    yield
    pve(f"mv /root/resolver.conf.kept {CONFIG}; mv /root/resolver.service.kept {UNIT}; {RESTART}")
    wait_for("the resolver answers", lambda: ends(AGENT, [dns(MODEL)]) == ["answered"], 10)


def leaks(change: str) -> bool:
    """Whether what the agent asks for comes to a resolver outside, with that change."""
    pve(f"{change}; {RESTART}; sleep 0.3")
    token = uuid.uuid4().hex
    asked(AGENT, [dns(f"{token}.{name}", timeout=1.0) for name in ("glasslab.test", MODEL, "example.com")])
    return any(token in line for line in queries_upstream())


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_guest_asks_goes_nowhere(fault: str) -> None:
    """And would go out, had its unit no such bounds: so it is they that hold, and no resolver that does not answer."""
    assert not leaks(f"sed -i '{FAULTS[fault]}' {CONFIG}")
    assert leaks(f"sed -i '/^IPAddress/d' {UNIT}")


def test_without_that_it_goes_out_and_the_receipt_says_so() -> None:
    assert leaks(f"sed -i '/^IPAddress/d' {UNIT}; sed -i '{FAULTS['it is told whom to ask']}' {CONFIG}")
    [own] = asked(AGENT, [dns(MODEL)])
    assert own["got"] == f"NOERROR {MODEL_ADDRESS}", "by its allowed name alone nobody would know"
    found = [line for line in differing(take_receipt()) if "resolver, another name" in line]
    assert len(found) >= 2
    assert all("expected blocked, observed reachable" in line for line in found)


# Connects from within a service's control group, whose bounds then hold for it.
WITHIN = """
import pathlib, socket, sys
group = sys.argv[1].strip("/") + "/cgroup.procs"
there = [path for path in (pathlib.Path("/sys/fs/cgroup", *way, group) for way in ((), ("unified",))) if path.exists()]
there[0].write_text("0")
for address, port in (("10.10.10.20", 8088), ("203.0.113.10", 443)):
    try:
        socket.create_connection((address, port), 2).close()
        print("open")
    except (PermissionError, TimeoutError):
        print("denied")
"""


def test_who_takes_the_proxy_over_comes_to_no_other_guest_by_it() -> None:
    """The hypervisor may reach its guests; of its services none but the witness has to."""
    said = pve(f"python3 - $(systemctl show -P ControlGroup glasslab-proxy) <<'END'\n{WITHIN}\nEND")
    assert said.split() == ["denied", "open"]
