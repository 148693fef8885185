"""The network's policy: refused when it makes no sense, and rule files that say what it says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

import preflight
from glasslab_policy import network_policy
from glasslab_policy_problems import policy_problems

ROLE = Path(__file__).resolve().parents[2] / "roles" / "network"


DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
DECLARED = list(yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))["network_declared"])
API = {"name": "api", "from": "agent", "names": ["api.example.org"], "protocol": "tcp", "ports": [443], "why": "-"}
WEB = {"name": "web", "from": "agent", "to": "9.9.9.9", "protocol": "tcp", "ports": [80, 443], "why": "-"}


def policy(**changes: Any) -> dict[str, Any]:
    """The role's defaults as the preflight gets them, with changes."""
    return {**{name: copy.deepcopy(DEFAULTS[f"network_{name}"]) for name in DECLARED}, **changes}


def flow(**changes: Any) -> dict[str, Any]:
    return {"flows": [{**WEB, **changes}]}


def guest(**changes: Any) -> dict[str, Any]:
    first, second = copy.deepcopy(DEFAULTS["network_guests"])
    return {"guests": [first, {**second, **changes}], "flows": []}


def test_defaults_and_a_flow_to_the_internet_make_sense() -> None:
    assert policy_problems(policy()) == []
    assert policy_problems(policy(**flow())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"subnet": "10.10.10.1/24"}, "network_subnet 10.10.10.1/24 is not"),
        ({"subnet": "lab"}, "network_subnet lab is not"),
        ({"bridge": "a-name-of-more-than-15"}, "network_bridge 'a-name-of-more-than-15'"),
        ({"uplink": "vm br0"}, "network_uplink 'vm br0'"),
        ({"address": "10.10.11.1"}, "network_address: address 10.10.11.1 is not one address inside"),
        (guest(address="10.10.10.10"), "logs: address 10.10.10.10 is taken by agent"),
        (guest(address="10.10.10.1"), "logs: address 10.10.10.1 is taken by network_address"),
        (guest(name="agent"), "name 'agent' is used twice"),
        (guest(port="tap101i0"), "port 'tap101i0' is used twice"),
        (guest(port="tap; reboot"), "port 'tap; reboot' is malformed"),
        (guest(mac="02:10:00:00:00:1"), "mac '02:10:00:00:00:1' is malformed"),
        ({"special_ranges": ["10.0.0.0/33"]}, "network_special_ranges: 10.0.0.0/33"),
        ({"special_ranges": []}, "network_special_ranges: 192.168.0.0/16 is missing"),
        (flow(**{"from": "nobody"}), "from 'nobody' is no guest"),
        (flow(to="example.org"), "to 'example.org' is neither a guest nor"),
        (flow(to="10.10.10.99"), "to 10.10.10.99 is inside the lab's own subnet"),
        (flow(to="192.168.50.0/24"), "inside the special-purpose range 192.168.0.0/16"),
        (flow(to="0.0.0.0/0"), "inside the lab's own subnet"),
        (flow(to="logs", protocol="udp"), "only tcp"),
        (flow(ports=[]), "ports [] must be"),
        (flow(ports=[0]), "ports [0] must be"),
        (flow(ports=[65536]), "ports [65536] must be"),
        (flow(name='x" -j ACCEPT'), "the name must be one word"),
        ({"flows": [WEB, WEB]}, "used once"),
        (flow(**{"from": []}), "from [] must name at least one guest"),
        (flow(**{"from": ["agent", "agent"]}), "each once"),
        (flow(to=None), "give either `to` (a guest or an address) or `names`"),
        (flow(names=["api.example.org"]), "give either `to`"),
        (flow(to="agent"), "from and to are the same guest 'agent'"),
        (
            flow(to="192.168.50.0/24", private=True),
            "private: it leads to one address by tcp, and not to 192.168.50.0/24",
        ),
        (flow(to="192.168.50.9", private=True, protocol="udp"), "private: it leads to one address by tcp"),
        (flow(to="10.10.10.9", private=True), "is inside the lab's own subnet: name the guest instead"),
        (flow(to="logs", modes=["open"]), "modes ['open']: a flow to a guest holds in every mode"),
        ({"flows": [{**API, "protocol": "udp"}]}, "by name only tcp"),
        *(
            ({"flows": [{**API, "names": [name]}]}, f"name {name!r} is not a DNS name")
            for name in ("API.example.org", "*.example.org", "localhost", "10.0.0.1", "a..b", "x.org\nserver=9.9.9.9")
        ),
        ({"name_addresses": {"api.example.org": "10.10.10.9"}}, "10.10.10.9 is not one IPv4 address outside"),
        ({"name_addresses": {"api.example.org": "192.0.2.53"}}, "192.0.2.53 is taken by network_resolver_address"),
        ({"resolver_address": "dns.example.org"}, "network_resolver_address: dns.example.org is not one"),
        ({"resolver_address": "192.0.2.130"}, "network_names_range 192.0.2.128/25 must not hold 192.0.2.130"),
        ({"names_range": "192.0.2.128/32", "flows": [API, {**WEB, "to": None, "names": ["b.example.org"]}]}, "room"),
        ({"names_range": "10.10.0.0/16"}, "network_names_range 10.10.0.0/16 is not"),
        ({"connection_limit": 0}, "network_connection_limit 0 must be from 1 to 100000"),
        ({"confirm_seconds": -1}, "network_confirm_seconds -1 must be from 5 to 3600"),
        ({"lease_seconds": 90000}, "network_lease_seconds 90000 must be from 0 to 86400"),
        (
            {"connection_limit": 20_000, "flows": [{**API, "ports": [443, 80]}]},
            "network_connection_limit 20000: flows by name make that 40000 connections at the proxy, more than 32768",
        ),
        (guest(mac="03:10:00:00:00:20"), "mac '03:10:00:00:00:20' is malformed"),
    ],
)
def test_refused(changes: dict[str, Any], said: str) -> None:
    problems = policy_problems(policy(**changes))
    assert any(said in problem for problem in problems), problems


