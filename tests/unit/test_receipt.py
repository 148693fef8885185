"""The receipt: what counts as blocked, reachable and unproven, what is expected of which door, what the table shows."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERIFY, NETWORK = ROOT / "roles" / "verify", ROOT / "roles" / "network"
sys.path.insert(0, str(VERIFY / "files"))

import doors  # noqa: E402  (the role's files are no package; found by the line above)
import isolation_table  # noqa: E402
import judge  # noqa: E402
import places  # noqa: E402
import plan  # noqa: E402
import probe as prober  # noqa: E402
import receipt  # noqa: E402
import watch  # noqa: E402

SETTINGS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))
ADDRESSES = [["vmbr0", "192.168.50.2"], ["vmbr1", "10.10.10.1"], ["vmbr2", "10.20.20.1"], ["vmbr0", "fd50::2"]]
MAC = "fe:10:00:00:00:10"
RULES = {"mode": "allowlist", "check": "as loaded", "files": "f", "kernel": "k"}
BEGUN = {"addresses": ADDRESSES, "mac": MAC, "link_local": "fe80::1", "rules": RULES, "versions": {}, "watch": {}}
MODEL = {"name": "model", "from": "agent", "names": ["model.example"], "protocol": "tcp", "ports": [443], "why": "-"}
PACKAGES = {**MODEL, "name": "packages", "names": ["deb.example"], "ports": [80], "modes": ["build"]}
WEB = {"name": "web", "from": "logs", "to": "198.51.100.7", "protocol": "tcp", "ports": [443], "why": "-"}


def known(mode: str = "allowlist", *flows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A policy: the role's defaults with the given flows beside the log's, as the role's filter works it out."""
    spec = importlib.util.spec_from_file_location("policy_filter", NETWORK / "filter_plugins" / "glasslab_policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    defaults = yaml.safe_load((NETWORK / "defaults" / "main.yml").read_text(encoding="utf-8"))
    declared = {name.removeprefix("network_"): value for name, value in defaults.items()}
    declared |= {"mode": mode, "flows": [*declared["flows"], *copy.deepcopy(flows)], **more}
    return {"declared": declared, "policy": module.network_policy(declared)}


def planned(
    mode: str = "allowlist",
    *flows: dict[str, Any],
    disruptive: bool = False,
    allow: list[str] | None = None,
    outside: tuple[dict[str, Any], ...] = (),
    declared: dict[str, Any] | None = None,
    guests: list[str] | None = None,
) -> dict[str, Any]:
    """The plan of a policy; `allow` limits the agent's sandbox, `outside` are further places."""
    order = {
        **known(mode, *flows, **(declared or {})),
        "hypervisor": BEGUN,
        "hypervisor_address": "192.168.50.2",
        "guests": guests or ["agent", "logs"],
        "controller_command": [],
        "outside": [{"name": "LAN", "command": []}, *outside],
        "ca": None,
        "other_names": ["other.example"],
        "disruptive": disruptive,
        "sandboxes": {place: {**box, "allow": allow} for place, box in SETTINGS["verify_sandboxes"].items()},
        **{name: SETTINGS[f"verify_{name}"] for name in ("targets", "guest_ports", "timeout")},
    }
    found: dict[str, Any] = plan.plan(order)
    return found


SOURCES = {"agent": "10.10.10.10", "agent's sandbox": "10.10.10.10", "logs": "10.10.10.20", "LAN": "192.168.50.10"}


class World:
    """What would be seen where all is as the policy says; tests change one thing of it."""

    def __init__(self, mode: str = "allowlist", *flows: dict[str, Any], disruptive: bool = False) -> None:
        self.known, self.plan = known(mode, *flows), planned(mode, *flows, disruptive=disruptive)
        reachable = {(row["place"], judge.key(row)) for row in self.plan["rows"] if row["expected"] == "reachable"}
        self.places: dict[str, Any] = {}
        self.seen: list[list[Any]] = []
        mark = 40000
        for machine in self.plan["machines"].values():
            for place in machine["places"]:
                name, answers = place["name"], []
                for door in place["order"].get("doors", []):
                    mark += 1
                    control = name in ("controller", "hypervisor") or judge.key(door) == self.alive(name)
                    answer = "open" if control or (name, judge.key(door)) in reachable else "silent"
                    source = SOURCES.get(name, "192.168.50.100")
                    answers.append({**door, "answer": answer, "source": source, "mark": mark, "time": 1000.0})
                    port = {"agent": "tap101i0", "logs": "tap102i0", "LAN": "vmbr0"}.get(name)
                    if port:
                        kind = judge.transport(door["protocol"])
                        self.seen.append([port, "in", kind, source, mark, door["address"], door["port"]])
                self.places[name] = answers
        self.tags = [
            [frame["tag"], *where]
            for frames in self.plan["forged"].values()
            for frame in frames
            for where in ([["tap101i0", "in"]] + [["tap102i0", "out"]] * (frame["target"] == "honest"))
        ]
        if disruptive:
            self.places["agent, forging"] = {"sent": len(self.plan["forged"]["agent"]), "failed": {}}
        self.ended: dict[str, Any] = {"rules": {**RULES, "mode": mode}, "believed": []}
        self.logs_believes: list[str] = []
        self.order: dict[str, Any] = {"question": None, "accepted": []}

    def alive(self, place: str) -> Any:
        return next((judge.key(door) for who, door in self.plan["alive"].get(place, []) if who == place), None)

    def door(self, place: str, address: str, protocol: str, port: int | None = None, name: str | None = None) -> Any:
        """What a place got at a door, to be changed."""
        wanted = (address, protocol, port, name)
        return next(door for door in self.places[place] if judge.key(door) == wanted)

    def receipt(self) -> dict[str, Any]:
        plan = {name: json.dumps(self.plan[name]) for name in ("rows", "kinds", "alive", "forged")}
        ended = {**self.ended, "seen": self.seen, "tags": self.tags}
        result: dict[str, Any] = receipt.receipt(
            {
                "lab_id": "x",
                "policy": self.known["policy"],
                "planned": json.dumps(plan),
                "knocked": [json.dumps({place: found}) for place, found in self.places.items()],
                "begun": json.dumps(BEGUN),
                "ended": {"pve": json.dumps(ended), "logs": json.dumps({"believed": self.logs_believes})},
                "hypervisor": "pve",
                "checkout": str(ROOT),
                **self.order,
            }
        )
        return result


def row(
    result: dict[str, Any], place: str, address: str | None, protocol: str, port: int | None = None
) -> dict[str, Any]:
    """The first row of that door."""
    wanted = (place, address, protocol, port)
    found: dict[str, Any] = next(
        one for one in result["probes"] if (one["place"], one["address"], one["protocol"], one["port"]) == wanted
    )
    return found


@pytest.mark.parametrize("mode", ["allowlist", "open", "closed", "build"])
def test_as_the_policy_says(mode: str) -> None:
    result = World(mode, MODEL, PACKAGES, WEB, disruptive=True).receipt()
    assert receipt.findings(result) == []
    assert result["as_expected"] is True
    assert result["counts"]["unproven"] == 0
    assert result["mode"] == mode
    assert result["began"] == "1970-01-01T00:16:40.000000Z"
    assert result["time"] > result["began"]
    published = [one for one in result["probes"] if one["place"] == "agent"]
    counted = Counter(one["target"] for one in published)
    assert {name: counted[name] for name in ("LAN", "other lab")} == {"LAN": 12, "other lab": 4}
    assert counted["hypervisor"] == 12
    assert {one["observed"] for one in published if one["target"] in ("hypervisor", "LAN", "other lab")} == {"blocked"}


def test_a_machine_that_is_no_guest_of_the_policy_is_named() -> None:
    with pytest.raises(SystemExit, match="verify: web: no guest of network_guests"):
        planned(guests=["agent", "web"])


def test_where_an_answer_is_expected_it_may_take_longer() -> None:
    machines = planned("allowlist", MODEL)["machines"]
    patient = {
        place["name"]: {door["patient"] for door in place["order"]["doors"]}
        for machine in machines.values()
        for place in machine["places"]
    }
    assert patient["controller"] == patient["hypervisor"] == {True}
    assert patient["agent"] == {True, False}
    agent = machines["agent"]["places"][0]["order"]["doors"]
    assert {door["port"] for door in agent if door["patient"]} == {8088, 53, 443}


def test_the_published_28_are_among_the_defaults() -> None:
    published = [
        (address, kind, port)
        for address in ("10.10.10.1", "192.168.50.2", "10.20.20.1")
        for kind, port in (("tcp", 22), ("tcp", 8006), ("udp", 8006), ("ping", None))
    ]
    for address in ("192.168.50.10", "192.168.50.1"):
        published += [(address, "tcp", port) for port in (22, 80, 445, 8006, 443)] + [(address, "ping", None)]
    published += [("10.20.20.10", "tcp", port) for port in (22, 80, 8088)] + [("10.20.20.10", "ping", None)]
    assert len(published) == 28
    rows = World().receipt()["probes"]
    shut = {
        (one["address"], one["protocol"], one["port"])
        for one in rows
        if (one["place"], one["expected"]) == ("agent", "blocked")
    }
    assert set(published) <= shut


EXPECTED = [
    # mode, guest, door, what the policy says
    ("allowlist", "agent", ("10.10.10.20", "tcp", 8088), "flow"),
    ("closed", "agent", ("10.10.10.20", "tcp", 8088), "flow"),
    ("allowlist", "logs", ("10.10.10.20", "tcp", 8088), "blocked"),
    ("allowlist", "agent", ("10.10.10.20", "udp", 8088), "blocked"),
    ("allowlist", "agent", ("192.0.2.129", "tcp", 443), "flow"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, "model.example"), "flow"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, "other.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.129", "tls", 443, ""), "blocked"),
    ("allowlist", "logs", ("192.0.2.129", "tls", 443, "model.example"), "blocked"),
    ("closed", "agent", ("192.0.2.129", "tls", 443, "model.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.53", "dns", 53, "model.example"), "flow"),
    ("allowlist", "logs", ("192.0.2.53", "dns", 53, "model.example"), "blocked"),
    ("allowlist", "agent", ("192.0.2.130", "tcp", 80), "blocked"),
    ("build", "agent", ("192.0.2.130", "tcp", 80), "flow"),
    ("allowlist", "logs", ("198.51.100.7", "tcp", 443), "flow"),
    ("allowlist", "logs", ("198.51.100.7", "udp", 443), "blocked"),
    ("allowlist", "agent", ("8.8.8.8", "tcp", 443), "blocked"),
    ("open", "agent", ("8.8.8.8", "tcp", 443), "reachable"),
    ("open", "agent", ("8.8.8.8", "ping", None), "reachable"),
    ("open", "agent", ("2001:db8::1", "tcp", 443), "blocked"),
    ("open", "agent", ("192.168.50.10", "tcp", 80), "blocked"),
    ("open", "agent", ("100.64.0.1", "tcp", 443), "blocked"),
    ("open", "agent", ("10.10.10.1", "tcp", 22), "blocked"),
]


