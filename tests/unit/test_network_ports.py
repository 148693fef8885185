"""Guests' ports as they come, go and move: which are taken down, and that each comes up again where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hypervisor import drift, kernel, netlink, ports, state, walls
from hypervisor.settings import Settings

CONFIG = Settings.of({"bridge": "vmbr1", "ports": ["tap1i0", "fwpr1p0", "tap2i0", "fwpr2p0"], "forwarding": False})
RECORD = {"digest": "", "texts": {}, "settings": {}, "kernel": {}}


class Links:
    """A hypervisor's interfaces: the bridge that each is a port of, and those that are up."""

    def __init__(self) -> None:
        self.master: dict[str, str | None] = {"vmbr1": None, "vmbr2": None, "tap1i0": "vmbr1", "tap2i0": "vmbr1"}
        self.up = set(self.master)

    def plug(self, name: str, bridge: str | None) -> None:
        """As Proxmox VE does it: into a bridge, and up; an interface that is there already stays as it is."""
        if name not in self.master:
            self.up.add(name)
        self.master[name] = bridge

    def set_up(self, name: str, *, up: bool) -> None:
        (self.up.add if up else self.up.discard)(name)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Links:
    one = Links()
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.setattr(drift, "LOG", tmp_path / "drift.json")
    monkeypatch.setattr(ports, "exists", one.master.__contains__)
    monkeypatch.setattr(ports, "master", one.master.get)
    monkeypatch.setattr(ports, "is_up", one.up.__contains__)
    monkeypatch.setattr(ports, "set_up", one.set_up)
    monkeypatch.setattr(ports, "members", lambda bridge: [name for name in one.master if one.master[name] == bridge])
    monkeypatch.setattr(ports, "release", lambda _: None)
    monkeypatch.setattr(netlink, "nft_generation", lambda: 7)
    return one


@pytest.mark.parametrize(
    ("name", "bridge", "away"),
    [
        ("tap1i0", "vmbr1", False),
        ("tap1i0", None, False),
        ("tap1i0", "fwbr1i0", False),
        ("tap1i0", "vmbr2", True),
        ("tap1i0", "fwbr2i0", True),
        ("fwln1i0", "fwbr1i0", False),
        ("fwln1i0", "vmbr2", True),
        ("fwpr1p0", "vmbr1", False),
        ("fwpr1p0", "vmbr2", True),
    ],
)
@pytest.mark.parametrize("firewalled", [False, True])
def test_which_bridges_a_port_belongs_in(links: Links, name: str, bridge: str, away: bool, firewalled: bool) -> None:
    """Whether Proxmox's firewall has its bridge there or not: that may just be coming, or going."""
    if firewalled:
        links.plug("fwbr1i0", None)
    links.plug(name, bridge)
    assert (name in ports.away(CONFIG)) is away