def rendered(name: str, **changes: Any) -> list[str]:
    """A rule file's lines, without comments, as the role renders it."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters["to_json"] = json.dumps
    text = environment.from_string((ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8"))
    told = {"ansible_managed": "Ansible managed", "network_policy": network_policy(policy(**changes))}
    lines = text.render(told).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def with_flows(*flows: dict[str, Any]) -> dict[str, Any]:
    return {"flows": [*DEFAULTS["network_flows"], *flows]}


def test_a_flow_to_an_address_is_marked_and_accepted_and_nothing_else_is() -> None:
    lines = rendered("rules.v4", **with_flows(WEB))
    way = "-s 10.10.10.10 -d 9.9.9.9 -p tcp -m multiport --dports 80,443"
    assert [line for line in lines if "9.9.9.9" in line and "NFLOG" not in line] == [
        f'-A GLASSLAB-ROUTE {way} -m comment --comment "flow web" -g GLASSLAB-MARK',
        f'-A GLASSLAB-FORWARD -i vmbr1 -o vmbr0 {way} -m comment --comment "flow web" -j ACCEPT',
    ]
    assert len([line for line in lines if "8088" in line]) == 1
    bridge = rendered("bridge.nft", **with_flows(WEB))
    assert [line for line in bridge if "9.9.9.9" in line] == []
    assert len([line for line in bridge if "8088" in line]) == 2


def test_a_flow_by_name_is_redirected_and_never_routed() -> None:
    changes = with_flows({**API, "ports": [443, 80]})
    found = network_policy(policy(**changes))
    assert found["forwarding"] is False
    assert found["resolver"]["names"] == {"api.example.org": "192.0.2.129"}
    assert [(door["port"], door["listen"], door["inspect"]) for door in found["services"]] == [
        (443, 14000, "tls"),
        (80, 14001, "http"),
    ]
    assert found["services"][0]["routes"] == [{"name": "api.example.org", "sources": ["10.10.10.10"]}]
    lines = rendered("rules.v4", **changes)
    redirects = [line for line in lines if "REDIRECT" in line]
    assert [line.split(" -m comment")[0].split(" -j ")[0] for line in redirects] == [
        "-A GLASSLAB-PREROUTING -s 10.10.10.10 -d 192.0.2.53 -p udp -m udp --dport 53",
        "-A GLASSLAB-PREROUTING -s 10.10.10.10 -d 192.0.2.53 -p tcp -m tcp --dport 53",
        "-A GLASSLAB-PREROUTING -s 10.10.10.10 -d 192.0.2.129 -p tcp -m tcp --dport 443",
        "-A GLASSLAB-PREROUTING -s 10.10.10.10 -d 192.0.2.129 -p tcp -m tcp --dport 80",
    ]
    assert not [line for line in lines if "GLASSLAB-MARK" in line or "MASQUERADE" in line]
    # what reaches the hypervisor itself must have been redirected, or be a reply
    accepted = [line for line in lines if line.startswith("-A GLASSLAB-INPUT") and line.endswith("ACCEPT")]
    assert all("--ctstate DNAT" in line or "--ctdir REPLY" in line for line in accepted)


MODES = ("allowlist", "open", "closed", "build")


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    flows = with_flows(API, {**API, "name": "packages", "names": ["deb.example.org"], "modes": ["build"]}, WEB)
    found = network_policy(policy(mode=mode, **flows))
    by_name = {"allowlist": ["api"], "open": [], "closed": [], "build": ["api", "packages"]}
    assert [one["flow"] for one in found["named"]] == by_name[mode]
    assert [one["flow"] for one in found["routed"]] == ([] if mode in ("open", "closed") else ["web"])
    assert [one["flow"] for one in found["bridged"]] == ["log"]
    assert found["open"] == (["10.10.10.10"] if mode == "open" else []), "the log's machine has no way out"
    assert (found["resolver"] is None) == (mode in ("open", "closed"))
    assert found["forwarding"] == (mode != "closed")


@pytest.mark.parametrize("mode", ["allowlist", "open", "closed", "build"])
def test_a_flow_of_no_mode_opens_nothing_and_is_not_named(mode: str) -> None:
    off = {**API, "name": "off", "names": ["off.example.org"], "modes": []}
    found = network_policy(policy(mode=mode, **with_flows(API, off)))
    assert [one for one in found["named"] if one["flow"] == "off"] == []
    assert "off.example.org" not in str(found["resolver"])
    assert found == network_policy(policy(mode=mode, **with_flows(API)))


@pytest.mark.parametrize("mode", ["allowlist", "open"])
def test_one_door_into_a_private_network_is_open_before_the_rest_of_it_is_closed(mode: str) -> None:
    """A Splunk on the user's own network: that address and port, in mode open too."""
    changes = flow(name="log", to="192.168.50.9", ports=[8088], private=True)
    assert policy_problems(policy(**changes)) == []
    lines = rendered("rules.v4", mode=mode, **changes)
    forwarded = [line for line in lines if line.startswith("-A GLASSLAB-FORWARD")]
    (door,) = [n for n, line in enumerate(forwarded) if "192.168.50.9" in line]
    assert "--dport" in forwarded[door]
    closed = [n for n, line in enumerate(forwarded) if "-d 192.168.0.0/16 -j DROP" in line]
    assert [n > door for n in closed] == ([True] if mode == "open" else [])
    routed = [line for line in lines if line.startswith("-A GLASSLAB-ROUTE") and "192.168.50.9" in line]
    assert len(routed) == 2, "logged and marked"


