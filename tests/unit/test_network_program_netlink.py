"""The hypervisor's program and the kernel: policy routes, nftables events, what the watcher makes of them."""

from __future__ import annotations

import errno
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "roles" / "network" / "files"))

from hypervisor import drift, kernel, netlink, ports, routes, state, walls, watch
from hypervisor.settings import Settings

CONFIG = Settings.of({"bridge": "vmbr1", "ports": ["tap1i0"], "isolated": ["tap1i0"], "forwarding": False})
RULES = [
    "-4 pref 4700 iif vmbr1 fwmark 0x47000000/0xff000000 lookup main",
    "-4 pref 4701 iif vmbr1 blackhole",
    "-4 pref 4702 to 10.10.10.0/24 iif lo lookup main",
    "-4 pref 4703 from 10.10.10.7 oif vmbr0 unreachable",
    "-4 pref 4704 fwmark 7 lookup 1000",
    "-6 pref 4701 iif tap1i0 prohibit",
    "-6 pref 4702 to fd00::/8 lookup default",
]


@pytest.mark.parametrize("said", RULES)
def test_a_rule_comes_back_from_the_kernels_form_as_it_was(said: str) -> None:
    rule = routes.parse(said.split())
    standing = routes.decode(routes.encode(rule))
    assert standing.rule == rule
    assert standing.ours


@pytest.mark.parametrize(
    "said",
    [
        "",
        "-4",
        "-4 iif vmbr1 blackhole",
        "-4 pref 1 iif",
        "-4 pref 1 goto 5",
        "-4 pref x blackhole",
        "4 pref 1 blackhole",
    ],
)
def test_a_rule_that_is_not_understood_is_named(said: str) -> None:
    with pytest.raises(kernel.Failure, match=rf"^settings\.json: ip_rules: `{said}` is not understood"):
        routes.parse(said.split())


def test_a_rule_narrowed_by_somebody_is_not_ours_any_more() -> None:
    rule = routes.parse(RULES[1].split())
    # By a protocol, by the least DSCP, by what no kernel of today has: there and not understood is enough.
    for kind, value in ((22, b"\x06"), (27, b"\0"), (99, b"\0")):
        assert routes.decode(routes.encode(rule) + netlink.attribute(kind, value)).rule != rule
    assert routes.decode(routes.encode(rule) + netlink.attribute(routes.SUPPRESS_LENGTH, b"\0" * 4)).rule != rule
    assert routes.decode(routes.encode(rule) + netlink.attribute(routes.SUPPRESS_LENGTH, b"\xff" * 4)).rule == rule
    inverted = bytearray(routes.encode(rule))
    inverted[8:12] = struct.pack("=I", routes.INVERT)
    assert routes.decode(bytes(inverted)).rule != rule


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A kernel's policy routes, which request() lists, adds to and deletes from."""
    held: list[bytes] = []

    def request(_: int, kind: int, body: bytes, flags: int = netlink.ACK) -> list[netlink.Message]:
        if kind == routes.GETRULE:
            return [(routes.NEWRULE, one) for one in held]
        assert flags & netlink.ACK
        if kind == routes.NEWRULE:
            held.append(body)
        else:
            held.remove(body)
        return []

    monkeypatch.setattr(netlink, "request", request)
    monkeypatch.setattr(routes, "IPV6", Path("/"))
    return held


def test_routes_are_added_before_others_go_and_foreign_ones_stay(table: list[bytes]) -> None:
    wanted = routes.wanted([said.split() for said in RULES])
    foreign = encoded("-4 pref 100 lookup main", ours=False)
    former = encoded("-4 pref 4999 iif old blackhole")
    squatter = encoded("-4 pref 4701 from 10.10.10.10 lookup main", ours=False)
    table += [foreign, former, squatter, routes.encode(wanted[1])]
    assert len(routes.differing(wanted)) == len(RULES) - 1 + 2
    routes.restore(wanted)
    assert routes.differing(wanted) == []
    assert foreign in table
    assert former not in table
    assert squatter not in table
    assert routes.overruled(wanted) == [
        "`ip -4 rule pref 100 lookup 254` of somebody else stands before the lab's policy routes"
    ]
    routes.remove()
    assert table == [foreign]