def test_the_bridges_of_proxmoxs_firewall_are_deaf_to_link_local_frames_as_well(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns = {"vmbr1": "1", "vmbr2": "0", "fwbr1i0": "0"}
    told = {"ifindex": "7"}  # it has just come
    monkeypatch.setattr(ports, "attribute", lambda name, key: learns.get(name) if "learn" in key else told.get(key))
    monkeypatch.setattr(ports, "disbelieve", lambda name: learns.update({name: "1"}))
    assert drift.look(RECORD, CONFIG, packets=False).fresh == ["fwbr1i0 learns from frames to link-local groups"]
    drift.assert_links(CONFIG)
    assert learns == {"vmbr1": "1", "vmbr2": "0", "fwbr1i0": "1"}


WAYS: dict[str, tuple[str | None, ...]] = {
    "at once": ("vmbr1",),
    "out of that bridge first": (None, "vmbr1"),
    "behind Proxmox's firewall": ("fwbr1i0",),
    "out first, and behind Proxmox's firewall": (None, "fwbr1i0"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_port_that_was_in_another_bridge_is_up_again_where_it_belongs(links: Links, way: str) -> None:
    links.plug("tap1i0", "vmbr2")
    for _ in range(2):
        drift.assert_links(CONFIG)
        assert "tap1i0" not in links.up
    *others, last = WAYS[way]
    for bridge in others:
        links.plug("tap1i0", bridge)
        drift.assert_links(CONFIG)
        assert "tap1i0" not in links.up
    links.plug("tap1i0", last)
    assert drift.come_back(CONFIG) == ["tap1i0"]
    drift.assert_links(CONFIG)
    assert "tap1i0" in links.up
    links.set_up("tap1i0", up=False)
    assert drift.come_back(CONFIG) == [], "whoever takes it down now does so on purpose"


def test_what_comes_while_the_guests_are_shut_in_comes_up_with_them(links: Links) -> None:
    """Somebody starts a guest at that moment: its port is taken down as well, and nobody else would bring it up."""
    walls.shut(CONFIG, "heal", "nft cannot be run")
    assert links.up == {"vmbr2"}
    links.plug("fwbr2i0", None)
    for name, bridge in (("fwln2i0", "fwbr2i0"), ("tap2i0", "fwbr2i0"), ("fwpr2p0", "vmbr1")):
        links.plug(name, bridge)
    walls.stay_shut()
    assert links.up == {"vmbr2", "fwbr2i0"}
    walls.reopen(CONFIG)
    assert links.up == set(links.master)
    walls.stay_shut()
    assert links.up == set(links.master), "they are not shut in any more"


def test_a_strangers_port_is_not_let_out_with_the_guests(links: Links) -> None:
    links.plug("tap9i0", "vmbr1")
    walls.shut(CONFIG, "heal", "nft cannot be run")
    walls.reopen(CONFIG)
    assert links.up == set(links.master) - {"tap9i0"}


def test_a_port_that_is_down_is_told_of(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the walls differs, and the guest is cut off all the same."""
    monkeypatch.setattr(walls, "settings", lambda: (CONFIG, {}))
    monkeypatch.setattr(walls, "loaded", lambda: RECORD)
    monkeypatch.setattr(walls, "digest", lambda: "")
    monkeypatch.setattr(drift, "look", lambda *_: drift.Drift())
    monkeypatch.setattr(walls.routes, "overruled", lambda _: [])
    monkeypatch.setattr(ports, "held", lambda _: [])
    links.plug("fwpr2p0", "vmbr1")
    assert walls.differences() == []
    links.set_up("fwpr2p0", up=False)
    assert walls.differences() == ["guest port fwpr2p0 is down"]
    walls.shut(CONFIG, "heal", "no")
    assert [line for line in walls.differences() if line.startswith("guest port")] == []


def looks(monkeypatch: pytest.MonkeyPatch, found: Callable[[int], drift.Drift]) -> list[drift.Drift]:
    """Each look at the walls finds something; those that were put right."""
    right: list[drift.Drift] = []

    def look(*_: object, **__: object) -> drift.Drift:
        assert len(right) < 200, "it goes on for ever"
        return found(len(right))

    monkeypatch.setattr(drift, "look", look)
    monkeypatch.setattr(drift, "put_right", lambda _record, _config, one: right.append(one))
    return right


def settled(found: list[str]) -> None:
    walls.settle(RECORD, CONFIG, found, walls.time.monotonic(), packets=True)


@pytest.mark.usefixtures("links")
def test_who_plugs_guests_in_shuts_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """One interface comes after the other, and each is put right: as many as there are."""
    right = looks(monkeypatch, lambda done: drift.Drift(fresh=[f"port {done} is not isolated"] * (done < 9)))
    found: list[str] = []
    settled(found)
    assert (len(right), found) == (9, [])


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize(
    "found",
    [
        lambda _: drift.Drift(fresh=["port 1 is not isolated"]),
        lambda _: drift.Drift(settings=["IPv6 is on at vmbr1"]),
        lambda done: drift.Drift(links=[f"port {done} of vmbr1 is no guest's"]),
    ],
    ids=["the same that has just come", "the same drift", "one drift after the other"],
)
def test_what_stays_so_shuts_the_guests_in(
    found: Callable[[int], drift.Drift], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = looks(monkeypatch, found)
    with pytest.raises(kernel.Failure, match="still so after it was put right: "):
        settled([])
    assert len(right) == walls.ATTEMPTS - 1


@pytest.mark.usefixtures("links")
def test_what_comes_without_end_shuts_the_guests_in(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(walls.time, "monotonic", lambda: float(next(clock)))
    looks(monkeypatch, lambda done: drift.Drift(fresh=[f"port {done} is not isolated"]))
    with pytest.raises(kernel.Failure, match="still so after it was put right: port "):
        settled([])
