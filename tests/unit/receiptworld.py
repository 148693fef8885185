"""What the tests of the receipt share: a policy, its plan, and a world in which all is as the policy says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

import judge
import plan
import receipt
from glasslab_policy import network_policy

ROOT = Path(__file__).resolve().parents[2]
VERIFY, NETWORK = ROOT / "roles" / "verify", ROOT / "roles" / "network"
SETTINGS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))
ADDRESSES = [["vmbr0", "192.168.50.2"], ["vmbr1", "10.10.10.1"], ["vmbr2", "10.20.20.1"], ["vmbr0", "fd50::2"]]
MAC = "fe:10:00:00:00:10"
RULES = {"mode": "allowlist", "check": "as loaded", "files": "f", "kernel": "k"}
BEGUN = {"addresses": ADDRESSES, "mac": MAC, "link_local": "fe80::1", "rules": RULES, "versions": {}, "watch": {}}
MODEL = {"name": "model", "from": "agent", "names": ["model.example"], "protocol": "tcp", "ports": [443], "why": "-"}
PACKAGES = {**MODEL, "name": "packages", "names": ["deb.example"], "ports": [80], "modes": ["build"]}
LAN_DOOR = ("192.168.50.10", "tcp", 80)
WEB = {"name": "web", "from": "logs", "to": "198.51.100.7", "protocol": "tcp", "ports": [443], "why": "-"}


def known(mode: str = "allowlist", *flows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A policy: the role's defaults with the given flows beside the log's, as the role's filter works it out."""
    defaults = yaml.safe_load((NETWORK / "defaults" / "main.yml").read_text(encoding="utf-8"))
    declared = {name.removeprefix("network_"): value for name, value in defaults.items()}
    declared |= {"mode": mode, "flows": [*declared["flows"], *copy.deepcopy(flows)], **more}
    return {"declared": declared, "policy": network_policy(declared)}


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
        self.seen: list[list[Any]] | None = []
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
        self.logs_believes: Any = []
        self.overheard: dict[str, str] = {}  # what a machine prints in the place of that
        self.order: dict[str, Any] = {"questions": {}, "accepted": []}

    def alive(self, place: str) -> Any:
        return next((judge.key(door) for who, door in self.plan["alive"].get(place, []) if who == place), None)

    def door(self, place: str, address: str, protocol: str, port: int | None = None, name: str | None = None) -> Any:
        """What a place got at a door, to be changed."""
        wanted = (address, protocol, port, name)
        return next(door for door in self.places[place] if judge.key(door) == wanted)

    def said(self) -> dict[str, dict[str, Any]]:
        """What each machine printed about its places."""
        found: dict[str, dict[str, Any]] = {}
        for place, answers in self.places.items():
            found.setdefault(self.plan["machine_of"].get(place, place), {})[place] = answers
        return found

    def receipt(self) -> dict[str, Any]:
        ended = {**self.ended, "seen": self.seen, "tags": self.tags}
        hosts = {"hypervisor": "pve"}
        said = {hosts.get(machine, machine): json.dumps(places) for machine, places in self.said().items()}
        result: dict[str, Any] = receipt.receipt(
            {
                "lab_id": "x",
                "nodes": {"pve": {"policy": self.known["policy"], "begun": json.dumps(BEGUN)}},
                "planned": json.dumps({"nodes": json.dumps({"pve": self.plan})}),
                "knocked": {**said, **self.overheard},
                "ended": {"pve": json.dumps(ended), "logs": json.dumps({"believed": self.logs_believes})},
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
