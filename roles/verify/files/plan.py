"""Plan a receipt: its rows, and what each machine is to do for them.

Usage: plan.py < JSON {"nodes": {hypervisor: {"known": {"policy": roles/network's network_policy, "declared": its
network_declared}, "begun": what watch.py printed there, "address": where its SSH answers}...}, "targets",
"guest_ports", "other_names", "guests": [name...], "sandboxes": {place: {guest, unit, allow}}, "controller_command":
[words], "outside": [{name, command, routes, hypervisor}...], "timeout", "ca", "system_ca", "disruptive"}. Prints
{"nodes": {hypervisor: {"rows": [...], "kinds": {place: inside, sandbox or outside}, "alive": {place: [[place, door]
...], of which one has to answer for that place to be believed}, "forged": {guest: frames}, "machine_of": {place: the
machine that speaks for it}}...}, "machines": {machine: its order for places.py}, "ends": {machine: its order for
watch.py afterwards}, "again": {machine: its order for the controls alone}}, each order, and `nodes`, as one text.

Each hypervisor has its own policy, watch and rows, and the guests of the others are beyond its walls. In its own plan
it is `hypervisor`; among all machines it has its host's name. The controller is one for all.
"""

import json
import pathlib
import sys

import forged
from doors import Plan, key

CONTROLS = ("controller", "hypervisor")


def plan(order: dict) -> dict:
    """All of it."""
    made = Plan(order)
    guests = {guest["name"]: guest for guest in order["policy"]["guests"]}
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
    known_places = {"controller", "hypervisor", *kinds}
    return {
        "rows": made.rows,
        "kinds": kinds,
        "machines": ordered,
        "machine_of": {place["name"]: machine for machine, its in ordered.items() for place in its["places"]},
        "ends": ends(order),
        "alive": made.alive,
        "forged": frames,
        "elsewhere": {name: list(asked.values()) for name, asked in made.orders.items() if name not in known_places},
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
        probe |= {"system_ca": order.get("system_ca", False)}
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


def neighbours(name: str, nodes: dict[str, dict]) -> list[dict]:
    """The other hypervisors and their guests, as targets of this one's: nothing leads there from its bridge."""
    # An address that is used on both bridges is that of the own guest, who has rows of its own.
    own = {guest["address"] for guest in nodes[name]["known"]["policy"]["guests"]}
    found = []
    for other, node in nodes.items():
        if other == name:
            continue
        host = {"addresses": [node["address"]], "tcp": [22, 8006], "ping": True, "control": "controller"}
        found.append({"name": f"hypervisor {other}", **host})
        for guest in node["known"]["policy"]["guests"]:
            if guest["address"] not in own:
                door = {"addresses": [guest["address"]], "tcp": [22], "ping": True, "control": other}
                found.append({"name": f"{guest['name']} machine", **door})
    return found


def of_node(order: dict, name: str) -> dict:
    """What one hypervisor's plan is made from: its own guests, their sandboxes, and the places outside that try it."""
    nodes = order["nodes"]
    node = nodes[name]
    guests = {guest["name"] for guest in node["known"]["policy"]["guests"]}
    first = next(iter(nodes))
    return {
        **order,
        **node["known"],
        "hypervisor": json.loads(node["begun"]),
        "hypervisor_address": node["address"],
        "guests": [guest for guest in order["guests"] if guest in guests],
        "sandboxes": {place: box for place, box in order["sandboxes"].items() if box["guest"] in guests},
        "outside": [place for place in order["outside"] if place.get("hypervisor", first) == name],
        "targets": [*order["targets"], *neighbours(name, nodes)],
    }


def together(order: dict) -> dict:
    """The plans of all hypervisors. Exits with one line when a guest is none of any policy."""
    nodes = order["nodes"]
    guests = {guest["name"] for node in nodes.values() for guest in node["known"]["policy"]["guests"]}
    used = [*order["guests"], *(box["guest"] for box in order["sandboxes"].values())]
    if missing := [name for name in dict.fromkeys(used) if name not in guests]:
        sys.exit(f"verify: {', '.join(missing)}: no guest of network_guests: add it there, or take it out")
    plans = {name: plan(of_node(order, name)) for name in nodes}
    found: dict = {"nodes": {}, "machines": {}, "ends": {}}
    for name, made in plans.items():
        own, ended = made.pop("machines"), made.pop("ends")
        join(found["machines"].setdefault("controller", {"programs": {}, "places": []}), own.pop("controller"))
        found["machines"] |= {name: own.pop("hypervisor"), **own}
        found["ends"] |= {name: ended.pop("hypervisor"), **ended}
        found["nodes"][name] = made
    for made in plans.values():
        for other, asked in made.pop("elsewhere").items():
            add_doors(found["machines"][other]["places"][0], asked)
    found["again"] = {machine: controls(one) for machine, one in found["machines"].items() if controls(one)["places"]}
    return found


def controls(machine: dict) -> dict:
    """Of a machine's order what knocks as a control: those knock a second time where a place took long."""
    return {**machine, "places": [place for place in machine["places"] if place["name"] in CONTROLS]}


def join(whole: dict, part: dict) -> None:
    """One machine's orders of several plans: the same place knocks on the doors of all of them."""
    whole["programs"] |= part["programs"]
    places = {place["name"]: place for place in whole["places"]}
    for place in part["places"]:
        if place["name"] in places:
            add_doors(places[place["name"]], place["order"]["doors"])
        else:
            whole["places"].append(place)


def add_doors(place: dict, more: list[dict]) -> None:
    """Doors that a place tries as well; each once."""
    known = {key(one) for one in place["order"]["doors"]}
    place["order"]["doors"] += [one for one in more if key(one) not in known]


def main() -> None:
    found = together(json.load(sys.stdin))
    for orders in (found["machines"], found["ends"], found["again"]):
        orders.update({name: json.dumps(one) for name, one in orders.items()})
    print(json.dumps({**found, "nodes": json.dumps(found["nodes"])}))


if __name__ == "__main__":
    main()
