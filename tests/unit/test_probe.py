"""How doors are knocked at: what is open, refused and silent, and what a broken machine says."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

import attacks
import doors
import places
import probe as prober
import watch
from receiptworld import VERIFY


def test_probe_tells_open_refused_and_silent() -> None:
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


class Wire:
    """A socket of the watch's from which nothing can be read any more, after so many were dropped."""

    def __init__(self, dropped: int) -> None:
        self.dropped, self.ends = dropped, socket.socketpair()

    def fileno(self) -> int:
        return self.ends[0].fileno()

    def recvfrom(self, size: int) -> None:
        raise BlockingIOError

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        assert (level, name, size) == (263, 6, 8), "SOL_PACKET, PACKET_STATISTICS: packets, drops"
        return struct.pack("II", 1000, self.dropped)


@pytest.mark.parametrize(("kinds", "dropped", "lost"), [(5, 0, 0), (9, 0, 4), (3, 7, 7), (6, 2, 3)])
def test_the_watch_says_how_much_it_has_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: int, dropped: int, lost: int
) -> None:
    """Beyond what it can hold, and what came faster than it read."""
    monkeypatch.setattr(watch, "AT_MOST", 5)
    monkeypatch.setattr(watch.Watch, "wire", staticmethod(lambda *_: Wire(dropped)))
    monkeypatch.setattr(signal, "signal", lambda _, told: told())
    one = watch.Watch(["lo"], [], False)
    for port in range(kinds):
        packet = ["ip", {"src": "10.0.0.1", "dst": "10.0.0.2"}], ["udp", {"sport": 1, "dport": port}]
        frame = attacks.layers([["ether", {"dst": "02:00:00:00:00:01"}], *packet], b"")
        one.frame(frame, ("lo", 0, socket.PACKET_HOST))
    one.until_told(tmp_path)
    result = json.loads((tmp_path / "result").read_text())
    assert (len(result["seen"]), result["lost"]) == (min(kinds, 5), lost)


def test_a_resolver_that_refuses_is_told_from_one_that_answers() -> None:
    answers = []
    for code in (0, 3, 5):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
            served.bind(("127.0.0.1", 0))
            served.settimeout(5)

            def serve(served: socket.socket = served, code: int = code) -> None:
                query, peer = served.recvfrom(512)
                served.sendto(query[:2] + bytes([0x80, code]) + query[4:], peer)

            thread = threading.Thread(target=serve)
            thread.start()
            door = doors.door("127.0.0.1", "dns", served.getsockname()[1], "other.example")
            answers.append(prober.knock(door, 2)["answer"])
            thread.join()
    assert answers == ["open", "open", "cut"]


def test_what_a_machine_is_told_fits_into_its_command_line() -> None:
    """Linux takes 128 KiB in one argument: the system's CAs are twice as much, and are on the machine already."""
    tasks = yaml.safe_load((VERIFY / "tasks/plan.yml").read_text(encoding="utf-8"))
    told = next(task["vars"] for task in tasks if "verify_cas" in task.get("vars", {}))
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    for own, log, files, system in [
        ("", "", [], True),
        ("own.crt", "", ["own.crt"], False),
        ("", "log.crt", ["log.crt"], True),
        ("own.crt", bundle, ["own.crt"], True),
        ("own.crt", "own.crt", ["own.crt"], False),
    ]:
        variables = {"verify_ca": own, "verify_log_ca": log, "verify_system": told["verify_system"]}
        loader = DataLoader()
        templar = Templar(loader=loader, variables=variables)
        trusted = [trust_as_template(told["verify_cas"]), trust_as_template(told["verify_order"]["system_ca"])]
        assert [templar.template(text) for text in trusted] == [files, system], (own, log)


def test_a_ca_of_ones_own_counts_beside_the_systems_or_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    made: list[Any] = []

    class Context:
        check_hostname = True

        def load_verify_locations(self, *, cadata: str) -> None:
            made.append(cadata)

    def create(*, cadata: str | None) -> Context:
        made.append(cadata)
        return Context()

    monkeypatch.setattr(ssl, "create_default_context", create)
    for given in ((None, True), ("own", True), ("own", False), ()):
        prober.knock(doors.door("127.0.0.1", "tls", 1, "a.example"), 0.1, *given)
    assert made == [None, None, "own", "own", None]


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


def test_a_sandbox_is_as_open_as_the_units_drop_ins_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the receipt would call blocked what the service itself may reach. Those of the prefix hold without us."""
    for path, text in {
        "glasslab-agent.service": "[Service]\nIPAddressDeny=any\n",
        "glasslab-agent.service.d/more.conf": "[Service]\nIPAddressAllow=any\n[Unit]\nAfter=y\n",
        "glasslab-.service.d/all.conf": "[Service]\nMemoryMax=1G\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    own, shared = (str(tmp_path / f"glasslab-{name}.service.d") for name in ("agent", ""))
    told = {"FragmentPath": str(tmp_path / "glasslab-agent.service")}
    told["DropInPaths"] = f"{shared}/all.conf {own}/more.conf"
    monkeypatch.setattr(places, "show", lambda _, name: told[name])
    words = places.sandboxed("glasslab-agent.service")
    given = [words[i + 1] for i, word in enumerate(words) if word == "-p"]
    assert given == ["IPAddressDeny=any", "IPAddressAllow=any"]