def test_without_ipv6_in_the_kernel_its_routes_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "IPV6", Path("/nowhere"))
    assert {rule.family for rule in routes.wanted([said.split() for said in RULES])} == {socket.AF_INET}


def encoded(said: str, *, ours: bool = True) -> bytes:
    """A policy route as the kernel would list it."""
    body = routes.encode(routes.parse(said.split()))
    return body if ours else body[:-8]  # the last attribute says whose it is


def event(kind: int, family: int, table: str, chain: str = "") -> netlink.Message:
    """An nftables event as the kernel sends it."""
    number = {netlink.NFT_NEWRULE: 2, netlink.NFT_DELRULE: 2}.get(kind, 3)
    data = netlink.attribute(1, table.encode() + b"\0")
    data += netlink.attribute(number, chain.encode() + b"\0") if chain else b""
    return netlink.NFT_SUBSYSTEM << 8 | kind, struct.pack("=BBH", family, 0, 0) + data


@pytest.mark.parametrize(
    ("kind", "family", "table", "chain", "concerned"),
    [
        (netlink.NFT_DELRULE, 2, "filter", "INPUT", True),
        (netlink.NFT_NEWRULE, 10, "raw", "PREROUTING", True),
        (netlink.NFT_DELCHAIN, 2, "nat", "GLASSLAB-PREROUTING", True),
        (netlink.NFT_DELRULE, 7, "glasslab", "forward", True),
        (2, 2, "mangle", "", True),  # the whole table is deleted
        (netlink.NFT_NEWRULE, 2, "filter", "DOCKER", False),
        (netlink.NFT_NEWRULE, 1, "filter", "INPUT", False),
        (netlink.NFT_DELRULE, 7, "somebody", "forward", False),
        (2, 2, "own", "", False),
    ],
)
def test_which_events_concern_the_walls(kind: int, family: int, table: str, chain: str, concerned: bool) -> None:
    found = netlink.nft_event(event(kind, family, table, chain))
    assert found is not None
    assert watch.concerns(found) is concerned


def test_events_that_were_lost_are_noticed() -> None:
    class Overrun:
        def __init__(self) -> None:
            self.answers: list[Any] = [OSError(errno.ENOBUFS, "lost"), netlink.HEADER.pack(20, 7, 0, 0, 0) + b"abcd"]

        def recv(self, _: int) -> bytes:
            if not self.answers:
                raise BlockingIOError
            answer = self.answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            assert isinstance(answer, bytes)
            return answer

    assert netlink.drain(Overrun()) == ([(7, b"abcd")], True)  # type: ignore[arg-type]  # a socket, as far as it is used


def test_damaged_messages_end_the_reading_and_nothing_else() -> None:
    assert list(netlink.messages(b"\x01" * 40)) == []
    assert list(netlink.attributes(b"\0" * 8)) == []


@pytest.fixture
def heals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A watcher's surroundings: what it does, in order."""
    done: list[str] = []
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.setattr(netlink, "listen", lambda _: None)
    monkeypatch.setattr(walls, "heal", lambda _: done.append("heal"))
    monkeypatch.setattr(walls, "unchanged", lambda: False)
    monkeypatch.setattr(ports, "hold", lambda _: done.append("hold"))
    settings = {"bridge": "vmbr1", "ports": ["tap1i0"]}
    state.store(state.LOADED, {"digest": "", "texts": {}, "settings": settings, "kernel": {}})
    return done