def test_in_open_mode_special_ranges_come_first() -> None:
    lines = rendered("rules.v4", mode="open", **with_flows(API))
    for chain, last in (("ROUTE", "-g GLASSLAB-MARK"), ("FORWARD", "-j ACCEPT")):
        ranges = [i for i, line in enumerate(lines) if line.startswith(f"-A GLASSLAB-{chain} -d ")]
        ways_out = [
            i
            for i, line in enumerate(lines)
            if line.startswith(f"-A GLASSLAB-{chain} ") and line.endswith(last) and "-s 10.10.10.10 -p" in line
        ]
        assert len(ranges) == len(DEFAULTS["network_special_ranges"])
        assert len(ways_out) == 3
        assert max(ranges) < min(ways_out)


def test_a_guests_icmp_is_about_its_own_connections_alone() -> None:
    """An error about another guest's, or the hypervisor's, would cut that off."""
    guests = [{**DEFAULTS["network_guests"][0], "name": f"g{n}", "address": f"10.10.10.{n}"} for n in (10, 11)]
    flows = [{**API, "from": ["g10", "g11"]}]
    lines = rendered("rules.v4", mode="open", guests=guests, flows=flows)
    verdicts = ("-j ACCEPT", "-g GLASSLAB-MARK")
    icmp = [line for line in lines if " -p icmp " in line and "-s 10." in line and line.endswith(verdicts)]
    assert len(icmp) == 2 * (2 + 1), "routed, forwarded, and in to the hypervisor"
    for line in icmp:
        source = line.split(" -s ")[1].split()[0]
        assert f"--ctorigsrc {source} " in line or f"--ctstate RELATED --ctorigdst {source} --ctdir REPLY" in line


