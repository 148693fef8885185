"""The hypervisor's program: what it makes of rule files, of the kernel's own words, and of what it cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hypervisor import __main__ as program
from hypervisor import kernel, ports, settings, tables

ROLE = Path(__file__).resolve().parents[2] / "roles" / "network"

CHAINS = [":GLASSLAB-INPUT - [0:0]", ":GLASSLAB-FORWARD - [0:0]"]
V4 = """*filter
:GLASSLAB-INPUT - [0:0]
:GLASSLAB-FORWARD - [0:0]
-A GLASSLAB-INPUT -i lo -j RETURN
-A GLASSLAB-INPUT -j DROP
-A GLASSLAB-FORWARD -d 10.0.0.0/8 -j RETURN
-I INPUT 1 ! -i vmbr1 -d 10.10.10.1 -j GLASSLAB-INPUT
-I INPUT 1 -i vmbr1 -j GLASSLAB-INPUT
-I FORWARD 1 -i vmbr1 -j GLASSLAB-FORWARD
-I FORWARD 1 -o vmbr1 -j GLASSLAB-FORWARD
COMMIT
# end of the rules
"""
KERNELS_V4 = """*filter
:INPUT ACCEPT [9:9]
:FORWARD ACCEPT [0:0]
:GLASSLAB-FORWARD - [0:0]
:GLASSLAB-INPUT - [0:0]
-A INPUT -i vmbr1 -j GLASSLAB-INPUT
-A INPUT -d 10.10.10.1/32 ! -i vmbr1 -j GLASSLAB-INPUT
-A FORWARD -o vmbr1 -j GLASSLAB-FORWARD
-A FORWARD -i vmbr1 -j GLASSLAB-FORWARD
-A GLASSLAB-FORWARD -d 10.0.0.0/8 -j RETURN
-A GLASSLAB-INPUT -i lo -j RETURN
-A GLASSLAB-INPUT -j DROP
COMMIT
"""
BRIDGE = (
    "table bridge glasslab {\nchain forward {\ntype filter hook forward priority filter;\niifname tap1i0 drop\n}\n}\n"
)
TEXTS = {"rules.v4": V4, "rules.v6": V4, "bridge.nft": BRIDGE}


def listing(v4: str = KERNELS_V4, v6: str = KERNELS_V4, bridge: str = BRIDGE) -> tables.Listing:
    """A kernel that holds this, as the tools would describe it."""
    return {
        "rules.v4": tables.saved(v4),
        "rules.v6": tables.saved(v6),
        "bridge.nft": {"glasslab": bridge.splitlines()},
    }


def test_jumps_are_taken_out_and_put_first_in_one_transaction() -> None:
    standing = tables.saved(
        "*filter\n:INPUT ACCEPT [9:9]\n:GLASSLAB-INPUT - [0:0]\n:GLASSLAB-OLD - [0:0]\n-A INPUT -j ACCEPT\n"
        "-A INPUT -i vmbr1 -j GLASSLAB-INPUT\n-A INPUT -i vmbr1 -j GLASSLAB-INPUT\n-A INPUT -i old -g GLASSLAB-OLD\n"
        "-A GLASSLAB-INPUT -j DROP\nCOMMIT\n*nat\n:GLASSLAB-NAT - [0:0]\n-A PREROUTING -j GLASSLAB-NAT\nCOMMIT\n"
    )
    text = (
        "*filter\n:GLASSLAB-INPUT - [0:0]\n-A GLASSLAB-INPUT -j DROP\n-I INPUT 1 -i vmbr1 -j GLASSLAB-INPUT\nCOMMIT\n"
    )
    assert tables.restoring(text, standing).splitlines() == [
        "*filter",
        ":GLASSLAB-INPUT - [0:0]",
        "-A GLASSLAB-INPUT -j DROP",
        "-D INPUT -i vmbr1 -j GLASSLAB-INPUT",
        "-D INPUT -i vmbr1 -j GLASSLAB-INPUT",
        "-D INPUT -i old -g GLASSLAB-OLD",
        "-I INPUT 1 -i vmbr1 -j GLASSLAB-INPUT",
        "-F GLASSLAB-OLD",
        "-X GLASSLAB-OLD",
        "COMMIT",
        "*nat",
        "-D PREROUTING -j GLASSLAB-NAT",
        "-F GLASSLAB-NAT",
        "-X GLASSLAB-NAT",
        "COMMIT",
    ]


def test_order_of_tables_and_chains_makes_no_difference_and_order_of_rules_does() -> None:
    one = {
        "filter": [":GLASSLAB-A -", ":GLASSLAB-B -", "-A GLASSLAB-A -j X", "-A GLASSLAB-B -j Y", "-A GLASSLAB-B -j Z"]
    }
    two = {
        "filter": [":GLASSLAB-B -", "-A GLASSLAB-B -j Y", "-A GLASSLAB-B -j Z", ":GLASSLAB-A -", "-A GLASSLAB-A -j X"]
    }
    nat = {"nat": [":GLASSLAB-N -"]}
    loaded, now = [tables.ours({"rules.v4": v4, "rules.v6": {}, "bridge.nft": {}}) for v4 in (one | nat, nat | two)]
    assert tables.changed(loaded, now) == []
    two["filter"].insert(1, two["filter"].pop(2))
    now = tables.ours({"rules.v4": two, "rules.v6": {}, "bridge.nft": {}})
    assert [place for place, _ in tables.changed(loaded, now)] == [("rules.v4", "filter"), ("rules.v4", "nat")]


def test_whole_walls_have_no_gaps() -> None:
    assert tables.gaps(TEXTS, listing(), "vmbr1", ["tap1i0"]) == []


OWN = [line for line in KERNELS_V4.splitlines() if line.startswith("-A ")]


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("line", OWN)
def test_each_line_of_the_walls_is_missed(family: str, line: str) -> None:
    tool = "iptables" if family == "v4" else "ip6tables"
    without = KERNELS_V4.replace(f"{line}\n", "", 1)
    found = tables.gaps(TEXTS, listing(**{family: without}), "vmbr1", ["tap1i0"])
    assert [(place, gap.split(" `")[0]) for place, gap in found] == [
        ((f"rules.{family}", "filter"), f"the kernel lacks {tool}")
    ]
    assert found[0][1].endswith(f" in filter, of /etc/glasslab/network/rules.{family}")


@pytest.mark.parametrize("line", ["iifname tap1i0 drop", "type filter hook forward priority filter;"])
def test_each_line_of_the_bridge_table_is_missed(line: str) -> None:
    found = tables.gaps(TEXTS, listing(bridge=BRIDGE.replace(line, "")), "vmbr1", ["tap1i0"])
    assert [(place, gap.split(" or ")[0]) for place, gap in found] == [
        (("bridge.nft", "glasslab"), "the kernel lacks the table bridge glasslab")
    ]


ASLEEP = """
import sys
sys.path.insert(0, sys.argv[1])
from hypervisor import tables
texts = dict(zip(("rules.v4", "rules.v6", "bridge.nft"), sys.argv[2:5]))
tables.load(texts, tables.look())
def said():
    print("; ".join(words for _, words in tables.asleep(texts)) or "awake")