@pytest.mark.parametrize(("mode", "guest", "door", "says"), EXPECTED)
def test_what_the_policy_says(mode: str, guest: str, door: tuple[Any, ...], says: str) -> None:
    policy = known(mode, MODEL, PACKAGES, WEB)["policy"]
    who = next(one for one in policy["guests"] if one["name"] == guest)
    expect, one = doors.Expectations(policy, ["192.168.50.2"]), doors.door(*door)
    found = "flow" if expect.flow(who, one) else "reachable" if expect.reachable(who, one) else "blocked"
    assert found == says


@pytest.mark.parametrize("mode", ["open", "build", "allowlist"])
def test_a_sandbox_may_reach_less_than_its_machine(mode: str) -> None:
    """By its unit's own list of addresses; a name is looked up there, and is one of the list's."""
    made = planned(mode, MODEL, PACKAGES, allow=["192.0.2.129", "192.0.2.53", "10.10.10.20"])
    may = {
        (row["target"], row["address"])
        for row in made["rows"]
        if row["place"] == "agent's sandbox" and row["expected"] == "reachable"
    }
    by_name = {("model", "model.example")} if mode == "open" else {("model", "192.0.2.129"), ("resolver", "192.0.2.53")}
    assert may == {("log", "10.10.10.20")} | by_name


