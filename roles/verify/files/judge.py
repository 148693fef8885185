"""What counts as blocked, reachable and unproven: pure functions over what the probes and the watch saw."""

from __future__ import annotations

from typing import Any

from doors import key, transport

Row = dict[str, Any]
# A closed port that answers was reached, and so was a server with another certificate.
REACHED = ("open", "refused", "foreign")
# The packet was sent and nothing of use came back.
HELD = ("silent", "cut")
# Seconds: a target that answered its control longer ago, and not again, may have been down at the knock.
MOMENT = 10.0
# Seconds: answers further apart leave room for it to have been down in between, whatever came before and after. As
# long as the watch on the hypervisor lasts; from a sandbox nothing comes there, so it says nothing of those.
SPAN = 60.0


def by_door(knocked: dict[str, Any]) -> dict[str, dict[Any, Row]]:
    """Of each place that could knock its doors, with what they answered."""
    return {place: {key(door): door for door in found} for place, found in knocked.items() if isinstance(found, list)}


class Evidence:
    """What was seen: by the probes of each place, and by the watch on the hypervisor.

    `knocked` is {place: doors with answers, or {"error": why there are none}}; `seen` what watch.py printed (None: it
    did not watch), `own` the hypervisor's own connections; `bridge` the lab's; `entries` each guest's ports by its
    address; `again` what the controls got who knocked a second time, after all the others.
    """

    def __init__(
        self,
        knocked: dict[str, Any],
        seen: list[list[Any]] | None,
        own: list[list[Any]],
        bridge: str,
        entries: dict[str, list[str]],
        again: dict[str, Any] | None = None,
    ):
        self.failed = {place: found["error"] for place, found in knocked.items() if "error" in found}
        self.doors = by_door(knocked)
        self.again = by_door(again or {})
        self.seen, self.bridge, self.entries = seen, bridge, entries
        self.ports = {port for ports in entries.values() for port in ports}
        # What the controls sent themselves is no leak, and neither is what the hypervisor sends over a connection of
        # its own (Ansible's to a guest): ports are drawn from a few thousand, so its port is a probe's now and then.
        # No probe hides behind that: the kernel gives a translated packet no tuple that a connection of its own has.
        self.others = {
            (transport(door["protocol"]), door["source"], door["mark"], door["address"])
            for doors in (self.doors, self.again)
            for place in ("controller", "hypervisor")
            for door in doors.get(place, {}).values()
        } | {(protocol, source, port, target) for protocol, source, port, target, _ in own}

    def get(self, place: str, door: Row) -> Row | None:
        """What that place got at that door."""
        return self.doors.get(place, {}).get(key(door))

    def attended(self, place: str, door: Row, moment: float) -> float:
        """How many seconds off a control was answered; 0 when it was before that moment and, soon, after it again."""
        knocks = [one for one in (self.get(place, door), self.again.get(place, {}).get(key(door))) if one]
        times = [one["time"] for one in knocks if one["answer"] in REACHED]
        if min(times) <= moment <= max(times) <= min(times) + SPAN:
            return 0.0
        return float(min(abs(time - moment) for time in times))

    def sightings(self, probe: Row, *, by_any: bool = False) -> list[tuple[str, str, str]]:
        """[interface, in or out, source] of packets to the probe's door by its own port or echo identifier.

        `by_any`: by any, for translation may change it; and questions for where the door's address is.
        """
        kind, mark = transport(probe["protocol"]), probe["mark"]
        doors = [(kind, probe["address"], probe["port"]), *([("arp", probe["address"], None)] * by_any)]
        return [
            (interface, way, source)
            for interface, way, protocol, source, own, target, port in self.seen or []
            if (protocol, target, port) in doors
            and (by_any or own == mark)
            and (protocol, source, own, target) not in self.others
            # A guest's own traffic that happens to have the port of another place's probe.
            and (source == probe["source"] or source not in self.entries)
        ]

    def came(self, probe: Row, *, outside: bool) -> bool:
        """Whether the probe came to the hypervisor: at its sender's port, or (outside) from beyond the lab."""
        source = probe["source"]
        if outside:
            lab = {self.bridge, *self.ports}
            return any(way == "in" and port not in lab and source == who for port, way, who in self.sightings(probe))
        ports = self.entries.get(source, [])
        if any(way == "in" and port in ports for port, way, _ in self.sightings(probe)):
            return True
        # Over IPv6 the sender's address is made up; of a neighbour on the link, the question for it is all that comes.
        if ":" in probe["address"]:
            return any(way == "in" and port in self.ports for port, way, _ in self.sightings(probe))
        question = ("in", "arp", source, probe["address"])
        return any((way, kind, who, to) == question for _, way, kind, who, _, to, _ in self.seen or [])

    def left(self, probe: Row, *, outside: bool, by_any: bool = False) -> str:
        """By which interface the probe went on from the hypervisor, and under whose address; empty when by none.

        `by_any`: nobody else has any business at that door.
        """
        own = set() if outside else {self.bridge, *self.entries.get(probe["source"], [])}
        for interface, way, source in self.sightings(probe, by_any=by_any):
            if way == "out" and interface not in own and not interface.startswith(("fwln", "fwbr")):
                return f"{interface}, from {source}"
        return ""

    def alive(self, place: str, doors: list[Any], rows: list[Row]) -> bool:
        """Whether anything at all came back to that place, or out of it, at that moment."""
        needed = [self.get(place, row) for row in rows if row["place"] == place and row["needed"]]
        others = [self.get(who, door) for who, door in doors]
        return any(one is not None and one["answer"] in REACHED for one in [*needed, *others])