def test_agents_are_isolated_from_each_other_and_not_from_the_log() -> None:
    guests = [
        {"name": name, "address": f"10.10.10.{n}", "mac": f"02:10:00:00:00:{n}", "port": f"tap1{n}i0"}
        for name, n in (("agent", 10), ("other", 11), ("logs", 20))
    ]
    log = {**DEFAULTS["network_flows"][0], "from": ["agent", "other"]}
    found = network_policy(policy(guests=guests, flows=[log]))
    assert [(one["name"], one["isolated"], one["peers"]) for one in found["guests"]] == [
        ("agent", True, ["10.10.10.20"]),
        ("other", True, ["10.10.10.20"]),
        ("logs", False, ["10.10.10.10", "10.10.10.11"]),
    ]


@pytest.mark.parametrize(
    ("port", "entries", "inner", "own_bridge"),
    [
        ("tap101i0", ["tap101i0", "fwpr101p0"], ["tap101i0", "fwln101i0"], "fwbr101i0"),
        ("veth102i1", ["veth102i1", "fwpr102p1"], ["veth102i1", "fwln102i1"], "fwbr102i1"),
        ("vnet3", ["vnet3"], None, None),
    ],
)
def test_a_port_is_known_by_each_of_its_names(
    port: str, entries: list[str], inner: list[str] | None, own_bridge: str | None
) -> None:
    found = network_policy(policy(**guest(port=port)))
    one = found["guests"][1]
    assert (one["entries"], one["inner"], one["own_bridge"]) == (entries, inner, own_bridge)
    assert found["sysctls"][f"net/ipv4/conf/{port}/arp_ignore"] == "8"
    assert ["-6", "pref", "4701", "iif", port, "blackhole"] in found["ip_rules"]
    closed = ["-4", "pref", "4701", "iif", own_bridge, "blackhole"] in found["ip_rules"]
    assert closed == (found["sysctls"].get(f"net/ipv4/conf/{own_bridge}/arp_ignore") == "8") == (own_bridge is not None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["rules.v4", "rules.v6"])
def test_every_chain_that_judges_ends_in_a_drop(name: str, mode: str) -> None:
    lines = rendered(name, mode=mode, **with_flows(API, WEB))
    judging = ("RAW", "INPUT", "FORWARD", "OUTPUT")
    chains = {line[1:].split()[0] for line in lines if line.startswith(":")}
    for chain in chains & {f"GLASSLAB-{one}" for one in judging}:
        assert [line for line in lines if line.startswith(f"-A {chain} ")][-1] == f"-A {chain} -j DROP"


