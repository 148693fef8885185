"""What the receipt tries, and what the policy says of each door."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import doors
import plan
import receipt
from receiptworld import MODEL, PACKAGES, WEB, World, known, planned


@pytest.mark.parametrize("mode", ["allowlist", "open", "closed", "build"])
def test_as_the_policy_says(mode: str) -> None:
    result = World(mode, MODEL, PACKAGES, WEB, disruptive=True).receipt()
    assert receipt.findings(result) == []
    assert result["as_expected"] is True
    assert result["counts"]["unproven"] == 0
    assert result["mode"] == mode
    assert result["began"] == "1970-01-01T00:16:40.000000Z"
    assert result["time"] > result["began"]
    published = [one for one in result["probes"] if one["place"] == "agent"]
    counted = Counter(one["target"] for one in published)
    assert {name: counted[name] for name in ("LAN", "other lab")} == {"LAN": 12, "other lab": 4}
    assert counted["hypervisor"] == 12
    assert {one["observed"] for one in published if one["target"] in ("hypervisor", "LAN", "other lab")} == {"blocked"}


def test_a_machine_that_is_no_guest_of_the_policy_is_named() -> None:
    node = {"known": known(), "begun": "{}", "address": "192.168.50.2"}
    with pytest.raises(SystemExit, match="verify: web: no guest of network_guests"):
        plan.together({"nodes": {"pve": node}, "guests": ["agent", "web"], "sandboxes": {}})


def test_where_an_answer_is_expected_it_may_take_longer() -> None:
    machines = planned("allowlist", MODEL)["machines"]
    patient = {
        place["name"]: {door["patient"] for door in place["order"]["doors"]}
        for machine in machines.values()
        for place in machine["places"]
    }
    assert patient["controller"] == patient["hypervisor"] == {True}
    assert patient["agent"] == {True, False}
    agent = machines["agent"]["places"][0]["order"]["doors"]
    assert {door["port"] for door in agent if door["patient"]} == {8088, 53, 443}


def test_the_published_28_are_among_the_defaults() -> None:
    published = [
        (address, kind, port)
        for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1")
        for kind, port in (("tcp", 22), ("tcp", 8006), ("udp", 8006), ("ping", None))
    ]
    for address in ("192.168.50.10", "192.168.50.1"):
        published += [(address, "tcp", port) for port in (22, 80, 445, 8006, 443)] + [(address, "ping", None)]
    published += [("10.20.20.10", "tcp", port) for port in (22, 80, 8088)] + [("10.20.20.10", "ping", None)]
    assert len(published) == 28
    rows = World().receipt()["probes"]
    shut = {
        (one["address"], one["protocol"], one["port"])
        for one in rows
        if (one["place"], one["expected"]) == ("agent", "blocked")
    }
    assert set(published) <= shut


EXPECTED = [
    # mode, guest, door, what the policy says
    ("allowlist", "agent", ("10.10.10.20", "tcp", 8088), "flow"),
    ("closed", "agent", ("10.10.10.20", "tcp", 8088), "flow"),
    ("allowlist", "logs", ("10.10.10.20", "tcp", 8088), "blocked"),
    ("allowlist", "agent", ("10.10.10.20", "udp", 8088), "blocked"),
    ("allowlist", "agent", ("192.0.2.129", "tcp", 443), "flow"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, "model.example"), "flow"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, "other.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, ""), "blocked"),
    ("allowlist", "logs", ("192.0.2.129", "tls", 443, "model.example"), "blocked"),
    ("closed", "agent", ("192.0.2.129", "tls", 443, "model.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.53", "dns", 53, "model.example"), "flow"),
    ("allowlist", "logs", ("192.0.2.53", "dns", 53, "model.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.130", "tcp", 80), "blocked"),
    ("build", "agent", ("192.0.2.130", "tcp", 80), "flow"),
    ("allowlist", "logs", ("198.51.100.7", "tcp", 443), "flow"),
    ("allowlist", "logs", ("198.51.100.7", "udp", 443), "blocked"),
    ("allowlist", "agent", ("8.8.8.8", "tcp", 443), "blocked"),
    ("open", "agent", ("8.8.8.8", "tcp", 443), "reachable"),
    ("open", "agent", ("8.8.8.8", "ping", None), "reachable"),
    ("open", "agent", ("2001:db8::1", "tcp", 443), "blocked"),
    ("open", "agent", ("192.168.50.10", "tcp", 80), "blocked"),
    ("open", "agent", ("100.64.0.1", "tcp", 443), "blocked"),
    ("open", "agent", ("10.10.10.1", "tcp", 22), "blocked"),
]


@pytest.mark.parametrize(("mode", "guest", "door", "says"), EXPECTED)
def test_what_the_policy_says(mode: str, guest: str, door: tuple[Any, ...], says: str) -> None:
    policy = known(mode, MODEL, PACKAGES, WEB)["policy"]
    who = next(one for one in policy["guests"] if one["name"] == guest)
    expect, one = doors.Expectations(policy, ["192.168.50.2"]), doors.door(*door)
    found = "flow" if expect.flow(who, one) else "reachable" if expect.reachable(who, one) else "blocked"
    assert found == says


@pytest.mark.parametrize("mode", ["open", "build", "allowlist"])
def test_a_sandbox_may_reach_less_than_its_machine(mode: str) -> None:
    """By its unit's own list of addresses; a name is looked up there, and is one of the list's."""
    made = planned(mode, MODEL, PACKAGES, allow=["192.0.2.129", "192.0.2.53", "10.10.10.20"])
    may = {
        (row["target"], row["address"])
        for row in made["rows"]
        if row["place"] == "agent's sandbox" and row["expected"] == "reachable"
    }
    by_name = {("model", "model.example")} if mode == "open" else {("model", "192.0.2.129"), ("resolver", "192.0.2.53")}
    assert may == {("log", "10.10.10.20")} | by_name


def test_the_hypervisors_own_public_address_is_never_the_internet() -> None:
    policy = known("open", MODEL)["policy"]
    expect = doors.Expectations(policy, ["8.8.4.4"])
    assert not expect.reachable(policy["guests"][0], doors.door("8.8.4.4", "tcp", 22))