def test_the_hypervisors_own_public_address_is_never_the_internet() -> None:
    policy = known("open", MODEL)["policy"]
    expect = doors.Expectations(policy, ["8.8.4.4"])
    assert not expect.reachable(policy["guests"][0], doors.door("8.8.4.4", "tcp", 22))


LAN_DOOR = ("192.168.50.10", "tcp", 80)


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
    found = [one for one in world.receipt()["probes"] if one.get("name") == "other.example" and one["place"] == "agent"]
    assert [one["observed"] for one in found] == [observed]


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
    world.seen = None  # type: ignore[assignment]  # as when the watch did not run


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
    assert found.get("why") == (f"it left by {interface}" if observed == "reachable" else None)


def test_what_the_controls_send_is_no_leak() -> None:
    world = World()
    control = world.door("controller", *LAN_DOOR)
    control["mark"] = world.door("agent", *LAN_DOOR)["mark"]
    world.seen.append(["vmbr0", "out", "tcp", control["source"], control["mark"], LAN_DOOR[0], LAN_DOOR[2]])
    assert row(world.receipt(), "agent", *LAN_DOOR)["observed"] == "blocked"


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


ANSWERED = json.dumps({"session_id": "s1", "status": "answered"})


def found_in_log(whole: bool = True, *names: str) -> str:
    writers = [{"component": name, "frames": 5, "problems": []} for name in names or ("agent", "mcp")]
    return json.dumps({"whole": whole, "writers": writers, "problems": [] if whole else ["no frame has clock 3"]})


