"""The receipt against the lab: as expected, wrong when a wall is open anywhere, unproven when something is dead."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import lab
from isolationtools import LOADER, PLACES, command, nobody_mends, playbook_lines, pve, run, take_receipt, wait_for
from labtools import STATE, events, playbook

RECEIPTS = STATE / "receipts"
PUBLISHED = {"hypervisor": 12, "LAN": 12, "other lab": 4}
EVERYWHERE = {"agent", "agent's sandbox", "tools' sandbox", "logs", "LAN", "other lab", "internet"}
SERVICE = "/etc/systemd/system/glasslab-agent.service"


@pytest.fixture
def walls_left() -> Iterator[None]:
    """The walls stay as a test leaves them, and stand again after it."""
    try:
        with nobody_mends():
            try:
                yield
            finally:
                pve(f"{LOADER} apply")
    finally:
        wait_for("the walls stand again", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 10)


def latest() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RECEIPTS / "latest.json").read_text(encoding="utf-8"))
    return result


def of(result: dict[str, Any], place: str, target: str = "") -> Counter[str]:
    """What was observed from a place, of a target or of all that must be blocked."""
    return Counter(
        row["observed"]
        for row in result["probes"]
        if row["place"] == place and row["expected"] == "blocked" and target in ("", row["target"])
    )


def test_playbook_writes_it_and_it_is_in_the_log() -> None:
    done = playbook("playbooks/verify.yml")
    assert done.returncode == 0, playbook_lines(done)
    result = latest()
    assert {row["place"] for row in result["probes"]} == EVERYWHERE
    agents = [row for row in result["probes"] if row["place"] == "agent" and row["target"] in PUBLISHED]
    assert Counter(row["target"] for row in agents) == PUBLISHED
    assert {row["observed"] for row in agents} == {"blocked"}
    assert all(row["control"]["answer"] in ("open", "refused") for row in agents)
    assert result["counts"]["unproven"] == 0
    assert Counter(row["target"] for row in result["probes"] if row["protocol"] == "frame").keys() == {
        "forged source",
        "ARP claim",
        "forged MAC",
        "VLAN tag",
        "router advertisement",
    }
    assert result["rules"]["check"] == "as loaded"
    assert all(result["versions"].get(name) for name in ("glasslab", "kernel", "iptables", "nft"))
    frames = events(result["session"]["id"])
    assert (result["session"]["frames"], result["session"]["whole"]) == (len(frames), True)
    # The very receipt is one frame of the hypervisor's: only where it lies in the log was not in it yet.
    where = result.pop("indexed")
    frame = next(one["event"] for one in events(where["session_id"]) if one["event"]["seq"] == where["seq"])
    assert frame["kind"] == "network.receipt"
    assert frame["receipt"] == result
    assert len(frame["sha256"]) == len(hashlib.sha256().hexdigest())


def test_check_mode_writes_nothing() -> None:
    before = sorted(path.name for path in RECEIPTS.iterdir())
    done = playbook("playbooks/verify.yml", "--check")
    assert done.returncode == 0, playbook_lines(done)
    assert sorted(path.name for path in RECEIPTS.iterdir()) == before


HOLES = (
    # to the hypervisor, for everybody on the bridge
    "iptables -I GLASSLAB-INPUT 1 -j ACCEPT",
    # from guest to guest
    "nft insert rule bridge glasslab between accept",
    # out of the lab, one way: without masquerading no answer comes back
    "ip rule add pref 4600 iif vmbr1 lookup main",
    "iptables -I GLASSLAB-FORWARD 1 -i vmbr1 -j ACCEPT",
    # into the lab, one way: no route leads back out
    "ip rule add pref 4601 to 10.10.10.0/24 iif vmbr0 lookup main",
    "ip rule add pref 4602 to 10.10.10.0/24 iif vmbr2 lookup main",
    "iptables -I GLASSLAB-FORWARD 1 -o vmbr1 ! -i vmbr1 -j ACCEPT",
)
NO_HOLES = "for pref in 4600 4601 4602; do ip rule del pref $pref; done"


def open_all() -> None:
    pve("set -e; " + "; ".join(HOLES))


@pytest.mark.usefixtures("walls_left")
def test_it_is_wrong_when_a_wall_is_open_for_any_place() -> None:
    sandbox = "sed -i 's/^IPAddressAllow=.*/& 10.10.10.1/'"
    run(PLACES["agent"], "sh", "-c", f"cp {SERVICE} /root/kept; {sandbox} {SERVICE}")
    try:
        open_all()
        result = take_receipt()
    finally:
        pve(NO_HOLES, check=False)
        run(PLACES["agent"], "sh", "-c", f"cp -p /root/kept {SERVICE}")
    assert result["as_expected"] is False
    for place in ("agent", "logs"):
        assert of(result, place, "hypervisor") == {"reachable": 12}
        assert "reachable" in of(result, place, "metadata")
        assert "reachable" in of(result, place, "LAN")
    assert of(result, "agent", "logs machine")["reachable"] >= 2
    assert of(result, "logs", "agent machine")["reachable"] >= 2
    # The sandbox was opened for one of the hypervisor's addresses, and holds the rest alone.
    assert of(result, "agent's sandbox", "hypervisor") == {"reachable": 3, "blocked": 6}
    assert of(result, "agent's sandbox", "LAN") == {"blocked": 10}
    for place in ("LAN", "other lab", "internet"):
        assert of(result, place, "agent machine")["blocked"] == 0
        left = {row["why"] for row in result["probes"] if row["place"] == place and "why" in row}
        by_the_bridge = any(why.startswith("it left by vmbr1, from ") for why in left)
        assert by_the_bridge or of(result, place, "agent machine") == {"reachable": 3}
    assert any("glasslab-network check: " in problem for problem in result["problems"])


@pytest.mark.usefixtures("walls_left")
def test_forged_frames_that_get_through_are_said_and_undone() -> None:
    before = neighbours()
    pve("nft flush chain bridge glasslab entering; nft add rule bridge glasslab entering accept")
    result = take_receipt(disruptive=True)
    for target in ("forged source", "ARP claim", "forged MAC", "VLAN tag", "router advertisement"):
        assert "reachable" in of(result, "agent", target), target
    # A lie that is unlearnt is asked for anew.
    wait_for("the neighbours are the true ones", lambda: neighbours().items() >= before.items(), 10)


def neighbours() -> dict[str, str]:
    """What the logs machine believes of the lab, after it has been asked something."""
    pve("ping -c1 -W1 10.10.10.20 >/dev/null; ping -c1 -W1 10.10.10.10 >/dev/null", check=False)
    lines = run(PLACES["logs"], "cat", "/proc/net/arp").stdout.splitlines()[1:]
    return {line.split()[0]: line.split()[3] for line in lines if line.split()[0] == "10.10.10.1"}


def test_nothing_is_called_blocked_where_somebody_is_dead() -> None:
    """The controller's cable is out, the logs machine's is, and the agent's sandbox cannot be entered."""
    lan, logs = ("ns-exec", "lan"), PLACES["logs"]
    run(lan, "ip", "link", "set", "port-ctl", "nomaster")
    run(logs, "ip", "link", "set", "eth0", "down")
    run(PLACES["agent"], "mv", SERVICE, "/root/kept")
    try:
        result = take_receipt()
    finally:
        run(PLACES["agent"], "mv", "/root/kept", SERVICE)
        run(logs, "sh", "-c", "ip link set eth0 up; ip route replace default via 10.10.10.1")
        run(lan, "ip", "link", "set", "port-ctl", "master", "brlan")
    for place, targets in {
        "agent": ("LAN", "other lab", "any internet host", "logs machine"),
        "logs": (*PUBLISHED, "metadata", "agent machine"),
        "agent's sandbox": ("hypervisor", "LAN", "metadata"),
        "LAN": ("logs machine",),
    }.items():
        for target in targets:
            assert set(of(result, place, target)) == {"unproven"}, (place, target)
    # Of what the hypervisor itself shows to be there, the agent's machine is still known to be kept away.
    assert of(result, "agent", "hypervisor") == {"blocked": 12}
    assert of(result, "LAN", "agent machine") == {"blocked": 3}
    log = next(row for row in result["probes"] if (row["place"], row["target"]) == ("agent", "log"))
    assert log["observed"] == "unproven"