said()
tables.run("nft", "-f", "-", text="".join(f"add table {one} {{ flags dormant; }}\\n" for one in sys.argv[5:]))
before = {name: listed for name, listed in tables.look().items() if name != "bridge.nft"}
said()
places = [place for place, _ in tables.asleep(texts)]
tables.load(texts, tables.look(), places)
said()
print({name: listed for name, listed in tables.look().items() if name != "bridge.nft"} == before)
"""


def test_a_table_put_to_sleep_is_noticed_and_woken() -> None:
    """In the kernel, in a network of its own: its rules are listed as ever, and no packet asks them."""
    bridge = "table bridge glasslab\ndelete table bridge glasslab\n" + BRIDGE
    six = "".join(line for line in V4.splitlines(keepends=True) if "10." not in line)
    words = ["unshare", "--map-root-user", "--net", sys.executable, "-c", ASLEEP, str(ROLE / "files"), V4, six, bridge]
    done = subprocess.run([*words, "ip filter", "ip6 filter", "bridge glasslab"], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "awake",
        "iptables: the table filter is dormant; ip6tables: the table filter is dormant; "
        "nft: the table bridge glasslab is dormant",
        "awake",
        "True",
    ], done.stderr


def test_a_rule_file_without_a_jump_for_the_bridge_has_a_gap() -> None:
    """As loaded, and yet no wall."""
    text = "*filter\n:GLASSLAB-INPUT - [0:0]\n-A GLASSLAB-INPUT -j DROP\nCOMMIT\n"
    found = tables.gaps({**TEXTS, "rules.v4": text}, listing(text), "vmbr1", ["tap1i0"])
    assert found == [
        (("rules.v4", "filter"), "the kernel lacks iptables `-i vmbr1` in filter, of /etc/glasslab/network/rules.v4")
    ]


def test_a_foreign_rule_before_ours_is_misplaced_and_one_behind_is_not() -> None:
    behind = KERNELS_V4.replace("-A FORWARD -o", "-A INPUT -j ACCEPT\n-A FORWARD -o")
    assert tables.misplaced(listing(behind)) == []
    between = KERNELS_V4.replace("-A INPUT -d", "-A INPUT -j ACCEPT\n-A INPUT -d")
    assert tables.misplaced(listing(v6=between)) == [
        (("rules.v6", "filter"), "ip6tables: a foreign rule stands before ours in filter INPUT")
    ]


@pytest.mark.parametrize("name", settings.RULES)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_rule_file_that_was_cut_short_is_refused(
    name: str, kept: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cuts load without an error and leave the bridge open: an empty file, one that ends at a COMMIT."""
    monkeypatch.setattr(settings, "ETC", tmp_path)
    for one in settings.RULES:
        (tmp_path / one).write_text(f"{TEXTS[one].removesuffix('# end of the rules\n')}# end of the rules\n")
    assert set(settings.rule_files()) == set(settings.RULES)
    text = (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text[: int(len(text) * kept)], encoding="utf-8")
    with pytest.raises(kernel.Failure, match=rf"/{name}: cut short or added to: "):
        settings.rule_files()