@pytest.mark.parametrize(
    ("asked", "found", "said", "problem"),
    [
        (ANSWERED, found_in_log(), "", None),
        (ANSWERED, found_in_log(False), "", "session s1 is not whole in the log: no frame has clock 3"),
        (ANSWERED, found_in_log(True, "agent"), "", "session s1 is not whole in the log"),
        (ANSWERED, "", "glasslab: cannot read the log", "session s1 is not whole in the log: glasslab: cannot read"),
        ("", "", "glasslab: no socket", "the question was not answered: glasslab: no socket"),
        (json.dumps({"status": "log_rejected"}), "", "", "the question was not answered: log_rejected"),
    ],
)
def test_the_question(asked: str, found: str, said: str, problem: str | None) -> None:
    world = World()
    world.order["question"] = {"asked": asked, "found": found, "said": said}
    result = world.receipt()
    assert result["as_expected"] is (problem is None)
    assert problem is None or problem in "\n".join(result["problems"])
    if problem is None:
        assert result["session"] == {
            "id": "s1", "status": "answered", "frames": 10, "writers": {"agent": 5, "mcp": 5}, "whole": True
        }  # fmt: skip


def program(folder: Path, verb: str, order: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(VERIFY / "files" / "receipt.py"), verb, str(folder)]
    return subprocess.run(command, input=json.dumps(order), text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("done", "said", "code"),
    [
        ({"stdout": '{"acknowledged": true, "session_id": "h", "seq": 7}'}, "as expected", 0),
        (
            {"stdout": '{"acknowledged": false, "queued": "x"}', "stderr": ""},
            "the receipt is not in the log: not ackn",
            1,
        ),
        ({"msg": "[Errno 2] No such file"}, "the receipt is not in the log: [Errno 2] No such file: is the witness", 1),
    ],
)
def test_program_writes_shows_and_notes_where_it_is(tmp_path: Path, done: dict[str, Any], said: str, code: int) -> None:
    (tmp_path / "r").mkdir()
    receipt.write(tmp_path / "r", World().receipt())
    told = program(tmp_path / "r", "indexed", done)
    assert told.returncode == code, told.stderr
    assert said in told.stdout
    latest = json.loads((tmp_path / "r" / "latest.json").read_text(encoding="utf-8"))
    assert latest.get("indexed") == ({"session_id": "h", "seq": 7} if code == 0 else None)
    assert latest["as_expected"] is (code == 0)
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "r").glob("2*.json")]
    assert kept == [latest]


def test_program_names_the_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = program(tmp_path / "file", "show", {})
    assert told.returncode == 2
    assert told.stdout.startswith(f"glasslab: the receipt cannot be kept in {tmp_path}/file (")
    assert told.stderr == ""


def test_table_shows_the_agents_rows_and_sums_up_the_others() -> None:
    world = World(disruptive=True)
    world.door("agent", *LAN_DOOR)["answer"] = "open"
    text = isolation_table.table(world.receipt()).splitlines()
    assert text[0].split() == ["from", "target", "probed", "expected", "observed"]
    assert " ".join(text[2].split()) == "agent hypervisor tcp 22 8006, udp 8006, ping blocked 12 blocked"
    assert any(line.split()[:1] == ["LAN"] and line.endswith("blocked    11 blocked") for line in text)
    assert any(line.endswith("blocked    1 reachable  <- differs") for line in text)
    assert [line.split()[1:3] for line in text if line.startswith("logs")] == [["10", "targets"]]
    assert max(len(line) for line in text[2:] if "<-" not in line) <= 100
    assert len(text) <= 32
    assert ": NOT as expected (" in text[-1]


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_table_of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(content, encoding="utf-8")
    command = [sys.executable, str(VERIFY / "files" / "isolation_table.py"), str(path)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "playbooks/verify.yml" in done.stderr


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


@pytest.mark.parametrize(("patient", "seconds"), [(True, 0.9), (False, 0.3)])
def test_a_patient_probe_waits_three_times_as_long(patient: bool, seconds: float) -> None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        door = {**doors.door("127.0.0.1", "udp", mute.getsockname()[1]), "patient": patient}
        began = time.monotonic()
        assert prober.knock(door, 0.3)["answer"] == "silent"
    assert seconds <= time.monotonic() - began < seconds + 0.6


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