@pytest.mark.usefixtures("walls_left")
def test_accepted_rows_do_not_fail_and_a_receipt_outside_of_the_log_does() -> None:
    """An open door that the inventory lists, and a log that cannot be told."""
    accepted = [{"address": "10.10.10.1", "port": 8006, "reason": "a test opens it"}]
    pve(
        "iptables -I GLASSLAB-INPUT 1 -d 10.10.10.1 -p tcp --dport 8006 -j ACCEPT; "
        "systemctl stop glasslab-witness.service; mv /usr/local/sbin/glasslab-witness /root/"
    )
    try:
        done = playbook(
            "playbooks/verify.yml",
            "--extra-vars",
            json.dumps({"verify_accepted": accepted, "verify_question": "", "verify_disruptive": False}),
        )
    finally:
        pve("mv /root/glasslab-witness /usr/local/sbin/; systemctl start glasslab-witness.service")
    assert done.returncode != 0
    result = latest()
    rows = [row for row in result["probes"] if row["observed"] != row["expected"]]
    assert {(row["place"], row["port"], row.get("accepted")) for row in rows} == {
        ("agent", 8006, "a test opens it"),
        ("logs", 8006, "a test opens it"),
    }
    said = playbook_lines(done)
    assert "accepted: a test opens it" in said
    assert "glasslab-network check: " in said
    assert "the receipt is not in the log: " in said
    assert "is the witness installed there (playbooks/witness.yml)?" in said
    assert len(result["problems"]) == 2


def test_the_demo_shows_it_as_a_table() -> None:
    table = [str(lab.ROOT / "roles/verify/files/isolation_table.py"), str(RECEIPTS / "latest.json")]
    done = subprocess.run(["python3", *table], text=True, capture_output=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[2].split()[:2] == ["agent", "hypervisor"]
    assert len(lines) <= 40


def test_it_leaves_nothing_behind() -> None:
    """No watch, no route of the places outside, no unit."""
    take_receipt()
    assert pve("ls -d /run/glasslab-verify-*", check=False) == ""
    for name in ("lan", "internet"):
        routes = subprocess.run(command(("ns-exec", name), "ip", "route"), text=True, capture_output=True, check=True)
        assert "10.10.10.0/24" not in routes.stdout
    units = run(PLACES["agent"], "systemctl", "list-units", "--all", "--no-legend", "glasslab-probe-*").stdout
    assert units == ""
