"""Routing that the lab has switched on goes off with it, unless somebody else has come to need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hypervisor import drift
from hypervisor.kernel import Failure

FORWARD, UPLINK = "net/ipv4/ip_forward", "net/ipv4/conf/vmbr0/forwarding"
REDIRECTS, OWN = "net/ipv4/conf/all/accept_redirects", "net/ipv4/conf/vmbr0/src_valid_mark"
FORMER = {FORWARD: "0", UPLINK: "0", REDIRECTS: "1", OWN: "0"}
RECIPE = "iface vmbr9 inet static\n\tpost-up   echo 1 > /proc/sys/net/ipv4/ip_forward\n"
NAT = """table ip nat {
	chain GLASSLAB-POSTROUTING {
		ip saddr 10.10.10.0/24 counter masquerade
	}
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "vmbr0" counter jump GLASSLAB-POSTROUTING
%s
	}
}
"""
OURS = NAT % '		ip daddr 192.0.2.1 counter accept comment "masquerade and snat are not here"'


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host that the lab has made route: its settings, its rules for translation, its interfaces."""
    told: dict[str, Any] = {"sysctl": {FORWARD: "1", UPLINK: "1", REDIRECTS: "0", OWN: "1"}, "rules": OURS, "there": []}
    told["root"] = tmp_path

    def ruleset(*_: str) -> str:
        if told["rules"] is None:
            raise Failure("nft cannot be run")
        return str(told["rules"])

    monkeypatch.setattr(drift, "ROOT", tmp_path)
    monkeypatch.setattr(drift, "sysctl", told["sysctl"].get)
    monkeypatch.setattr(drift, "set_sysctl", told["sysctl"].__setitem__)
    monkeypatch.setattr(drift, "store", lambda *_: None)
    monkeypatch.setattr(drift.tables, "run", ruleset)
    monkeypatch.setattr(drift.ports, "exists", lambda name: name in told["there"])
    return told


def test_nobody_else_needs_it(host: dict[str, Any]) -> None:
    former = {"sysctl": dict(FORMER)}
    drift.restore_sysctls(former)
    assert host["sysctl"] == FORMER
    assert former["sysctl"] == {}


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("etc/network/interfaces", RECIPE),
        ("etc/network/interfaces.d/nat", RECIPE),
        ("etc/sysctl.d/99-own.conf", "net.ipv4.ip_forward = 1\n"),
        ("etc/sysctl.conf", "# own\nnet/ipv4/ip_forward=1\n"),
        ("etc/network/interfaces.d/sdn", "iface net1 inet static\n\taddress 10.8.0.1/24\n\tip-forward on\n"),
        ("rules", NAT % '\t\toifname "vmbr0" ip saddr 10.9.9.0/24 counter masquerade'),
        ("rules", NAT % '\t\tip saddr 10.9.9.0/24 counter xt target "MASQUERADE"'),
        ("rules", NAT % "\t\tip saddr 10.9.9.0/24 counter snat to 192.168.50.2"),
        ("rules", OURS + "table inet theirs {\n\tchain out {\n\t\toifname vmbr0 masquerade\n\t}\n}\n"),
        ("rules", None),
        ("there", ["docker0"]),
    ],
)
def test_what_others_need_stays_on(host: dict[str, Any], what: str, value: Any) -> None:
    """Their guests would be cut off when the lab closes its own way out, or goes."""
    if "/" in what:
        path = host["root"] / what
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value, encoding="utf-8")
    else:
        host[what] = value
    for which in (lambda path: path == FORWARD or path.endswith("/forwarding"), lambda _: True):
        former = {"sysctl": dict(FORMER)}
        drift.restore_sysctls(former, which)
        assert (host["sysctl"][FORWARD], host["sysctl"][UPLINK], host["sysctl"][REDIRECTS]) == ("1", "1", "0")
        assert former["sysctl"].keys() <= {OWN}
    assert host["sysctl"][OWN] == "0", "what is the lab's alone goes"


SIX = OURS + "table ip6 theirs {\n\tchain out {\n\t\toifname vmbr0 masquerade\n\t}\n}\n"


def test_what_is_translated_over_ipv6_needs_no_routing_of_ipv4(host: dict[str, Any]) -> None:
    host["rules"] = SIX
    drift.restore_sysctls({"sysctl": dict(FORMER)})
    assert host["sysctl"][FORWARD] == "0"


@pytest.mark.parametrize(
    "text",
    [
        "#net.ipv4.ip_forward=1\n",
        "net.ipv4.ip_forward=0\n",
        "\t# echo 1 > ip_forward\n",
        "ip-forward off\n",
        "# ip-forward on",
    ],
)
def test_what_asks_for_nothing_keeps_nothing_on(host: dict[str, Any], text: str) -> None:
    (host["root"] / "etc/sysctl.d").mkdir(parents=True)
    (host["root"] / "etc/sysctl.d/own.conf").write_text(text, encoding="utf-8")
    drift.restore_sysctls({"sysctl": dict(FORMER)})
    assert host["sysctl"][FORWARD] == "0"
