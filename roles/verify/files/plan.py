"""Plan a receipt: its rows, and what each machine is to do for them.

Usage: plan.py < JSON {"known": {"policy": roles/network's network_policy, "declared": its network_declared}, "begun":
what watch.py printed, "hypervisor_address": where its SSH answers, "targets", "guest_ports", "other_names", "guests":
[name...], "sandboxes": {place: {guest, unit, allow}}, "controller_command": [words], "outside": [{name, command,
routes}...], "timeout", "ca", "disruptive"}. Prints {"rows": [...], "kinds": {place: inside, sandbox or outside},
"machines": {machine: its order for places.py}, "ends": {machine: its order for watch.py afterwards}, "alive": {place:
[[place, door]...], of which one has to answer for that place to be believed}, "forged": {guest: frames}, "machine_of":
{place: the machine that speaks for it}}, each order, and each of the others, as one text.
"""

import json
import pathlib
import sys

import forged
from doors import Plan


def plan(order: dict) -> dict:
    """All of it."""
    made = Plan(order)
    guests = {guest["name"]: guest for guest in order["policy"]["guests"]}
    used = [*order["guests"], *(box["guest"] for box in order["sandboxes"].values())]
    if missing := [name for name in used if name not in guests]:
        sys.exit(
            f"verify: {', '.join(dict.fromkeys(missing))}: no guest of network_guests: add it there, or take it out"
        )
    frames = {}
    for name in order["guests"]:
        made.from_guest(name, guests[name], boxed=False)
    for place, box in order["sandboxes"].items():
        made.from_guest(place, guests[box["guest"]], boxed=True)
        if order["disruptive"]:
            frames.setdefault(box["guest"], forged.frames(order, guests[box["guest"]]))
    for place in order["outside"]:
        made.from_outside(place["name"])
    kinds = dict.fromkeys(order["guests"], "inside") | dict.fromkeys(order["sandboxes"], "sandbox")
    kinds |= {place["name"]: "outside" for place in order["outside"]}
    ordered = machines(order, made, frames)
    return {
        "rows": made.rows,
        "kinds": kinds,
        "machines": ordered,
        "machine_of": {place["name"]: machine for machine, its in ordered.items() for place in its["places"]},
        "ends": ends(order),
        "alive": made.alive,
        "forged": frames,
    }


def ends(order: dict) -> dict[str, dict]:
    """Afterwards: what the watch saw, and what each machine believes of its neighbours."""
    host, policy = order["hypervisor"], order["policy"]
    macs = {guest["address"]: guest["mac"] for guest in policy["guests"]}
    found = {"hypervisor": {"verb": "end", "bridge": policy["bridge"], "watch": host["watch"], "neighbours": macs}}
    macs = {**macs, policy["address"]: host["mac"]}
    return found | {name: {"verb": "believed", "bridge": "default", "neighbours": macs} for name in order["guests"]}


def machines(order: dict, made: Plan, frames: dict) -> dict[str, dict]:
    """What runs on which machine: its own probes, those of its sandboxes or of the places it can enter, and forging."""

    def knocking(place: str, **more) -> dict:
        doors_of_it = list(made.orders.get(place, {}).values())
        probe = {"timeout": order["timeout"], "ca": order["ca"], "doors": doors_of_it}
        return {"name": place, "program": "probe", "order": probe, **more}

    found = {name: [knocking(name)] for name in [*order["guests"], "hypervisor"]}
    found["controller"] = [knocking("controller", command=order["controller_command"])]
    for place, box in order["sandboxes"].items():
        found[box["guest"]].append(knocking(place, unit=box["unit"]))
    for place in order["outside"]:
        if place.get("command") is not None:
            found["controller"].append(knocking(place["name"], command=place["command"], routes=place.get("routes")))
    for name, ones in frames.items():
        sending = [{"tag": one["tag"], "layers": one["layers"]} for one in ones]
        forging = {"interface": "default", "frames": sending}
        found[name].append({"name": f"{name}, forging", "program": "attacks", "order": forging, "last": True})
    return {name: {"programs": programs(places), "places": places} for name, places in found.items()}


def programs(places: list[dict]) -> dict[str, str]:
    """The text of each program that is to run."""
    here = pathlib.Path(__file__).parent
    return {name: (here / f"{name}.py").read_text(encoding="utf-8") for name in {one["program"] for one in places}}


def main() -> None:
    order = json.load(sys.stdin)
    found = plan({**order, **order["known"], "hypervisor": json.loads(order["begun"])})
    for orders in (found["machines"], found["ends"]):
        orders.update({name: json.dumps(one) for name, one in orders.items()})
    print(json.dumps({name: one if name in ("machines", "ends") else json.dumps(one) for name, one in found.items()}))


if __name__ == "__main__":
    main()
