"""The receipt of a lab on two hypervisors: each with its guests and its watch, each beyond the other's walls."""

from __future__ import annotations

import json
from typing import Any

import pytest

import judge
import plan
import receipt
from receiptworld import BEGUN, RULES, SETTINGS, known, row

SECOND = [
    {"name": "agent2", "address": "10.10.10.11", "mac": "02:10:00:00:00:11", "port": "tap201i0"},
    {"name": "logs2", "address": "10.10.10.21", "mac": "02:10:00:00:00:21", "port": "tap202i0"},
]
LOG = {"name": "log", "from": "agent2", "to": "logs2", "protocol": "tcp", "ports": [8088], "why": "-"}
ADDRESSES = {"pve1": "192.168.50.2", "pve2": "192.168.50.3"}
PORTS = {"agent": "tap101i0", "logs": "tap102i0", "agent2": "tap201i0", "logs2": "tap202i0", "LAN": "vmbr0"}
BEYOND = ("192.168.50.3", "10.10.10.11", "10.10.10.21")


class Cluster:
    """What would be seen on both nodes where all is as their policies say; tests change one thing of it."""

    def __init__(self, names: tuple[str, ...] = ("pve1", "pve2"), outside: tuple[dict[str, Any], ...] = ()) -> None:
        policies = {"pve1": known(), "pve2": known(guests=SECOND, flows=[LOG])}
        self.nodes = {
            name: {"known": policies[name], "begun": json.dumps(BEGUN), "address": ADDRESSES[name]} for name in names
        }
        boxes = {"agent's sandbox": {"guest": "agent", "unit": "glasslab-agent.service"}}
        boxes |= {"agent2's sandbox": {"guest": "agent2", "unit": "glasslab-agent.service"}} if len(names) > 1 else {}
        self.found = plan.together(
            {
                "nodes": self.nodes,
                "guests": ["agent", "logs", "agent2", "logs2"][: 2 * len(names)],
                "sandboxes": boxes,
                "controller_command": [],
                "outside": [{"name": "LAN", "command": []}, *outside],
                "ca": None,
                "other_names": ["other.example"],
                "disruptive": False,
                **{name: SETTINGS[f"verify_{name}"] for name in ("targets", "guest_ports", "timeout")},
            }
        )
        self.places: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, list[list[Any]]] = {name: [] for name in names}
        self.rules = {name: dict(RULES) for name in names}
        self.questions: dict[str, Any] = {}
        self.again: dict[str, str] = {}
        for machine, order in self.found["machines"].items():
            self.places[machine] = {place["name"]: self.answers(place) for place in order["places"]}

    def answers(self, place: dict[str, Any]) -> list[dict[str, Any]]:
        """What that place gets, and what the watch of its hypervisor sees of it."""
        name, given = place["name"], []
        node, made = next(
            ((node, made) for node, made in self.found["nodes"].items() if name in made["kinds"]), ("", {"rows": []})
        )
        rows = [one for one in made["rows"] if (one["place"], one["expected"]) == (name, "reachable")]
        reachable = {judge.key(one) for one in rows}
        alive = {judge.key(door) for who, door in made.get("alive", {}).get(name, []) if who == name}
        sources = {guest["name"]: guest["address"] for one in self.nodes.values() for guest in self.guests(one)}
        source = sources.get(name.removesuffix("'s sandbox"), "192.168.50.10")
        for mark, door in enumerate(place["order"]["doors"], 40000):
            is_open = not node or judge.key(door) in reachable | alive
            answer = {"answer": "open" if is_open else "silent", "source": source, "mark": mark, "time": 1000.0}
            given.append({**door, **answer})
            if name in PORTS:
                kind = judge.transport(door["protocol"])
                self.seen[node].append([PORTS[name], "in", kind, source, mark, door["address"], door["port"]])
        return given

    @staticmethod
    def guests(node: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = node["known"]["policy"]["guests"]
        return found

    def door(self, machine: str, place: str, *wanted: Any) -> dict[str, Any]:
        """What a place got at a door, to be changed."""
        doors: list[dict[str, Any]] = self.places[machine][place]
        return next(one for one in doors if judge.key(one) == (*wanted, None))

    def receipt(self) -> dict[str, Any]:
        ended = {name: {"seen": self.seen[name], "rules": self.rules[name], "believed": []} for name in self.nodes}
        nodes = {name: {"policy": node["known"]["policy"], "begun": node["begun"]} for name, node in self.nodes.items()}
        result: dict[str, Any] = receipt.receipt(
            {
                "lab_id": "x",
                "nodes": nodes,
                "planned": json.dumps({"nodes": json.dumps(self.found["nodes"])}),
                "knocked": {machine: json.dumps(places) for machine, places in self.places.items()},
                "again": self.again,
                "ended": {machine: json.dumps(ended.get(machine, {"believed": []})) for machine in self.found["ends"]},
                "questions": self.questions,
                "accepted": [],
                "checkout": ".",
            }
        )
        return result


def test_every_hypervisor_is_in_it() -> None:
    cluster = Cluster()
    result = cluster.receipt()
    assert receipt.findings(result) == []
    assert result["as_expected"] is True
    assert {one["hypervisor"] for one in result["probes"]} == {"pve1", "pve2"}
    assert {name: one["rules"]["check"] for name, one in result["hypervisors"].items()} == {
        "pve1": "as loaded",
        "pve2": "as loaded",
    }
    assert set(cluster.found["machines"]) == {"controller", "pve1", "pve2", "agent", "logs", "agent2", "logs2"}
    assert set(cluster.found["ends"]) == {"pve1", "pve2", "agent", "logs", "agent2", "logs2"}
    places = {one["place"] for one in result["probes"] if one["hypervisor"] == "pve2"}
    assert places == {"agent2", "agent2's sandbox", "logs2"}


def test_the_controls_of_all_hypervisors_may_knock_again_and_nobody_else() -> None:
    made = Cluster(outside=({"name": "internet", "command": ["true"]},)).found
    again = {machine: [place["name"] for place in order["places"]] for machine, order in made["again"].items()}
    assert again == {"controller": ["controller"], "pve1": ["hypervisor"], "pve2": ["hypervisor"]}
    for machine, order in made["again"].items():
        assert order["programs"].keys() >= {"probe"}
        assert order["places"][0]["order"] == made["machines"][machine]["places"][0]["order"], (
            "their doors, all of them"
        )


def test_another_hypervisor_that_knocked_again_counts_too() -> None:
    cluster = Cluster()
    probe = cluster.door("agent", "agent", "192.168.50.3", "tcp", 22)
    for doors in cluster.places["agent"].values():
        for door in doors:
            door["time"] += 25

    def observed() -> str:
        found = [
            one for one in cluster.receipt()["probes"] if one["place"] == "agent" and one["address"] == "192.168.50.3"
        ]
        return str(next(one["observed"] for one in found if one["port"] == probe["port"]))

    assert observed() == "unproven"
    for machine in cluster.found["again"]:
        places = {
            name: [{**door, "time": door["time"] + 50} for door in doors]
            for name, doors in cluster.places[machine].items()
        }
        cluster.again[machine] = json.dumps(places)
    assert observed() == "blocked"


def test_the_other_hypervisor_and_its_guests_are_beyond_the_walls() -> None:
    result = Cluster().receipt()
    tried = [one for one in result["probes"] if one["place"] == "agent" and one["address"] in BEYOND]
    assert {(one["target"], one["protocol"], one["port"]) for one in tried} == {
        *(("hypervisor pve2", *door) for door in (("tcp", 22), ("tcp", 8006), ("ping", None))),
        *((f"{guest} machine", *door) for guest in ("agent2", "logs2") for door in (("tcp", 22), ("ping", None))),
    }
    assert {one["observed"] for one in tried} == {"blocked"}
    # Who shows that somebody is there: the controller, and for a guest the hypervisor that it is on.
    assert row(result, "agent", "192.168.50.3", "tcp", 22)["control"] == {"from": "controller", "answer": "open"}
    assert row(result, "agent", "10.10.10.11", "tcp", 22)["control"] == {"from": "pve2", "answer": "open"}


def test_a_guest_that_reaches_one_of_the_other_hypervisor_is_told() -> None:
    cluster = Cluster()
    cluster.door("agent", "agent", "10.10.10.11", "tcp", 22)["answer"] = "open"
    result = cluster.receipt()
    assert result["as_expected"] is False
    assert [one["target"] for one in result["probes"] if one["observed"] == "reachable" != one["expected"]] == [
        "agent2 machine"
    ]


def test_a_packet_that_leaves_for_the_other_hypervisor_is_told_by_the_own_watch() -> None:
    cluster = Cluster()
    probe = cluster.door("logs2", "logs2", "192.168.50.2", "tcp", 22)
    cluster.seen["pve2"].append(["vmbr0", "out", "tcp", "192.168.50.3", probe["mark"], "192.168.50.2", 22])
    result = cluster.receipt()
    assert row(result, "logs2", "192.168.50.2", "tcp", 22)["why"] == "it left by vmbr0, from 192.168.50.3"


def test_what_is_wrong_with_one_hypervisors_rules_names_it() -> None:
    cluster = Cluster()
    cluster.rules["pve2"]["check"] = "GLASSLAB-INPUT is missing"
    result = cluster.receipt()
    assert result["problems"] == ["pve2: glasslab-network check: GLASSLAB-INPUT is missing"]
    assert result["as_expected"] is False


@pytest.mark.parametrize("silent", ["pve2", "agent2"])
def test_what_one_machine_does_not_say_is_unproven_for_its_hypervisor_alone(silent: str) -> None:
    cluster = Cluster()
    cluster.places[silent] = {}
    if silent == "pve2":
        cluster.seen["pve2"] = []
    result = cluster.receipt()
    unproven = {one["hypervisor"] for one in result["probes"] if one["observed"] == "unproven"}
    # The first one's guests are tried at the doors of the second one's: those need pve2's word.
    assert "pve2" in unproven
    of_the_first = {
        one["target"]
        for one in result["probes"]
        if one["hypervisor"] == "pve1" and one["observed"] == "unproven" and not one["target"].endswith("2 machine")
    }
    assert of_the_first == set()


def test_a_place_outside_tries_the_hypervisor_that_it_names() -> None:
    cluster = Cluster(outside=({"name": "second LAN", "command": [], "hypervisor": "pve2"},))
    where = {(one["hypervisor"], one["place"]) for one in cluster.receipt()["probes"]}
    assert {one for one in where if "LAN" in one[1]} == {("pve1", "LAN"), ("pve2", "second LAN")}


def test_an_address_on_both_bridges_is_the_own_guests() -> None:
    twin = {"known": known(), "begun": json.dumps(BEGUN), "address": "192.168.50.3"}
    found = plan.neighbours("pve1", {"pve1": {**twin, "address": "192.168.50.2"}, "pve2": twin})
    assert [target["name"] for target in found] == ["hypervisor pve2"]


def question(session: str, *, whole: bool = True) -> dict[str, Any]:
    """A question that was answered, and what its log has of it."""
    writers = [{"component": name, "frames": 5, "began": 2000.0, "problems": []} for name in ("agent", "mcp")]
    found = {"whole": whole, "writers": writers, "problems": [] if whole else ["no frame has clock 3"]}
    asked = {"session_id": session, "status": "answered"}
    return {"asked": json.dumps(asked), "found": json.dumps(found), "said": "", "asked_at": 1999.0}


def test_each_hypervisors_agent_is_asked_and_found_in_its_own_log() -> None:
    cluster = Cluster()
    cluster.questions = {"pve1": question("s1"), "pve2": question("s2")}
    result = cluster.receipt()
    assert result["as_expected"] is True
    assert result["session"]["id"] == "s1"
    assert {name: one["session"]["id"] for name, one in result["hypervisors"].items()} == {"pve1": "s1", "pve2": "s2"}


def test_a_session_that_the_second_log_lacks_is_told_with_its_hypervisor() -> None:
    cluster = Cluster()
    cluster.questions = {"pve1": question("s1"), "pve2": question("s2", whole=False)}
    result = cluster.receipt()
    assert result["as_expected"] is False
    assert result["problems"] == ["pve2: the question's session s2 is not whole in the log: no frame has clock 3"]


def test_a_receipt_is_in_every_log_or_the_one_that_lacks_it_is_named() -> None:
    def put(number: int) -> dict[str, Any]:
        return {"stdout": json.dumps({"acknowledged": True, "session_id": f"h{number}", "seq": number})}

    result = Cluster().receipt()
    receipt.indexed(result, {"pve1": put(1), "pve2": put(2)})
    assert result["as_expected"] is True
    assert result["indexed"] == {"session_id": "h1", "seq": 1}
    assert result["hypervisors"]["pve2"]["indexed"] == {"session_id": "h2", "seq": 2}
    result = Cluster().receipt()
    receipt.indexed(result, {"pve1": put(1), "pve2": {"stderr": "no such host"}})
    assert result["as_expected"] is False
    (problem,) = result["problems"]
    assert problem.startswith("pve2: the receipt is not in the log: no such host")


def test_of_one_hypervisor_it_is_what_it_was() -> None:
    result = Cluster(("pve1",)).receipt()
    assert result["as_expected"] is True
    assert "hypervisors" not in result
    assert not any("hypervisor" in one for one in result["probes"])
