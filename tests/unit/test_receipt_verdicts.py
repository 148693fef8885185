"""What counts as blocked, reachable and unproven, of a door and of a forged frame."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import receipt
import watch
from receiptworld import LAN_DOOR, MODEL, RULES, World, planned, row


@pytest.mark.parametrize(
    ("answer", "control", "observed", "why"),
    [
        ("silent", "open", "blocked", None),
        ("silent", "refused", "blocked", None),
        ("silent", "silent", "unproven", "the target did not answer its control either"),
        ("silent", "error: no route", "unproven", "the target did not answer its control either"),
        ("open", "open", "reachable", None),
        ("open", "silent", "reachable", None),
        ("refused", "open", "reachable", None),
        ("error: no socket", "open", "unproven", "the probe could not be made"),
        ("denied", "open", "unproven", "the probe could not be made"),
    ],
)
def test_verdict_on_what_must_be_blocked(answer: str, control: str, observed: str, why: str | None) -> None:
    world = World()
    world.door("agent", *LAN_DOOR)["answer"] = answer
    world.door("controller", *LAN_DOOR)["answer"] = control
    result = world.receipt()
    found = row(result, "agent", *LAN_DOOR)
    assert (found["observed"], found.get("why")) == (observed, why)
    assert result["as_expected"] is (observed == "blocked")


@pytest.mark.parametrize(
    ("answer", "observed"), [("open", "reachable"), ("refused", "unproven"), ("silent", "blocked")]
)
def test_verdict_on_a_needed_flow(answer: str, observed: str) -> None:
    world = World("allowlist", MODEL)
    world.door("agent", "10.10.10.20", "tcp", 8088)["answer"] = answer
    result = world.receipt()
    assert row(result, "agent", "10.10.10.20", "tcp", 8088)["observed"] == observed
    assert result["as_expected"] is (answer == "open")


@pytest.mark.parametrize(
    ("answer", "observed"), [("cut", "blocked"), ("silent", "blocked"), ("foreign", "reachable"), ("open", "reachable")]
)
def test_verdict_on_another_name_at_an_allowed_address(answer: str, observed: str) -> None:
    world = World("allowlist", MODEL)
    world.door("agent", "192.0.2.129", "tls", 443, "other.example")["answer"] = answer
    found = [one for one in world.receipt()["probes"] if one["place"] == "agent" and one["protocol"] == "tls"]
    assert [one["observed"] for one in found if one["name"] == "other.example"] == [observed]


@pytest.mark.parametrize(
    ("answer", "allowed", "observed"),
    [
        ("cut", "open", "blocked"),
        ("open", "open", "reachable"),
        ("silent", "open", "blocked"),
        ("cut", "silent", "unproven"),
        ("silent", "silent", "unproven"),
    ],
)
def test_verdict_on_a_resolver_that_answers_for_another_name(answer: str, allowed: str, observed: str) -> None:
    """It refuses: one that asks others would be a way out by the names that it is asked for."""
    world = World("allowlist", MODEL)
    world.door("agent", "192.0.2.53", "dns", 53, "other.example")["answer"] = answer
    world.door("agent", "192.0.2.53", "dns", 53, "model.example")["answer"] = allowed
    found = [one for one in world.receipt()["probes"] if one["target"] == "resolver, another name"]
    assert [one["observed"] for one in found if one["place"] == "agent"] == [observed]


def test_an_allowed_name_is_not_tried_as_another_one() -> None:
    both = {**MODEL, "names": ["model.example", "other.example"]}
    order = {"name_addresses": {"model.example": "192.0.2.200", "other.example": "192.0.2.200"}}
    names = {
        (row["target"], row["name"])
        for row in planned("allowlist", both, declared=order)["rows"]
        if row["protocol"] == "tls"
    }
    assert names == {("model", "model.example"), ("model", "other.example"), ("model, another name", "")}


def test_another_name_is_not_refused_where_the_allowed_one_gets_no_answer() -> None:
    world = World("allowlist", MODEL)
    world.door("agent", "192.0.2.129", "tls", 443, "model.example")["answer"] = "silent"
    found = {
        one["name"]: one["observed"] for one in world.receipt()["probes"] if one["place"] == "agent" and "name" in one
    }
    assert found["model.example"] == "blocked"
    assert found["other.example"] == found[""] == "unproven"


def test_a_needed_flow_with_another_certificate_is_unproven() -> None:
    world = World("allowlist", MODEL)
    world.door("agent", "192.0.2.129", "tls", 443, "model.example")["answer"] = "foreign"
    assert row(world.receipt(), "agent", "192.0.2.129", "tls", 443)["why"] == "its certificate does not hold"


def silence(world: World, place: str) -> None:
    for door in world.places[place]:
        door["answer"] = "silent"


def unseen(world: World) -> None:
    door = world.door("agent", *LAN_DOOR)
    world.seen = [one for one in world.seen if one[4] != door["mark"]]


def late(world: World) -> None:
    world.door("agent", *LAN_DOOR)["time"] += 11


def agent_is_cut_off(world: World) -> None:
    silence(world, "agent")
    world.door("hypervisor", "10.10.10.10", "tcp", 22)["answer"] = "silent"


def nobody_watched(world: World) -> None:
    world.seen = None  # as when the watch did not run


@pytest.mark.parametrize("column", [0, 3], ids=["by the lab's own bridge", "from somebody else"])
def test_what_came_otherwise_did_not_come_from_outside(column: int) -> None:
    world = World()
    mark = world.door("LAN", "10.10.10.10", "tcp", 22)["mark"]
    seen = next(one for one in world.seen if one[4] == mark)
    seen[column] = {0: "vmbr1", 3: "192.168.50.77"}[column]
    assert row(world.receipt(), "LAN", "10.10.10.10", "tcp", 22)["observed"] == "unproven"


DOUBTS: dict[str, tuple[Callable[[World], Any], str]] = {
    "it never came to the hypervisor": (unseen, "the probe never came to the hypervisor"),
    "the control knocked at another time": (late, "its control knocked 11 s apart"),
    "the controller's cable is out": (lambda world: silence(world, "controller"), "the target did not answer"),
    "the control did not knock": (lambda world: world.places.pop("controller"), "its control did not knock"),
    "the place is cut off": (agent_is_cut_off, "nothing at all got through for agent"),
    "the place did not knock": (lambda world: world.places.update(agent={"error": "no python"}), "no python"),
    "nobody watched": (nobody_watched, "nobody watched at the hypervisor"),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_silence_proves_nothing_when(doubt: str) -> None:
    change, why = DOUBTS[doubt]
    world = World()
    change(world)
    result = world.receipt()
    found = row(result, "agent", *LAN_DOOR)
    assert found["observed"] == "unproven"
    assert why in found["why"]
    assert result["as_expected"] is False
    assert why in "\n".join(receipt.findings(result))


def knocked_again(world: World, seconds: float, answer: str) -> None:
    """The controller knocks on its doors a second time, that long after the first, from other ports."""
    doors = [
        {**door, "mark": door["mark"] + 5000, "time": door["time"] + seconds, "answer": answer}
        for door in world.places["controller"]
    ]
    world.order["again"] = {"controller": json.dumps({"controller": doors})}


@pytest.mark.parametrize(
    ("late_by", "seconds", "answer", "observed"),
    [
        (25, 60, "open", "blocked"),
        (25, 60, "refused", "blocked"),
        (25, 61, "open", "unproven"),  # before and after, and who knows what was in between
        (25, 60, "silent", "unproven"),
        (25, 14.5, "open", "unproven"),  # before the probe too, and too long before it
        (25, 28, "open", "blocked"),
        (-25, 28, "open", "unproven"),  # both after it
    ],
)
def test_a_late_knock_is_judged_by_controls_before_and_after_it(
    late_by: float, seconds: float, answer: str, observed: str
) -> None:
    world = World()
    for door in world.places["agent"]:
        door["time"] += late_by
    knocked_again(world, seconds, answer)
    found = row(world.receipt(), "agent", *LAN_DOOR)
    assert found["observed"] == observed
    assert found.get("why", "").startswith("its control knocked") is (observed == "unproven")


def test_the_controls_second_packets_are_no_leak() -> None:
    world = World()
    probe = world.door("agent", *LAN_DOOR)
    assert world.seen is not None
    world.seen.append(["vmbr0", "out", "tcp", "192.168.50.100", probe["mark"] + 5000, *LAN_DOOR[::2]])
    probe["mark"] += 5000
    world.door("controller", *LAN_DOOR)["mark"] = probe["mark"] - 5000
    assert row(world.receipt(), "agent", *LAN_DOOR)["observed"] == "reachable"
    knocked_again(world, 1, "open")
    assert row(world.receipt(), "agent", *LAN_DOOR)["observed"] != "reachable"


def test_a_place_that_cannot_be_entered_is_unproven_until_it_is_accepted() -> None:
    world = World()
    world.plan = planned(outside=({"name": "internet"},))
    result = world.receipt()
    rows = [one for one in result["probes"] if one["place"] == "internet"]
    assert {one["target"] for one in rows} == {"agent machine", "logs machine"}
    assert {one["why"] for one in rows} == {"nobody knocked from there: verify_outside has no command for that place"}
    assert result["as_expected"] is False
    world.order["accepted"] = [{"place": "internet", "reason": "no host of ours is there"}]
    assert world.receipt()["as_expected"] is True


@pytest.mark.parametrize("place", ["agent's sandbox", "LAN"])
def test_a_place_that_gets_nothing_at_all_is_not_called_isolated(place: str) -> None:
    world = World()
    silence(world, place)
    observed = {
        one["observed"] for one in world.receipt()["probes"] if one["place"] == place and one["expected"] == "blocked"
    }
    assert observed == {"unproven"}


def test_a_sandbox_that_its_own_kernel_holds_back_is_blocked() -> None:
    world = World()
    for door in world.places["agent's sandbox"]:
        door["answer"] = "denied" if door["answer"] == "silent" else door["answer"]
    assert receipt.findings(world.receipt()) == []
    world = World()
    for door in world.places["agent's sandbox"]:
        door["answer"] = "denied"
    assert "unproven" in {one["observed"] for one in world.receipt()["probes"] if one["place"] == "agent's sandbox"}


@pytest.mark.parametrize(
    ("place", "door", "interface", "source", "observed"),
    [
        ("agent", ("169.254.169.254", "tcp", 80), "vmbr0", "192.168.50.2", "reachable"),
        ("agent", ("192.168.50.10", "tcp", 80), "vmbr0", "10.10.10.10", "reachable"),
        ("agent", ("10.10.10.20", "udp", 9999), "tap102i0", "10.10.10.10", "reachable"),
        ("agent", ("10.10.10.20", "udp", 9999), "fwln101i0", "10.10.10.10", "blocked"),
        ("agent", ("192.168.50.10", "tcp", 80), "vmbr1", "10.10.10.10", "blocked"),
        ("LAN", ("10.10.10.10", "tcp", 22), "vmbr1", "192.168.50.10", "reachable"),
    ],
)
def test_what_leaves_the_hypervisor_is_not_blocked(
    place: str, door: tuple[Any, ...], interface: str, source: str, observed: str
) -> None:
    """One way is enough: that no answer came is no wall."""
    world = World()
    mark = world.door(place, *door)["mark"]
    world.seen.append([interface, "out", door[1], source, mark, door[0], door[2]])
    found = row(world.receipt(), place, *door)
    assert found["observed"] == observed
    assert found.get("why") == (f"it left by {interface}, from {source}" if observed == "reachable" else None)


def test_what_the_controls_send_is_no_leak() -> None:
    world = World()
    control = world.door("controller", *LAN_DOOR)
    control["mark"] = world.door("agent", *LAN_DOOR)["mark"]
    world.seen.append(["vmbr0", "out", "tcp", control["source"], control["mark"], LAN_DOOR[0], LAN_DOOR[2]])
    assert row(world.receipt(), "agent", *LAN_DOOR)["observed"] == "blocked"


AGENTS_SSH = ("10.10.10.10", "tcp", 22)


@pytest.mark.parametrize(
    ("source", "own", "observed"),
    [
        ("10.10.10.1", [["tcp", "10.10.10.1", 0, "10.10.10.10", 22]], "blocked"),
        ("10.10.10.1", [["tcp", "10.10.10.1", 1, "10.10.10.10", 22]], "reachable"),  # another connection's port
        ("10.10.10.1", [["udp", "10.10.10.1", 0, "10.10.10.10", 22]], "reachable"),
        ("10.10.10.1", [], "reachable"),  # translated: that is no connection of the hypervisor's
        ("10.10.10.20", [["tcp", "10.10.10.1", 0, "10.10.10.10", 22]], "reachable"),  # the probe itself
    ],
)
def test_the_hypervisors_own_connection_of_a_probes_port_is_no_leak(
    source: str, own: list[list[Any]], observed: str
) -> None:
    """Ansible comes to the guests by way of the hypervisor; a receipt once called that a leak."""
    world = World()
    mark = world.door("logs", *AGENTS_SSH)["mark"]
    world.ended["own"] = [[kind, who, mark + port, target, 22] for kind, who, port, target, _ in own]
    world.seen.append(["tap101i0", "out", "tcp", source, mark, *AGENTS_SSH[::2]])
    assert row(world.receipt(), "logs", *AGENTS_SSH)["observed"] == observed


def test_another_guests_traffic_of_a_probes_port_is_no_leak() -> None:
    world = World()
    mark = world.door("LAN", *AGENTS_SSH)["mark"]
    world.seen.append(["tap101i0", "out", "tcp", "10.10.10.20", mark, *AGENTS_SSH[::2]])
    assert row(world.receipt(), "LAN", *AGENTS_SSH)["observed"] == "blocked"


METADATA = ("169.254.169.254", "tcp", 80)


@pytest.mark.parametrize(
    ("sighting", "observed"),
    [
        (["vmbr0", "out", "tcp", "192.168.50.2", 61000, "169.254.169.254", 80], "reachable"),
        (["vmbr0", "out", "arp", "192.168.50.2", 0, "169.254.169.254", None], "reachable"),
        (["vmbr1", "out", "arp", "10.10.10.1", 0, "169.254.169.254", None], "blocked"),
        (["vmbr0", "out", "tcp", "192.168.50.2", 61000, "169.254.169.254", 443], "blocked"),
    ],
)
def test_where_nobody_has_any_business_what_leaves_is_the_probes_by_whichever_port(
    sighting: list[Any], observed: str
) -> None:
    """Translation may give it another port, and of a neighbour that does not exist the question alone is seen."""
    world = World()
    assert world.seen is not None
    world.seen.append(sighting)
    assert row(world.receipt(), "agent", *METADATA)["observed"] == observed


def test_what_the_watch_missed_may_have_left() -> None:
    world = World()
    assert world.receipt()["as_expected"] is True
    world.ended["lost"] = 3
    result = world.receipt()
    assert result["as_expected"] is False
    assert result["problems"] == ["the watch on the hypervisor missed 3 packets: take it again"]


def test_the_own_connections_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    """Against real connections of this process, over both address families, and one of IPv4 by an IPv6 socket."""
    made, expected = [], set()
    for family, address, kind in [
        (socket.AF_INET, "127.0.0.1", socket.SOCK_STREAM),
        (socket.AF_INET6, "::1", socket.SOCK_STREAM),
        (socket.AF_INET6, "::ffff:127.0.0.1", socket.SOCK_STREAM),
        (socket.AF_INET, "127.0.0.1", socket.SOCK_DGRAM),
    ]:
        door, one = socket.socket(family, kind), socket.socket(family, kind)
        door.bind((address, 0))
        if kind == socket.SOCK_STREAM:
            door.listen()
        one.connect(door.getsockname()[:2])
        (source, own), (target, port) = one.getsockname()[:2], door.getsockname()[:2]
        plain = [text.removeprefix("::ffff:") for text in (source, target)]
        expected.add(("tcp" if kind == socket.SOCK_STREAM else "udp", plain[0], own, plain[1], port))
        made += [door, one]
    found = watch.connections()
    assert expected <= found
    assert all(port for *_, port in found)  # a listener is no connection
    for each in made:
        each.close()
    assert watch.connections(tmp_path) == set()


def claim(world: World) -> str:
    """The tag of the claim to be the gateway."""
    found: str = next(one["tag"] for one in world.plan["forged"]["agent"] if one["claims"] == "10.10.10.1")
    return found


def goes_on(world: World) -> None:
    world.tags.append([claim(world), "vmbr1", "in"])


def never_comes(world: World) -> None:
    world.tags.remove([claim(world), "tap101i0", "in"])


def no_honest_frame(world: World) -> None:
    world.tags.remove(next(one for one in world.tags if one[2] == "out"))


def not_sent(world: World) -> None:
    world.places["agent, forging"]["failed"][claim(world)] = "no"


def believed(world: World) -> None:
    world.logs_believes.append("10.10.10.1 is at 02:10:00:00:00:10")


FORGED: dict[str, tuple[Callable[[World], Any], str, str]] = {
    "goes on": (goes_on, "reachable", "seen at vmbr1"),
    "never came": (never_comes, "unproven", "it never came to the hypervisor"),
    "no honest frame": (no_honest_frame, "unproven", "an honest frame did not get through either"),
    "not sent": (not_sent, "unproven", "it could not be sent: no"),
    "believed": (believed, "reachable", "taken in by logs"),
}


@pytest.mark.parametrize("case", FORGED)
def test_verdict_on_a_forged_frame(case: str) -> None:
    change, observed, why = FORGED[case]
    world = World(disruptive=True)
    change(world)
    found = [
        one
        for one in world.receipt()["probes"]
        if one["target"] == "ARP claim" and one["name"].startswith("10.10.10.1 ")
    ]
    assert [one["observed"] for one in found] == [observed]
    assert why in found[0]["why"]


def test_an_accepted_row_is_no_failure_and_keeps_its_reason() -> None:
    world = World()
    world.door("agent", *LAN_DOOR)["answer"] = "open"
    entry = {"place": "agent", "target": "LAN", "address": LAN_DOOR[0], "port": 80, "reason": "a printer"}
    world.order["accepted"] = [entry]
    result = world.receipt()
    assert result["as_expected"] is True
    assert row(result, "agent", *LAN_DOOR)["accepted"] == "a printer"
    assert receipt.findings(result)[0].endswith("accepted: a printer")
    world.order["accepted"] = [{**entry, "port": 22}]
    assert world.receipt()["as_expected"] is False


@pytest.mark.parametrize(
    ("entry", "said", "good"),
    [
        ({"target": "LAN", "reason": "a printer"}, "accepted (a printer) and no longer different", True),
        ({"target": "nowhere", "reason": "x"}, "verify_accepted: no probe is nowhere", False),
        ({"target": "LAN", "reason": ""}, "verify_accepted: LAN: give some of", False),
        ({"reason": "everything"}, "give some of", False),
    ],
)
def test_an_accepted_row_that_is_not_needed_is_said(entry: dict[str, Any], said: str, good: bool) -> None:
    world = World()
    world.order["accepted"] = [entry]
    result = world.receipt()
    assert said in "\n".join(receipt.findings(result))
    assert result["as_expected"] is good


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({**RULES, "check": "net.ipv4.ip_forward is off\n"}, "glasslab-network check: net.ipv4.ip_forward is off"),
        (
            {**RULES, "mode": "open"},
            "the hypervisor holds mode open, the inventory says allowlist: run playbooks/network",
        ),
        ({**RULES, "kernel": "other"}, "the hypervisor's rules changed while the receipt was taken"),
        (None, "the hypervisor did not say which rules it holds"),
    ],
)
def test_rules_that_are_not_as_loaded_are_a_failure(rules: dict[str, Any] | None, said: str) -> None:
    world = World()
    world.ended["rules"] = rules
    result = world.receipt()
    assert result["as_expected"] is False
    assert said in "\n".join(result["problems"])


def test_where_a_flow_is_allowed_the_hypervisors_proxy_goes_for_it() -> None:
    """Its connection, seen on the wire and never in a look at the own ones, is no other place's probe."""
    world = World("allowlist", MODEL)
    there = next(one for one in world.plan["rows"] if one["expected"] == "reachable" and one["protocol"] == "tls")
    world.plan["rows"].append({**there, "place": "logs", "expected": "blocked", "needed": False, "controls": []})
    knock = {**there, "answer": "silent", "source": "10.10.10.20", "mark": 50000, "time": 1000.0}
    world.places["logs"].append(knock)
    assert world.seen is not None
    world.seen.append(["tap102i0", "in", "tcp", "10.10.10.20", 50000, there["address"], 443])
    world.seen.append(["vmbr0", "out", "tcp", "192.168.50.2", 61000, there["address"], 443])
    door = (there["address"], "tls", 443)
    assert row(world.receipt(), "logs", *door)["observed"] == "blocked"
    world.seen.append(["vmbr0", "out", "tcp", "192.168.50.2", 50000, there["address"], 443])
    assert row(world.receipt(), "logs", *door)["observed"] == "reachable"