def test_a_change_shuts_the_ports_before_it_is_looked_at(heals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = watch.Watcher()
    monkeypatch.setattr(watcher, "wait", lambda _: (True, False))
    watcher.step()
    assert heals == ["hold", "heal"]
    monkeypatch.setattr(walls, "unchanged", lambda: True)  # our own change, or one that apply has made
    watcher.step()
    assert heals == ["hold", "heal", "heal"]


def test_without_rules_nothing_is_held(heals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    state.forget(state.LOADED)
    watcher = watch.Watcher()
    monkeypatch.setattr(watcher, "wait", lambda _: (True, False))
    watcher.step()
    assert heals == ["heal"]


def test_looks_are_bounded_however_often_rules_change(heals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
    watcher = watch.Watcher()
    monkeypatch.setattr(watcher, "wait", lambda _: (True, False))
    for _ in range(1000):
        clock[0] += 0.01
        watcher.step()
    assert heals.count("heal") - watch.BURST == pytest.approx(10 * watch.PER_SECOND, abs=1)
    assert heals.count("hold") == 1000


def test_what_cannot_be_healed_is_tried_again_later(heals: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]

    def fails(_: float) -> None:
        heals.append("heal")
        state.store(state.CLOSED, {"settings": {"bridge": "vmbr1", "ports": []}})
        raise kernel.Failure("no")

    monkeypatch.setattr(walls, "heal", fails)
    monkeypatch.setattr(walls, "stay_shut", lambda: heals.append("close"))
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
    watcher = watch.Watcher()
    monkeypatch.setattr(watcher, "wait", lambda _: (False, True))
    for _ in range(20):
        watcher.step()
        clock[0] += 0.5
    assert heals.count("heal") == 4  # at 0, 1, 3 and 7 seconds
    assert heals.count("close") == 16


def test_the_record_of_drift_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drift, "LOG", tmp_path / "log" / "drift.json")
    monkeypatch.setattr(drift, "LOG_BYTES", 2000)
    for number in range(100):
        drift.write([f"{number} " + "x" * 60] * 60, "restored", 1.26)
    files = sorted((tmp_path / "log").iterdir())
    assert [file.name for file in files] == ["drift.json", "drift.json.1"]
    assert all(file.stat().st_size < 8000 for file in files)
    line = json.loads(files[0].read_text().splitlines()[-1])
    assert (line["event"], line["outcome"], line["milliseconds"], len(line["found"])) == ("drift", "restored", 1.3, 50)


def test_a_drift_that_cannot_be_recorded_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drift, "LOG", tmp_path / "drift.json")
    (tmp_path / "drift.json").mkdir()
    drift.write(["x"], "restored", 1)
    assert f"{tmp_path}/drift.json: Is a directory: the drift is not recorded there" in capsys.readouterr().err


def test_a_comparison_that_breaks_shuts_the_guests_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever it is that went wrong; and what was up comes up again when it can."""
    links = {"vmbr1": True, "tap1i0": True, "fwpr1p0": False}
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.setattr(drift, "LOG", tmp_path / "drift.json")
    monkeypatch.setattr(netlink, "nft_generation", lambda: 7)
    monkeypatch.setattr(ports, "up", lambda _: [name for name, up in links.items() if up])
    monkeypatch.setattr(ports, "close", lambda _: links.update(dict.fromkeys(links, False)))
    monkeypatch.setattr(ports, "set_up", lambda name, up: links.update({name: up}))
    monkeypatch.setattr(ports, "release", lambda _: None)
    settings = {"bridge": "vmbr1", "ports": ["tap1i0"]}
    state.store(state.LOADED, {"digest": "", "texts": {}, "settings": settings, "kernel": {}})

    def breaks(*_: Any, **__: Any) -> drift.Drift:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(drift, "look", breaks)
    for _ in range(2):
        with pytest.raises(KeyError):
            walls.heal()
        assert links == {"vmbr1": False, "tap1i0": False, "fwpr1p0": False}
    monkeypatch.setattr(drift, "look", lambda *_, **__: drift.Drift())
    walls.heal()
    assert links == {"vmbr1": True, "tap1i0": True, "fwpr1p0": False}
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "drift.json").read_text().splitlines()]
    assert outcomes == ["closed", "restored"]
