"""The network's policy: refused when it makes no sense, and rule files that say what it says."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

ROLE = Path(__file__).resolve().parents[2] / "roles" / "network"


def load(name: str) -> Any:
    """A file of the role under a name of its own: the embedded lab's program has a module `preflight`, too."""
    found = importlib.util.spec_from_file_location(f"network_{name}", ROLE / "files" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


glasslab_network = load("glasslab_network")
preflight = load("preflight")

DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
WEB = {"name": "web", "from": "agent", "to": "9.9.9.9", "protocol": "tcp", "ports": [80, 443], "why": "-"}


def policy(**changes: Any) -> dict[str, Any]:
    """The role's defaults as the preflight gets them, with changes."""
    names = ("bridge", "uplink", "address", "subnet", "guests", "flows", "special_ranges")
    return {**{name: copy.deepcopy(DEFAULTS[f"network_{name}"]) for name in names}, **changes}


def flow(**changes: Any) -> dict[str, Any]:
    return {"flows": [{**WEB, **changes}]}


def guest(**changes: Any) -> dict[str, Any]:
    first, second = copy.deepcopy(DEFAULTS["network_guests"])
    return {"guests": [first, {**second, **changes}], "flows": []}


def test_defaults_and_a_flow_to_the_internet_make_sense() -> None:
    assert preflight.policy_problems(policy()) == []
    assert preflight.policy_problems(policy(**flow())) == []


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
    ],
)
def test_refused(changes: dict[str, Any], said: str) -> None:
    problems = preflight.policy_problems(policy(**changes))
    assert any(said in problem for problem in problems), problems


def test_block_of_the_role_is_not_taken_for_somebody_elses() -> None:
    text = "auto lo\n# BEGIN glasslab (x)\nauto vmbr1\n# END glasslab (x)\nsource /etc/network/interfaces.d/*\n"
    assert preflight.without_block(text) == "auto lo\nsource /etc/network/interfaces.d/*\n"


def rendered(name: str, **changes: Any) -> list[str]:
    """A rule file's lines, without comments, as the role renders it."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters["zip"] = zip  # of Ansible's filters the one that the templates use
    text = environment.from_string((ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8"))
    lines = text.render(DEFAULTS | {"ansible_managed": "Ansible managed"} | changes).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def test_a_flow_is_written_once_where_it_belongs() -> None:
    lines = rendered("rules.v4", network_flows=[*DEFAULTS["network_flows"], WEB])
    accepted = [line for line in lines if "--comment" in line]
    assert accepted == [
        "-A GLASSLAB-FORWARD -i vmbr1 -o vmbr1 -s 10.10.10.10 -d 10.10.10.20 -p tcp -m tcp --dport 8088"
        ' -m comment --comment "flow log" -j ACCEPT',
        "-A GLASSLAB-FORWARD -i vmbr1 -o vmbr0 -s 10.10.10.10 -d 9.9.9.9 -p tcp -m multiport --dports 80,443"
        ' -m comment --comment "flow web" -j ACCEPT',
    ]
    special = [lines.index(f"-A GLASSLAB-FORWARD -d {one} -j DROP") for one in DEFAULTS["network_special_ranges"]]
    assert lines.index(accepted[0]) < min(special)
    assert max(special) < lines.index(accepted[1])
    bridge = rendered("bridge.nft", network_flows=[*DEFAULTS["network_flows"], WEB])
    assert [line for line in bridge if "9.9.9.9" in line] == []
    assert len([line for line in bridge if "8088" in line]) == 2


@pytest.mark.parametrize("name", ["rules.v4", "rules.v6"])
def test_without_flows_every_chain_ends_in_a_drop(name: str) -> None:
    lines = rendered(name, network_flows=[])
    chains = {line[1:].split()[0] for line in lines if line.startswith(":")} - {"GLASSLAB-POSTROUTING"}
    for chain in chains:
        assert [line for line in lines if line.startswith(f"-A {chain} ")][-1] == f"-A {chain} -j DROP"
    assert not [line for line in lines if line.endswith("-j ACCEPT") and "ctdir REPLY" not in line]


def test_jumps_are_taken_out_and_put_first_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = (
        "*filter\n:INPUT ACCEPT [9:9]\n:GLASSLAB-INPUT - [0:0]\n-A INPUT -j ACCEPT\n"
        "-A INPUT -i vmbr1 -j GLASSLAB-INPUT\n"
        "-A INPUT -i vmbr1 -j GLASSLAB-INPUT\n-A INPUT -i old -j GLASSLAB-INPUT\n-A GLASSLAB-INPUT -j DROP\nCOMMIT\n"
    )
    calls: list[tuple[str, ...]] = []

    def run(*words: str, text: str | None = None) -> str:
        calls.append((*words, text or ""))
        return standing

    monkeypatch.setattr(glasslab_network, "run", run)
    glasslab_network.restore(
        "iptables",
        "*filter\n:GLASSLAB-INPUT - [0:0]\n-A GLASSLAB-INPUT -j DROP\n-I INPUT 1 -i vmbr1 -j GLASSLAB-INPUT\nCOMMIT\n",
    )
    assert [call[0] for call in calls] == ["iptables-save", "iptables-restore"]
    assert calls[1][-1].splitlines() == [
        "*filter",
        ":GLASSLAB-INPUT - [0:0]",
        "-A GLASSLAB-INPUT -j DROP",
        "-D INPUT -i vmbr1 -j GLASSLAB-INPUT",
        "-D INPUT -i vmbr1 -j GLASSLAB-INPUT",
        "-D INPUT -i old -j GLASSLAB-INPUT",
        "-I INPUT 1 -i vmbr1 -j GLASSLAB-INPUT",
        "COMMIT",
    ]


WALLS = glasslab_network.FILES
KERNEL_V4 = """*filter
-A INPUT -i vmbr1 -j GLASSLAB-INPUT
-A INPUT -i tap1 -j GLASSLAB-INPUT
-A FORWARD -i vmbr1 -j GLASSLAB-FORWARD
-A FORWARD -o vmbr1 -j GLASSLAB-FORWARD
-A FORWARD -i tap1 -j GLASSLAB-FORWARD
-A GLASSLAB-INPUT -j DROP
-A GLASSLAB-FORWARD -d 10.0.0.0/8 -j DROP
-A GLASSLAB-FORWARD -j DROP
"""
KERNEL = {
    "iptables-save": KERNEL_V4,
    "ip6tables-save": KERNEL_V4 + "-A OUTPUT -o vmbr1 -j GLASSLAB-OUTPUT\n-A GLASSLAB-OUTPUT -j DROP\n",
    "nft list tables": "table bridge glasslab\n",
    "nft list table": "chain forward {\ntype filter hook forward priority filter\niifname tap1 goto guests\n}\n",
}


def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A kernel with whole walls, as the tools would describe it; what is taken out of it is gone."""
    holds = dict(KERNEL)
    monkeypatch.setattr(glasslab_network, "run", lambda *words, text=None: holds[" ".join(words[:3])])
    return holds