def control(row: Row, probe: Row, evidence: Evidence) -> tuple[Row | None, str]:
    """The control that shows that somebody is there, and why it does not."""
    best, why = None, "its control did not knock"
    for place, door in row["controls"]:
        found = evidence.get(place, door)
        if found is None:
            continue
        best = best or {"from": place, "answer": found["answer"]}
        if found["answer"] not in REACHED:
            why = "the target did not answer its control either"
        elif (apart := evidence.attended(place, door, probe["time"])) > MOMENT:
            why = f"its control knocked {apart:.0f} s apart: look at the clocks, and take the receipt again"
        else:
            return {"from": place, "answer": found["answer"]}, ""
    return best, why


def doubt(row: Row, probe: Row, evidence: Evidence, alive: bool, why: str) -> str:
    """Why silence proves nothing; empty when it does. `why` is what is wrong with the control."""
    outside = row["kind"] == "outside"
    if row["controls"] and why:
        return why
    if not alive:
        return f"nothing at all got through for {row['place']}"
    if row["kind"] == "sandbox":
        return ""  # what this sandbox holds back never leaves the machine
    if evidence.seen is None:
        return "nobody watched at the hypervisor"
    if not evidence.came(probe, outside=outside):
        return "the probe never came to the hypervisor"
    return ""


def verdict(row: Row, probe: Row, evidence: Evidence, alive: bool, why: str) -> tuple[str, str]:
    """blocked, reachable or unproven, and for the last one why."""
    answer = probe["answer"]
    if answer == "open":
        return "reachable", ""
    if answer in REACHED:
        # It arrived, so nothing blocked it; but a flow that is needed is not proven by a port where nobody serves.
        if not row["needed"]:
            return "reachable", ""
        return "unproven", "nobody serves there" if answer == "refused" else "its certificate does not hold"
    if answer == "denied" and row["kind"] == "sandbox":
        return ("blocked", "") if alive else ("unproven", f"nothing at all got through for {row['place']}")
    if answer not in HELD:
        return "unproven", "the probe could not be made"
    if gone := evidence.left(probe, outside=row["kind"] == "outside", by_any=row["nobodys"]):
        return "reachable", f"it left by {gone}"
    found = doubt(row, probe, evidence, alive, why)
    return ("unproven" if found else "blocked"), found


def knocks_at(row: Row) -> tuple[str, str, Any]:
    """Where a row's probe knocks, as packets show it."""
    return transport(row["protocol"]), row["address"], row["port"]


def judge(plan: dict[str, Any], evidence: Evidence, kinds: dict[str, str]) -> list[Row]:
    """The plan's rows with what was seen and the verdict on each. `kinds`: inside, sandbox or outside, by place."""
    rows = plan["rows"]
    alive = {place: evidence.alive(place, plan["alive"].get(place, []), rows) for place in kinds}
    # Where a flow is allowed to, the hypervisor's proxy goes too, under a port of its own.
    allowed = {knocks_at(row) for row in rows if row["expected"] != "blocked"}
    judged = []
    for row in rows:
        row = {**row, "kind": kinds[row["place"]], "nobodys": not row["controls"] and knocks_at(row) not in allowed}
        probe = evidence.get(row["place"], row)
        shown = {k: row[k] for k in ("place", "target", "address", "protocol", "port", "name", "expected") if k in row}
        if probe is None:
            nobody = "nobody knocked from there"
            nobody += ": verify_outside has no command for that place" if row["kind"] == "outside" else ""
            why = evidence.failed.get(row["place"], nobody)
            judged.append({**shown, "observed": "unproven", "why": why, "answer": None, "control": None})
            continue
        best, wrong = control(row, probe, evidence)
        observed, why = verdict(row, probe, evidence, alive[row["place"]], wrong)
        judged.append(
            {
                **shown,
                "observed": observed,
                **({"why": why} if why else {}),
                "answer": probe["answer"],
                "control": best,
            }
        )
    return judged