@pytest.mark.parametrize("name", settings.RULES)
def test_each_rule_file_ends_with_the_line_that_shows_it_is_whole(name: str) -> None:
    text = (ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    assert text.splitlines()[-1] == settings.LAST_LINE


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bridge": "vmbr1"}', '{"bridge": "b", "ports": [], "sysctls": []}'])
def test_damaged_settings_are_one_clear_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ETC", tmp_path)
    (tmp_path / "settings.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        kernel.Failure, match=rf"^{tmp_path}/settings.json is damaged .*: run playbooks/network.yml again$"
    ):
        settings.settings()


def test_a_port_has_the_names_that_proxmox_gives_it() -> None:
    assert ports.names("tap101i2") == ["tap101i2", "fwln101i2", "fwpr101p2"]
    assert ports.names("eth-lab") == ["eth-lab"]


@pytest.mark.parametrize("words", [[], ["start"], ["apply", "now"]])
def test_program_told_nonsense_says_how_it_is_called(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(words) == 2
    assert capsys.readouterr().err.startswith("usage: glasslab-network apply | check | heal | remove")


def test_program_asked_for_help_says_what_each_verb_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: glasslab-network ")
    assert "\nheal    put right what differs" in said


def test_program_names_all_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nft").write_text("#!/bin/sh\necho nft spoke >&2\nexit 3\n", encoding="utf-8")
    (tmp_path / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    with pytest.raises(kernel.Failure) as caught:
        kernel.run_together([(("iptables-nowhere",), None), (("nft", "-f", "-"), "x")])
    assert str(caught.value) == (
        "iptables-nowhere cannot be run (No such file or directory): install or repair it; `nft -f -` failed: nft spoke"
    )


def test_commands_that_run_together_each_get_their_text() -> None:
    many = "x" * 300_000
    assert kernel.run_together([(("cat",), many), (("cat",), "two")]) == [many, "two"]


def test_what_others_say_in_their_rules_is_in_any_encoding() -> None:
    """A comment in Latin 1, or with what Unicode takes for the end of a line: neither an error nor a rule of ours."""
    rule = '-A INPUT -m comment --comment "f\\374r\\302\\205-A GLASSLAB-INPUT -j ACCEPT" -j ACCEPT'
    output = kernel.run("printf", f"*filter\\n{rule}\\nCOMMIT\\n".replace('"', '\\"'))
    assert len(tables.saved(output)["filter"]) == 1
    assert tables.ours({"rules.v4": tables.saved(output)}) == {"rules.v4": {}}
    assert kernel.run("cat", text=output) == output


def test_a_tool_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "patience", 0.2)
    with pytest.raises(kernel.Failure, match=r"^sleep did not end within "):
        kernel.run("sleep", "5")
