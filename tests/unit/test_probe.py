"""How doors are knocked at: what is open, refused and silent, and what a broken machine says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import doors
import places
import probe as prober
import watch
from receiptworld import VERIFY


def test_probe_tells_open_refused_and_silent() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as served, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [served.getsockname()[1], closed.getsockname()[1]]
        seen = [prober.knock(doors.door("127.0.0.1", "tcp", port), 0.2) for port in ports]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            seen.append(prober.knock(doors.door("127.0.0.1", "udp", mute.getsockname()[1]), 0.2))
    assert [one["answer"] for one in seen] == ["open", "refused", "silent"]
    assert {one["source"] for one in seen} == {"127.0.0.1"}
    assert all(one["mark"] > 0 for one in seen)


@pytest.mark.parametrize("protocol", ["tcp", "udp", "ping", "dns", "tls"])
@pytest.mark.parametrize(("patient", "seconds"), [(True, 1.5), (False, 0.5)])
def test_a_patient_probe_waits_three_times_as_long(
    monkeypatch: pytest.MonkeyPatch, protocol: str, patient: bool, seconds: float
) -> None:
    """What it waits is looked at where it is given, and not by the clock: that a wait ends is shown above."""
    waits: list[float] = []

    def knocked_at(*given: Any) -> str:
        waits.extend(one for one in given if isinstance(one, float))
        return "silent"

    monkeypatch.setattr(prober, protocol, knocked_at)
    door = {**doors.door("127.0.0.1", protocol, 9), "name": "log", "patient": patient}
    assert prober.knock(door, 0.5)["answer"] == "silent"
    assert waits == [seconds]


def knocked(prepare: str, *wanted: dict[str, Any], **order: Any) -> dict[str, str]:
    """What probe.py sees in a network namespace of its own, prepared by a shell script: answers by protocol."""
    text = json.dumps({"timeout": 0.3, "doors": wanted, **order})
    script = f'{prepare}; exec "$0" "$1" "$2"'
    own = [
        "unshare",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        script,
        sys.executable,
        str(VERIFY / "files" / "probe.py"),
    ]
    done = subprocess.run([*own, text], text=True, capture_output=True, check=True)
    return {one["protocol"]: one["answer"] for one in json.loads(done.stdout)}


CABLE = (
    "set -e; ip link set lo up; ip link add near type veth peer name far; ip link set far up; ip link set near up;"
    "ip address add 198.51.100.2/24 dev near; ip route add default via 198.51.100.1;"
    "ip neighbour add 198.51.100.1 lladdr 02:00:00:00:00:01 dev near"
)
THREE = doors.doors({"addresses": ["192.0.2.1"], "tcp": [22], "udp": [53], "ping": True})


@pytest.mark.parametrize(
    ("broken", "protocols"),
    [
        ("nft add table ip x; nft add chain ip x o '{ type filter hook input priority 0; }';"
         "nft add rule ip x o ip protocol icmp drop", {"ping"}),
        ("nft add table ip x; nft add chain ip x o '{ type filter hook output priority 0; policy drop; }'",
         {"tcp", "udp", "ping"}),
        ("ip link set lo down", {"tcp", "udp", "ping"}),
        ("true", set()),
    ],
    ids=["echo replies are dropped", "nothing may leave", "no loopback", "nothing is broken"],
)  # fmt: skip
def test_a_probe_that_cannot_work_on_its_machine_is_no_silence(broken: str, protocols: set[str]) -> None:
    seen = knocked(f"{CABLE}; {broken}", *THREE)
    assert {name for name, answer in seen.items() if answer.startswith("error: ") or answer == "denied"} == protocols, (
        seen
    )


def test_a_probe_outside_of_its_sandbox_is_an_error() -> None:
    own = {"NoNewPrivs": "0"}
    assert knocked(CABLE, THREE[0], sandbox=own) == {"tcp": "silent"}
    assert knocked(CABLE, THREE[0], sandbox={"NoNewPrivs": "1"})["tcp"].startswith("error: not in the sandbox")


def test_knocking_by_frames_needs_neither_route_nor_neighbour() -> None:
    """The other end wants to answer, though nothing here knows a way to it."""
    prepare = (
        f"{CABLE}; sysctl -qw net.ipv6.conf.far.disable_ipv6=0; ip link set near address 02:00:00:00:00:03;"
        "ip link set far address 02:00:00:00:00:02; ip -6 address add fd66::9/64 dev far nodad"
    )
    for address, answer in (("fd66::9", "refused"), ("fd66::10", "silent")):
        door = {**doors.door(address, "tcp", 22), "frame": "02:00:00:00:00:02"}
        assert knocked(prepare, door) == {"tcp": answer}


def test_link_local_address_follows_from_the_hardware_address() -> None:
    assert watch.link_local("fe:10:00:00:00:10") == "fe80::fc10:ff:fe00:10"


def test_a_sandbox_is_that_of_the_unit_and_what_it_starts_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "u"
    unit.write_text(
        "[Unit]\nAfter=x\n[Service]\n# said\nType=notify\nUser=u\nEnvironment=A=b\nLoadCredential=k:/k\nExecStart=/x\n"
        "IPAddressDeny=any\nRestrictAddressFamilies=AF_INET AF_UNIX\nRuntimeDirectoryMode=0750\n[Install]\nWantedBy=y\n"
    )
    monkeypatch.setattr(places, "show", lambda *_: str(unit))
    words = places.sandboxed("glasslab-agent.service")
    assert [words[i + 1] for i, word in enumerate(words) if word == "-p"] == [
        "User=u",
        "IPAddressDeny=any",
        "RestrictAddressFamilies=AF_INET AF_UNIX",
    ]
    assert any(word.startswith("--unit=glasslab-probe-") for word in words)
