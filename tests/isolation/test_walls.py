"""The lab's walls: rules that cannot be loaded, and policies that are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from isolationtools import (
    LOADER,
    PLACES,
    answers,
    differing,
    door,
    managed,
    nobody_mends,
    playbook_lines,
    pve,
    reboot,
    run,
    see,
    take_receipt,
    wait_for,
)
from labtools import playbook

REACHED = {"open", "refused"}
LOGS_SSH = door("10.10.10.20", tcp=[22])
MODEL, RESOLVER = door("203.0.113.10", tcp=[443]), door("203.0.113.53", tcp=[53])


@pytest.fixture(autouse=True, scope="module")
def _walls_are_up() -> None:
    assert pve(f"{LOADER} check") == "as loaded\n"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Each test ends with the walls up, so that one that fails takes no other with it."""
    yield
    assert pve(f"{LOADER} apply && {LOADER} check || {{ ifup vmbr1; {LOADER} check; }}").endswith("as loaded\n")
    # What could not be loaded at a boot has failed its unit, and who comes next would take that for a change of his.
    pve(f"for unit in $({FAILED} | cut -d' ' -f1); do systemctl start $unit; done")
    assert pve(FAILED) == ""


FAILED = "systemctl list-units --failed --plain --no-legend 'glasslab*' networking.service"
ETC = "/etc/glasslab/network"
SAID = "glasslab-network: apply:"
# How it breaks, how it is repaired, what the journal says.
BROKEN = {
    "iptables-restore cannot be run": (
        "chmod -x /usr/sbin/xtables-nft-multi",
        "chmod +x /usr/sbin/xtables-nft-multi",
        SAID,
    ),
    "rules.v4 is corrupt": (
        f"echo 'nonsense' >> {ETC}/rules.v4",
        f"sed -i '$d' {ETC}/rules.v4",
        f"{SAID} {ETC}/rules.v4",
    ),
    "rules.v4 is empty": (
        f"cp {ETC}/rules.v4 /root/kept; truncate --size 0 {ETC}/rules.v4",
        f"mv /root/kept {ETC}/rules.v4",
        f"{SAID} {ETC}/rules.v4: cut short",
    ),
    "settings.json is damaged": (
        f"cp {ETC}/settings.json /root/kept; truncate --size 20 {ETC}/settings.json",
        f"mv /root/kept {ETC}/settings.json",
        f"{SAID} {ETC}/settings.json is damaged",
    ),
    "the loader cannot be run": (f"chmod -x {LOADER}", f"chmod +x {LOADER}", f"{LOADER}: Permission denied"),
    "nft is missing": ("mv /usr/sbin/nft /usr/sbin/nft.away", "mv /usr/sbin/nft.away /usr/sbin/nft", SAID),
}
# What the rest of a boot would not bring to light: tried with a reboot, too.
AT_BOOT = ("iptables-restore cannot be run", "rules.v4 is empty")


def assert_closed_but_managed() -> None:
    # A restart of networking takes every bridge down and up, management's too: its first packet afterwards may be lost.
    wait_for("management is up", managed, 5)
    assert "UP" not in pve("ip -oneline link show vmbr1").split(">")[0], "the bridge is up without rules"
    loose = (
        "for port in tap101i0 tap102i0; do [ -e /sys/class/net/$port/master ] || ip -oneline link show $port up; done"
    )
    assert pve(loose) == "", "a guest's port is up outside the bridge"
    reached = [probe for probe in see("agent", TARGETS_OF_THE_AGENT) if probe["answer"] in REACHED]
    assert reached == []


TARGETS_OF_THE_AGENT = [door("192.168.50.2", tcp=[22]), door("10.10.10.1", tcp=[22, 8006], ping=True), LOGS_SSH, MODEL]


def reaches(where: dict[str, object]) -> bool:
    return answers("agent", where) == ["open"]


@pytest.mark.parametrize("broken", BROKEN)
def test_fails_closed(broken: str) -> None:
    """What cannot be loaded leaves the bridge down and management up, says so, and stops the role."""
    breaks, repairs, said = BROKEN[broken]
    pve(breaks)
    try:
        pve("systemctl restart networking")
        assert_closed_but_managed()
        assert said in pve("journalctl --unit networking --unit glasslab-network --lines 20")
        if broken in AT_BOOT:
            reboot()
            assert_closed_but_managed()
            assert said in pve("journalctl --boot --unit glasslab-network")
        if broken.startswith("iptables-restore"):
            done = playbook("playbooks/network.yml")
            assert done.returncode != 0
            assert "iptables-restore cannot be run" in playbook_lines(done)
    finally:
        pve(repairs)
    pve("ifup vmbr1")
    for served, where in (("model", MODEL), ("resolver", RESOLVER)):
        wait_for(f"the {served} can be reached again", partial(reaches, where), 20)
    assert differing(take_receipt()) == []


