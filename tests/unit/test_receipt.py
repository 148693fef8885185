"""The receipt: what counts as blocked, reachable and unproven, and what the table shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

VERIFY = Path(__file__).resolve().parents[2] / "roles" / "verify"
sys.path.insert(0, str(VERIFY / "files"))

import isolation_table  # noqa: E402  (the role's files are no package; found by the line above)
import probe as prober  # noqa: E402
import receipt  # noqa: E402

TARGETS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))["verify_targets"]


def seen(
    blocked: str = "silent", control: str | None = "open", needed: str = "open", apart: float = 0.0
) -> dict[str, list[dict[str, Any]]]:
    """What three places saw of one target that must be blocked and one that must be reachable, by the same way."""
    shut = {"target": "LAN", "address": "192.0.2.1", "protocol": "tcp", "port": 22, "expected": "blocked"}
    flow = {"target": "log", "address": "192.0.2.2", "protocol": "tcp", "port": 8088, "expected": "reachable"}
    when = {"hop": "on link", "time": 1000.0}
    knocked = {**shut, **when, "control": "controller", "answer": control, "time": 1000.0 + apart}
    return {
        "agent": [
            {**shut, **when, "control": "controller", "answer": blocked},
            {**flow, **when, "control": "hypervisor", "answer": needed},
        ],
        "controller": [knocked] if control else [],
        "hypervisor": [{**flow, **when, "control": "hypervisor", "answer": "open"}],
    }


@pytest.mark.parametrize(
    ("blocked", "control", "observed"),
    [
        ("silent", "open", "blocked"),
        ("silent", "refused", "blocked"),
        ("silent", "silent", "unproven"),
        ("silent", "error: no route", "unproven"),
        ("silent", None, "unproven"),
        ("open", "open", "reachable"),
        ("open", "silent", "reachable"),
        ("refused", "open", "reachable"),
        ("error: no socket", "open", "unproven"),
    ],
)
def test_verdict_on_what_must_be_blocked(blocked: str, control: str | None, observed: str) -> None:
    result = receipt.receipt("x", seen(blocked, control))
    assert result["probes"][0]["observed"] == observed
    assert ("why" in result["probes"][0]) is (observed == "unproven")
    assert result["as_expected"] is (observed == "blocked")


@pytest.mark.parametrize("apart", [-11.0, 11.0])
def test_a_control_of_another_time_proves_nothing(apart: float) -> None:
    """The target may have been down when the agent knocked."""
    result = receipt.receipt("x", seen(apart=apart))
    assert result["probes"][0]["observed"] == "unproven"
    assert "its control knocked 11 s apart" in receipt.line(result["probes"][0])
    assert receipt.receipt("x", seen(apart=apart / 2))["as_expected"] is True


@pytest.mark.parametrize("hop", ["no route", "192.0.2.254"])
def test_silence_by_a_way_that_carries_nothing_proves_nothing(hop: str) -> None:
    """Without a route, or with a gateway that is away, the log on the same subnet still answers."""
    places = seen()
    places["agent"][0]["hop"] = hop
    row = receipt.judge(places)[0]
    assert (row["observed"], row["why"]) == ("unproven", f"no needed flow got through by the same way ({hop})")


@pytest.mark.parametrize(
    ("needed", "observed"), [("open", "reachable"), ("refused", "unproven"), ("silent", "blocked")]
)
def test_verdict_on_a_needed_flow(needed: str, observed: str) -> None:
    places = seen(needed=needed)
    other = {**places["agent"][1], "address": "192.0.2.3", "answer": "open"}
    places["agent"].append(other)
    result = receipt.receipt("x", places)
    assert result["probes"][1]["observed"] == observed
    assert result["as_expected"] is (needed == "open")


def test_a_machine_without_network_is_not_called_isolated() -> None:
    rows = receipt.judge(seen(needed="silent"))
    assert [row["observed"] for row in rows] == ["unproven", "unproven"]


def test_no_probes_at_all_is_not_as_expected() -> None:
    assert receipt.receipt("x", {"agent": []})["as_expected"] is False


@pytest.mark.parametrize(("needed", "code"), [("open", 0), ("silent", 1)])
def test_program_writes_and_tells(tmp_path: Path, needed: str, code: int) -> None:
    order = json.dumps({"lab_id": "x", "places": seen(needed=needed)})
    program = [sys.executable, str(VERIFY / "files" / "receipt.py"), str(tmp_path / "r")]
    done = subprocess.run(program, input=order, text=True, capture_output=True, check=False)
    assert done.returncode == code
    latest = json.loads((tmp_path / "r" / "latest.json").read_text(encoding="utf-8"))
    assert latest["as_expected"] is (code == 0)
    assert len(list((tmp_path / "r").glob("2*.json"))) == 1
    assert ("log: 192.0.2.2 tcp 8088: expected reachable" in done.stdout) is (code == 1)


def test_program_names_the_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    order = json.dumps({"lab_id": "x", "places": seen()})
    program = [sys.executable, str(VERIFY / "files" / "receipt.py"), str(tmp_path / "file")]
    done = subprocess.run(program, input=order, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith(f"glasslab: the receipt cannot be written to {tmp_path}/file (")
    assert done.stderr == ""


def test_defaults_are_the_published_probes_and_what_the_lab_needs() -> None:
    doors = [door for target in TARGETS for door in prober.probes(target)]
    published = [
        (address, "tcp", port) for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1") for port in (22, 8006)
    ]
    published += [
        (address, kind, port)
        for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1")
        for kind, port in (("ping", None), ("udp", 8006))
    ]
    for address in ("192.168.50.10", "192.168.50.1"):
        published += [(address, "tcp", port) for port in (22, 80, 445, 8006, 443)] + [(address, "ping", None)]
    published += [("10.20.20.10", "tcp", port) for port in (22, 80, 8088)] + [("10.20.20.10", "ping", None)]
    shut = {(door["address"], door["protocol"], door["port"]) for door in doors if door["expected"] == "blocked"}
    assert len(published) == 28
    assert shut == {
        *published,
        ("203.0.113.80", "tcp", 80),
        ("203.0.113.80", "tcp", 443),
        ("203.0.113.80", "ping", None),
        ("10.10.10.20", "tcp", 22),
        ("10.10.10.20", "tcp", 8089),
    }


def test_table_has_a_row_a_target_and_marks_what_differs() -> None:
    text = isolation_table.table(receipt.receipt("x", seen(blocked="open"))).splitlines()
    assert text[0].split() == ["target", "probed", "expected", "observed"]
    assert text[2].split() == ["LAN", "tcp", "22", "blocked", "1", "reachable", "<-", "differs"]
    assert text[3].split() == ["log", "tcp", "8088", "reachable", "1", "reachable"]
    assert text[4].startswith("2 probes, 0 blocked, 2 reachable, 0 unproven: NOT as expected (")


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_table_of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(content, encoding="utf-8")
    program = [sys.executable, str(VERIFY / "files" / "isolation_table.py"), str(path)]
    done = subprocess.run(program, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "playbooks/verify.yml" in done.stderr


def test_probe_tells_open_refused_and_silent() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as served, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [served.getsockname()[1], closed.getsockname()[1]]
        target = {"name": "x", "addresses": ["127.0.0.1"], "tcp": ports, "expected": "blocked", "control": "controller"}
        answers = [prober.knock(door, 0.2)["answer"] for door in prober.probes(target)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            answers.append(prober.udp("127.0.0.1", mute.getsockname()[1], 0.2))
    assert answers == ["open", "refused", "silent"]


def knocked(prepare: str, **ways: Any) -> list[dict[str, Any]]:
    """What probe.py sees of 192.0.2.1 in a network namespace of its own, prepared by a shell script."""
    target = {"name": "x", "addresses": ["192.0.2.1"], "expected": "blocked", "control": "controller", **ways}
    order = json.dumps({"timeout": 0.3, "place": "agent", "targets": [target]})
    script = f'{prepare}; exec "$0" "$1" "$2"'
    program = [sys.executable, str(VERIFY / "files" / "probe.py"), order]
    own = ["unshare", "--map-root-user", "--net", "sh", "-c", script, *program]
    done = subprocess.run(own, text=True, capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["agent"]
    return found


CABLE = (
    "set -e; ip link set lo up; ip link add near type veth peer name far; ip link set far up; ip link set near up;"
    "ip address add 198.51.100.2/24 dev near; ip route add 192.0.2.0/24 via 198.51.100.1;"
    "ip neighbour add 198.51.100.1 lladdr 02:00:00:00:00:01 dev near"
)


def test_probe_says_by_which_way_it_went() -> None:
    ways: dict[str, Any] = {"tcp": [22], "udp": [53], "ping": True}
    assert [(one["answer"], one["hop"]) for one in knocked(CABLE, **ways)] == [("silent", "198.51.100.1")] * 3
    assert {one["hop"] for one in knocked("ip link set lo up", **ways)} == {"no route"}
    assert {one["hop"] for one in knocked(f"{CABLE}; ip address add 192.0.2.9/28 dev near", **ways)} == {"on link"}


@pytest.mark.parametrize(
    ("broken", "protocols"),
    [
        ("nft add table ip x; nft add chain ip x o '{ type filter hook input priority 0; }';"
         "nft add rule ip x o ip protocol icmp drop", {"ping"}),
        ("nft add table ip x; nft add chain ip x o '{ type filter hook output priority 0; policy drop; }'",
         {"tcp", "udp", "ping"}),
        ("ip link set lo down", {"tcp", "udp", "ping"}),
    ],
    ids=["echo replies are dropped", "nothing may leave", "no loopback"],
)  # fmt: skip
def test_a_probe_that_cannot_work_on_its_machine_is_an_error_and_no_silence(broken: str, protocols: set[str]) -> None:
    seen_by = {one["protocol"]: one["answer"] for one in knocked(f"{CABLE}; {broken}", tcp=[22], udp=[53], ping=True)}
    assert {protocol for protocol, answer in seen_by.items() if answer.startswith("error: ")} == protocols, seen_by
