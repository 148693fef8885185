"""Each field of the network's policy, wrong in each way: a line that names it, never a rule that means another."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import preflight
from glasslab_policy import network_policy
from glasslab_policy_kinds import policy_kinds
from glasslab_policy_problems import policy_problems
from test_network_policy import API, WEB, flow, guest, policy

NUMBER = 10**30
WRONG: list[Any] = [
    *(None, "", 0, -1, 1, True, False, 1.5, NUMBER, float("nan"), "x", " ", "a\nb", "é", "80", "80-90", b"x"),
    *([], {}, [[]], [{}], [None], [1], ["80"], ["80-90"], ["agent", ["logs"]], {"a": 1}),
    *("10.10.10.0", "10.10.10.255", "10.10.10.10/32", "10.10.10.1", "0.0.0.0", "255.255.255.255", "127.0.0.1"),
    *("8.8.8.0/0.0.0.255", "8.8.8.0/255.255.255.0", "128.0.0.0/1", "::1", "lo", "all", "default", "vmbr0", "vmbr1"),
    *("agent", "logs", "hypervisor", "controller", "resolver", "open", "build"),
]
FLOWS = [{"name": "log", "from": "agent", "to": "logs", "protocol": "tcp", "ports": [8088], "why": "-"}, API, WEB]
FIELDS = ("name", "from", "to", "names", "protocol", "ports", "modes", "private")


def said(declared: dict[str, Any]) -> list[str]:
    """What the preflight says of a policy."""
    return policy_kinds(declared) or policy_problems(declared)


def wrong(value: Any) -> Iterator[dict[str, Any]]:
    """The policy with that value in one place, for every place."""
    start = policy(flows=copy.deepcopy(FLOWS))
    for name in start:
        if name != "mode":  # one of four words, by the role's own arguments
            yield {**copy.deepcopy(start), name: value}
    for number in range(len(start["guests"])):
        for field in ("name", "address", "mac", "port"):
            changed = copy.deepcopy(start)
            changed["guests"][number][field] = value
            yield changed
    for number in range(len(FLOWS)):
        for field in FIELDS:
            if field == "protocol" and value not in ("tcp", "udp"):
                continue  # as mode
            changed = copy.deepcopy(start)
            changed["flows"][number][field] = value
            yield changed
    yield {**copy.deepcopy(start), "name_addresses": {"api.example.org": value}}


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_any_value_in_any_field_is_refused_in_lines_or_can_be_worked_out(value: Any) -> None:
    for declared in wrong(value):
        problems = said(declared)
        assert all(problem and "\n" not in problem for problem in problems)
        if not problems:
            assert network_policy(declared)["entries"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        # What Ansible could convert and does not.
        (flow(ports=443), "network_flows: web: ports 443 is not a list, such as [443]"),
        (flow(ports="443"), "network_flows: web: ports '443' is not a list, such as ['443']"),
        (flow(ports=[True]), "network_flows: web: ports True is not a number"),
        (flow(modes="open"), "network_flows: web: modes 'open' is not a list, such as ['open']"),
        (
            flow(to="192.168.50.9", private="no"),
            "network_flows: web: private 'no' is not true or false, without quotes",
        ),
        ({"flows": [{**API, "names": "api.example.org"}]}, "names 'api.example.org' is not a list"),
        ({"bridge": 1}, "network_bridge 1 is not text: put it in quotes"),
        ({"guests": None}, "network_guests None is not a list"),
        (guest(name=101), "network_guests: name 101 is not text: put it in quotes"),
        # 52:54:00:12:34:56 without quotes is a number to the base of 60.
        (guest(mac=41_177_194_496), "network_guests: mac 41177194496 is not text: put it in quotes"),
        (guest(mac="41177194496"), "mac '41177194496' is malformed: one machine's, such as '02:10:00:00:00:10'"),
        # Of such a mask iptables makes every address that ends in .0; Python, a network of 256.
        (flow(to="8.8.8.0/0.0.0.255"), "to '8.8.8.0/0.0.0.255' is neither a guest nor an IPv4 address"),
        ({"subnet": "10.10.10.0/0.0.0.255"}, "network_subnet 10.10.10.0/0.0.0.255 is not an IPv4 network"),
        ({"special_ranges": ["10.0.0.0/0.255.255.255"]}, "network_special_ranges: 10.0.0.0/0.255.255.255 is not an"),
        (guest(address="10.10.10.20/32"), "logs: address 10.10.10.20/32 is not one address inside"),
        ({"resolver_address": "192.0.2.53/32"}, "network_resolver_address: 192.0.2.53/32 is not one IPv4 address"),
        (guest(address="10.10.10.255"), "logs: address 10.10.10.255 is that of network_subnet 10.10.10.0/24 itself"),
        ({"address": "10.10.10.0"}, "network_address: address 10.10.10.0 is that of network_subnet 10.10.10.0/24"),
        # Interfaces that are not to be told apart, or are everybody's.
        ({"bridge": "all"}, "network_bridge 'all' is not an interface name"),
        ({"uplink": "vmbr1"}, "network_uplink vmbr1 is network_bridge, too"),
        (guest(port="vmbr0"), "network_guests: port vmbr0: vmbr0 is network_uplink's"),
        (guest(port="vmbr1"), "network_guests: port vmbr1: vmbr1 is network_bridge's"),
        (guest(port="lo"), "network_guests: port 'lo' is no guest's"),
        (guest(port="veth101i0"), "network_guests: port veth101i0: fwpr101p0 is tap101i0's"),
        (guest(port="fwpr101p0"), "network_guests: port fwpr101p0: fwpr101p0 is tap101i0's"),
        # Names that mean something already.
        (guest(name="controller"), "network_guests: name 'controller' is a place of the receipt"),
        (flow(name="internet"), "network_flows: internet: the log calls packets of the hypervisor's own rules so"),
        (flow(to="127.0.0.1", private=True), "private: to 127.0.0.1 is on no network"),
        ({"names_range": "224.0.0.0/4"}, "network_names_range 224.0.0.0/4 is not an IPv4 network"),
    ],
)
def test_refused_with_its_field_and_its_value(changes: dict[str, Any], line: str) -> None:
    problems = said(policy(**changes))
    assert any(line in problem for problem in problems), problems


def test_a_range_for_names_is_not_counted_address_by_address() -> None:
    assert said(policy(names_range="64.0.0.0/3", flows=[API])) == []
    assert said(policy(names_range="192.0.2.130/32", flows=[API])) == []
    assert network_policy(policy(names_range="192.0.2.130/32", flows=[API]))["named"][0]["address"] == "192.0.2.130"


def test_a_flow_to_the_hypervisor_itself_is_refused() -> None:
    """INPUT would drop it all the same, and nobody would say why."""
    declared = policy(**flow(to="192.168.50.2", private=True))
    assert preflight.own_doors(declared, "192.168.50.9") == []
    (said,) = preflight.own_doors(declared, "192.168.50.2")
    assert said.startswith("network_flows: web: to 192.168.50.2 is this host itself")


def test_a_network_card_of_the_host_is_no_guests_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packets would be dropped, and the card be taken down as a guest's that is in another bridge."""
    monkeypatch.setattr(preflight, "NET", tmp_path)
    for path in ("tap101i0/brport", "eno1/device", "vmbr7/bridge"):
        (tmp_path / path).mkdir(parents=True)
    assert preflight.port_problems(policy()) == []
    (card,) = preflight.port_problems(policy(**guest(port="eno1")))
    assert card.startswith("network_guests: port eno1 of logs is a network card of this host")
    (bridge,) = preflight.port_problems(policy(**guest(port="vmbr7")))
    assert bridge.startswith("network_guests: port vmbr7 of logs is a bridge of this host")