def test_playbooks_without_a_lab_say_how_to_get_one() -> None:
    for name in ("network", "verify"):
        done = playbook(f"playbooks/{name}.yml", "--extra-vars", "machine_lab_id=nosuchlab")
        assert done.returncode != 0
        assert "no lab nosuchlab stands on this machine: `make demo LAB_ID=nosuchlab` builds one" in playbook_lines(
            done
        )
        assert "UNREACHABLE" not in done.stdout


REFUSED = {
    "flow to a special-purpose range": (
        {
            "network_flows": [
                {"name": "x", "from": "agent", "to": "192.168.50.10", "protocol": "tcp", "ports": [22], "why": "-"}
            ]
        },
        "network_flows: x: to 192.168.50.10 is inside the special-purpose range 192.168.0.0/16",
    ),
    "subnet in use": (
        {"network_subnet": "10.20.20.0/24", "network_address": "10.20.20.2", "network_guests": [], "network_flows": []},
        "network_subnet 10.20.20.0/24 is in use: vmbr2 has 10.20.20.1/24",
    ),
    "bridge that is somebody else's": (
        {"network_bridge": "vmbr2", "network_guests": [], "network_flows": []},
        "vmbr2 is already defined in /etc/network/interfaces",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_changed(case: str) -> None:
    variables, said = REFUSED[case]
    before = pve("sha256sum /etc/glasslab/network/* /etc/network/interfaces")
    done = playbook("playbooks/network.yml", "--extra-vars", json.dumps(variables))
    assert done.returncode != 0
    assert said in playbook_lines(done)
    assert pve("sha256sum /etc/glasslab/network/* /etc/network/interfaces") == before


WATCHER = "glasslab-network-watch.service"
LOG = door("10.10.10.20", tcp=[8088])
AGENT, HYPERVISOR = PLACES["agent"], PLACES["hypervisor"]
HOLD = """
import sys
sys.path.insert(0, "/usr/local/lib/glasslab")
from network import ports, settings
print(*ports.hold(settings.settings()[0]))
"""
REPLUG = "ip link set eth0 down; sleep 1.5; ip link set eth0 up; ip route replace default via 10.10.10.1; sleep 0.3"


def through() -> list[str]:
    """What the agent gets from the log and the model."""
    return [probe["answer"] for probe in see("agent", [LOG, MODEL])]


def test_a_guest_whose_cable_goes_out_and_in_stays_held() -> None:
    """A guest that is a container takes its own link down and up, and its port forwards again."""
    assert answers("agent", LOG) == ["open"]
    with nobody_mends():
        assert run(HYPERVISOR, "python3", "-c", HOLD).stdout.split() == ["tap101i0", "tap102i0"]
        assert "guest port tap101i0 is held shut" in pve(f"{LOADER} check", check=False)
        run(AGENT, "sh", "-c", REPLUG)
        assert pve("cat /sys/class/net/tap101i0/brport/state") == "3\n", "it forwards: this is what is tried here"
        assert through() == ["silent", "silent"]
        assert "guest port tap101i0 is held shut" in pve(f"{LOADER} check", check=False)
    wait_for("the log and the model are reached", lambda: through() == ["open", "open"], 10)
    assert pve(f"{LOADER} check") == "as loaded\n"


def test_a_guests_port_in_another_bridge_is_down_until_it_comes_back() -> None:
    """Whoever moved it there: in the LAN's or the other lab's bridge it would be a guest of theirs."""
    flags = "cat /sys/class/net/tap101i0/flags"
    pve(f"systemctl stop {WATCHER}; ip link set tap101i0 master vmbr2; systemctl start {WATCHER}")
    try:
        wait_for("it is down", lambda: not int(pve(flags), 16) & 1, 5)
        said = pve(f"{LOADER} check", check=False)
        assert said == "guest port tap101i0 is in vmbr2, not in vmbr1\n"
    finally:
        pve("ip link set tap101i0 master vmbr1")
    wait_for("it is up", lambda: int(pve(flags), 16) & 1, 5)
    assert pve(f"{LOADER} check") == "as loaded\n"
    wait_for("the log and the model are reached", lambda: through() == ["open", "open"], 10)
