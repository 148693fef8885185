"""Whatever resolver.conf has become: what a guest asks goes nowhere, and the receipt says when it would."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from egresstools import AGENT, MODEL, MODEL_ADDRESS, asked, dns, ends, queries_upstream
from isolationtools import differing, pve, take_receipt, wait_for

CONFIG, UNIT = "/etc/glasslab/network/resolver.conf", "/etc/systemd/system/glasslab-resolver.service"
RESTART = "systemctl daemon-reload; systemctl restart glasslab-resolver"
# What the resolver's unit may send to is what holds them.
FAULTS = {
    "it is told whom to ask": "s/^no-resolv/server=203.0.113.53/",
    "it asks whom the host asks": "/^no-resolv/d",
    "the names are nobody's own": "s/^no-resolv/server=203.0.113.53/; /^local=/d",
    "it is told whom to ask for one name": "$a server=/glasslab.test/203.0.113.53",
    "it is told whom to ask, and the rest of it is lost": "2,$d; $a server=203.0.113.53",
}


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    pve(f"cp -p {CONFIG} /root/resolver.conf.kept; cp -p {UNIT} /root/resolver.service.kept")
    yield
    pve(f"mv /root/resolver.conf.kept {CONFIG}; mv /root/resolver.service.kept {UNIT}; {RESTART}")
    wait_for("the resolver answers", lambda: ends(AGENT, [dns(MODEL)]) == ["answered"], 10)


def leaked(fault: str) -> bool:
    """Whether what the agent asks for comes to a resolver outside, with that fault in the file."""
    pve(f"sed -i '{fault}' {CONFIG}; {RESTART}; sleep 0.3")
    token = uuid.uuid4().hex
    asked(AGENT, [dns(f"{token}.{name}", timeout=1.0) for name in ("glasslab.test", MODEL, "example.com")])
    return any(token in line for line in queries_upstream())


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_guest_asks_goes_nowhere(fault: str) -> None:
    assert not leaked(FAULTS[fault])


def test_without_that_it_goes_out_and_the_receipt_says_so() -> None:
    pve(f"sed -i '/^IPAddress/d' {UNIT}")
    assert leaked(FAULTS["it is told whom to ask"])
    [own] = asked(AGENT, [dns(MODEL)])
    assert own["got"] == f"NOERROR {MODEL_ADDRESS}", "by its allowed name alone nobody would know"
    found = [line for line in differing(take_receipt()) if "resolver, another name" in line]
    assert len(found) >= 2
    assert all("expected blocked, observed reachable" in line for line in found)
