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
MASQUERADED = "-A POSTROUTING -s 10.9.9.0/24 -o vmbr0 -j MASQUERADE"
OURS = "-A GLASSLAB-POSTROUTING -s 10.10.10.0/24 -j MASQUERADE"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host that the lab has made route: its settings, its rules for translation, its interfaces."""
    told: dict[str, Any] = {"sysctl": {FORWARD: "1", UPLINK: "1", REDIRECTS: "0", OWN: "1"}, "nat": [OURS], "there": []}
    told["root"] = tmp_path

    def listing() -> dict[str, dict[str, list[str]]]:
        if told["nat"] is None:
            raise Failure("iptables-save cannot be run")
        return {"rules.v4": {"nat": told["nat"]}}

    monkeypatch.setattr(drift, "ROOT", tmp_path)
    monkeypatch.setattr(drift, "sysctl", told["sysctl"].get)
    monkeypatch.setattr(drift, "set_sysctl", told["sysctl"].__setitem__)
    monkeypatch.setattr(drift, "store", lambda *_: None)
    monkeypatch.setattr(drift.tables, "look", listing)
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
        ("nat", [OURS, MASQUERADED]),
        ("nat", None),
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


@pytest.mark.parametrize("text", ["#net.ipv4.ip_forward=1\n", "net.ipv4.ip_forward=0\n", "\t# echo 1 > ip_forward\n"])
def test_what_asks_for_nothing_keeps_nothing_on(host: dict[str, Any], text: str) -> None:
    (host["root"] / "etc/sysctl.d").mkdir(parents=True)
    (host["root"] / "etc/sysctl.d/own.conf").write_text(text, encoding="utf-8")
    drift.restore_sysctls({"sysctl": dict(FORMER)})
    assert host["sysctl"][FORWARD] == "0"