@pytest.mark.parametrize(
    ("tool", "line"),
    [(tool, line) for tool in ("iptables-save", "ip6tables-save") for line in KERNEL[tool].splitlines()[1:]]
    + [("nft list tables", "table bridge glasslab"), ("nft list table", "iifname tap1 goto guests")]
    + [("nft list table", "type filter hook forward priority filter")],
)
def test_each_line_of_the_walls_is_missed(tool: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"bridge": "vmbr1", "uplink": "vmbr0", "ports": ["tap1"]}
    holds = kernel(monkeypatch)
    assert glasslab_network.gaps(config) == []
    holds[tool] = holds[tool].replace(f"{line}\n", "", 1)
    is_wall = "10.0.0.0/8" not in line  # a range's own rule is the policy's, and compared with the file
    assert [gap.split(",")[0].startswith("the kernel lacks") for gap in glasslab_network.gaps(config)] == [
        True
    ] * is_wall


@pytest.mark.parametrize("name", WALLS)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_rule_file_that_was_cut_short_is_not_loaded(
    name: str, kept: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cuts load without an error and leave the bridge open: an empty file, one that ends at a COMMIT."""
    for one in WALLS:
        (tmp_path / one).write_text("\n".join(rendered(one)) + f"\n{glasslab_network.LAST_LINE}\n", encoding="utf-8")
    text = (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text[: int(len(text) * kept)], encoding="utf-8")
    monkeypatch.setattr(glasslab_network, "ETC", tmp_path)
    monkeypatch.setattr(glasslab_network, "run", lambda *words, text=None: pytest.fail(f"{words} was run"))
    with pytest.raises(glasslab_network.Failure, match=rf"/{name}: cut short or added to: "):
        glasslab_network.load({"bridge": "vmbr1", "ports": []})


@pytest.mark.parametrize("name", WALLS)
def test_each_rule_file_ends_with_the_line_that_shows_it_is_whole(name: str) -> None:
    text = (ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    assert text.splitlines()[-1] == glasslab_network.LAST_LINE


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


@pytest.mark.parametrize("words", [[], ["start"], ["apply", "now"]])
def test_loader_told_nonsense_says_how_it_is_called(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert glasslab_network.main(words) == 2
    assert capsys.readouterr().err == "usage: glasslab-network apply | check | remove\n"


def test_loader_names_what_it_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(glasslab_network.Failure, match=r"^iptables-save cannot be run \(No such file or directory\): "):
        glasslab_network.saved("iptables")
    tools(tmp_path, nft=3)
    with pytest.raises(glasslab_network.Failure, match=r"^`nft list tables` failed: nft spoke$"):
        glasslab_network.tables()