@pytest.mark.parametrize("name", ["rules.v4", "rules.v6", "bridge.nft"])
def test_without_guests_and_flows_nothing_is_accepted_but_replies(name: str) -> None:
    lines = rendered(name, guests=[], flows=[])
    accepted = [line for line in lines if line.endswith("ACCEPT")]
    assert all("--ctdir REPLY" in line for line in accepted)
    assert not any("elements" in line for line in lines)


def tools(folder: Path, **codes: int) -> None:
    """Programs that say their name and end with the given code."""
    for name in ("ifreload", "iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save", "nft", "ip"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} spoke >&2\nexit {codes.get(name, 0)}\n", encoding="utf-8")
        program.chmod(0o755)


def test_tools_that_are_missing_or_broken_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tools(tmp_path)
    assert preflight.tool_problems() == []
    tools(tmp_path, nft=1)
    (tmp_path / "ifreload").unlink()
    (tmp_path / "ip6tables-save").unlink()
    (tmp_path / "iptables-restore").write_text("", encoding="utf-8")
    (tmp_path / "iptables-restore").chmod(0)
    assert preflight.tool_problems() == [
        "ifupdown2 is missing (no ifreload): apt-get install ifupdown2",
        "iptables-restore cannot be run (Permission denied): repair it, or apt-get install --reinstall iptables",
        "ip6tables-save is missing: apt-get install iptables",
        "nft fails (nft spoke): apt-get install --reinstall nftables",
    ]


def test_what_is_no_obstacle_is_said_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other firewalls, routing that others need, policy rules that decide first."""
    running = {"pve-firewall", "docker"}
    states = "".join("active\n" if name in running else "inactive\n" for name in preflight.FIREWALLS)
    monkeypatch.setattr(preflight, "output", lambda *words: states if words[1] == "is-active" else "")
    monkeypatch.setattr(preflight, "ip_json", lambda *words: [{"priority": one} for one in (0, 100, 4700, 32766)])
    monkeypatch.setattr(preflight, "value", lambda path: "1" if path == "net/ipv4/ip_forward" else None)
    monkeypatch.setattr(preflight, "FORMER", tmp_path / "former.json")
    said = preflight.notes(policy())
    assert [line.split()[0] for line in said[:2]] == ["pve-firewall", "docker"]
    assert any(line.startswith("this host routes already") for line in said)
    assert "`ip rule` 100 decide before ours, which begin at 4700" in said
    (tmp_path / "former.json").write_text("{}")
    assert not any("routes already" in line for line in preflight.notes(policy()))


@pytest.mark.parametrize(
    ("text", "waiting", "exists", "said"),
    [
        ("auto lo\n", False, False, ""),
        ("iface vmbr1 inet manual\n\tpre-up glasslab-network apply\n", False, True, ""),
        ("iface vmbr1 inet manual\n\nauto vmbr9\n# glasslab\n", False, False, "already defined"),
        ("iface vmbr1 inet manual\nauto glasslab\n", False, False, "already defined"),
        ("auto lo\n", False, True, "an interface lo exists that this role did not make"),
        ("auto lo\n", True, False, "interfaces.new holds changes of Proxmox VE's own network editor"),
        (None, False, False, "this host is not configured by ifupdown2"),
    ],
)
def test_whose_bridge_it_is(
    text: str | None, waiting: bool, exists: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`exists`: an interface of that name is there, for which the loopback device stands."""
    interfaces = tmp_path / "interfaces"
    monkeypatch.setattr(preflight, "INTERFACES", interfaces)
    bridge = "lo" if exists else "nosuchbr"
    if text is not None:
        interfaces.write_text(text.replace("vmbr1", bridge))
    if waiting:
        (tmp_path / "interfaces.new").write_text("")
    problems = preflight.bridge_problems(bridge)
    assert [said in problem for problem in problems] == [True] * bool(said)
