"""Which doors are tried from where, and what the policy says about each.

A row has place, target, address, protocol, port, name, expected (blocked or reachable), `needed` (a flow of the policy:
somebody has to serve there) and controls: [[place, door]...], of which one has to get an answer at the same moment.
Without any it is somewhere that need not exist: then what counts is whether it leaves the hypervisor.
"""

import ipaddress

PUBLISHED = {"tcp": [22, 8006], "udp": [8006], "ping": True}
OTHER_PORTS = [3128, 111, 85]
EVERY_PORT = {"tcp": [*PUBLISHED["tcp"], *OTHER_PORTS], "udp": [8006], "ping": True}
ALL_NODES = "ff02::1"
ALL_NODES_MAC = "33:33:00:00:00:01"


def doors(target: dict) -> list[dict]:
    """The doors of a target: {addresses, tcp, udp, ping, dns}."""
    found = []
    for address in target["addresses"]:
        for protocol in ("tcp", "udp"):
            found += [door(address, protocol, port) for port in target.get(protocol) or []]
        if target.get("dns"):
            found.append(door(address, "dns", 53, target["dns"]))
        if target.get("ping"):
            found.append(door(address, "ping"))
    return found


def door(address: str, protocol: str, port: int | None = None, name: str | None = None) -> dict:
    return {"address": address, "protocol": protocol, "port": port, **({} if name is None else {"name": name})}


def key(one: dict) -> tuple:
    """What makes a door the same door, in orders, answers and rows."""
    return one["address"], one["protocol"], one["port"], one.get("name")


def inside(address: str, ranges: list[str]) -> bool:
    try:
        return any(ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in ranges)
    except ValueError:
        return False  # a name


class Expectations:
    """What the policy says of a door, for a guest."""

    def __init__(self, policy: dict, own: list[str]) -> None:
        self.policy, self.own = policy, own
        self.resolver = policy["resolver"] or {"address": None, "sources": []}

    def flow(self, guest: dict, one: dict) -> bool:
        """Whether a flow of the policy is for this door."""
        address, protocol, port, name = key(one)
        policy, source = self.policy, guest["address"]
        if address == self.resolver["address"] and port == 53 and source in self.resolver["sources"]:
            return protocol != "dns" or name in self.resolver["names"]
        named = [f for f in policy["named"] if (f["source"], f["address"], f["port"]) == (source, address, port)]
        if protocol in ("tcp", "tls") and named:
            return protocol == "tcp" or name in [f["name"] for f in named]
        routed = [f for f in policy["routed"] if f["source"] == source and inside(address, [f["to"]])]
        if any(f["protocol"] == transport(protocol) and port in f["ports"] for f in routed):
            return True
        bridged = [f for f in policy["bridged"] if (f["from"]["name"], f["to"]["address"]) == (guest["name"], address)]
        return protocol == "tcp" and any(port in f["ports"] for f in bridged)

    def reachable(self, guest: dict, one: dict) -> bool:
        """Whether the guest may reach it: by a flow, or because everything is open but what is never the internet."""
        policy, address = self.policy, one["address"]
        never = [*policy["special_ranges"], policy["subnet"]]
        is_open = guest["address"] in policy["open"] and ":" not in address
        return self.flow(guest, one) or (is_open and address not in self.own and not inside(address, never))


def transport(protocol: str) -> str:
    return {"tls": "tcp", "dns": "udp"}.get(protocol, protocol)


class Plan:
    """Rows and orders as they grow."""

    def __init__(self, order: dict) -> None:
        self.order, self.policy, host = order, order["policy"], order["hypervisor"]
        self.own = [address for _, address in host["addresses"]]
        self.expect = Expectations(self.policy, self.own)
        self.rows: list[dict] = []
        self.orders: dict[str, dict[tuple, dict]] = {}
        self.alive: dict[str, list] = {}

    def knock(self, place: str, one: dict, *, patient: bool = True) -> None:
        """An order to a place; patient where an answer is expected, which may take a while on a busy machine."""
        self.orders.setdefault(place, {}).setdefault(key(one), {**one, "patient": patient})

    def allowed(self, place: str, address: str) -> bool:
        """Whether that place's own sandbox lets it speak to an address; names are resolved to what it may."""
        allow = self.order["sandboxes"].get(place, {}).get("allow")
        return not allow or inside(address, allow) or not address[-1:].isdigit()

    def row(self, place: str, target: str, one: dict, controls: list, guest: dict | None, **more) -> None:
        """One row; `guest` is who asks (None: somebody outside, who may reach nothing), `frame` is for the probe."""
        may = guest is not None and self.allowed(place, one["address"])
        reachable = may and self.expect.reachable(guest, one)
        needed = may and self.expect.flow(guest, one)
        self.knock(place, {**one, **more}, patient=reachable)
        for who, other in controls:
            self.knock(who, other)
        needed = needed or (reachable and one.get("name") is not None and one["address"] == one["name"])
        expected = "reachable" if reachable else "blocked"
        base = {"place": place, "target": target, **one, "expected": expected, "needed": needed}
        self.rows.append({**base, "controls": controls})

    def lives(self, place: str, who: str, one: dict) -> None:
        self.knock(who, one)
        self.alive.setdefault(place, []).append([who, one])

    def from_guest(self, place: str, guest: dict, *, boxed: bool) -> None:
        """All rows of a guest, as root there or (boxed) from the sandbox of its service, which sends no ping."""
        self.hypervisor(place, guest, boxed=boxed)
        for target in self.order["targets"]:
            for one in doors(target):
                controls: list = [] if target["control"] == "none" else [[target["control"], one]]
                if not (boxed and one["protocol"] == "ping") and not self.expect.flow(guest, one):
                    self.row(place, target["name"], one, controls, guest)
        for other in self.policy["guests"]:
            if other["name"] != guest["name"]:
                self.guest_doors(place, other, guest, boxed=boxed)
        self.flows(place, guest)
        if not boxed:
            self.lives(place, "hypervisor", door(guest["address"], "tcp", 22))

    def hypervisor(self, place: str, guest: dict, *, boxed: bool) -> None:
        host = self.order["hypervisor"]
        four = [address for address in self.own if ":" not in address]
        six = [address for address in self.own if ":" in address and not address.startswith("fe80")]
        for name, ways in (("hypervisor", PUBLISHED), ("hypervisor, other ports", {"tcp": OTHER_PORTS})):
            for one in doors({"addresses": four, **ways}):
                if not (boxed and one["protocol"] == "ping"):
                    self.row(place, name, one, [["controller", one], ["hypervisor", one]], guest)
        name = "hypervisor, IPv6"
        if boxed:
            for one in doors({"addresses": six, "tcp": [22, 8006]}):
                self.row(place, name, one, [["controller", one], ["hypervisor", one]], guest)
            return
        for one in doors({"addresses": six, **EVERY_PORT}):
            self.row(place, name, one, [["controller", one], ["hypervisor", one]], guest, frame=host["mac"])
        # While IPv6 is off at the bridge, nobody has these two: that it serves there at all is shown at its loopback.
        for one in doors({"addresses": [host["link_local"]], **EVERY_PORT}):
            self.row(place, name, one, [["hypervisor", {**one, "address": "::1"}]], guest, frame=host["mac"])
        one = door(ALL_NODES, "ping")
        self.row(place, name, one, [["hypervisor", door("::1", "ping")]], guest, frame=ALL_NODES_MAC)

    def guest_doors(self, place: str, other: dict, guest: dict | None, *, boxed: bool = False) -> None:
        """Another guest's doors; those of a flow have their own rows."""
        ways = {"tcp": self.order["guest_ports"].get(other["name"], [22]), "ping": not boxed, "udp": [9999]}
        for one in doors({"addresses": [other["address"]], **ways}):
            if guest is None or not self.expect.flow(guest, one):
                self.row(place, f"{other['name']} machine", one, [["hypervisor", one]], guest)

    def flows(self, place: str, guest: dict) -> None:
        """What the policy lets this guest reach, and by name what it does not."""
        policy, resolver = self.policy, self.expect.resolver
        for flow in policy["bridged"]:
            if flow["from"]["name"] == guest["name"]:
                for one in doors({"addresses": [flow["to"]["address"]], "tcp": flow["ports"]}):
                    self.row(place, flow["flow"], one, [["hypervisor", one]], guest)
        for flow in policy["routed"]:
            if flow["source"] == guest["address"] and flow["protocol"] in ("tcp", "udp") and "/" not in flow["to"]:
                for port in flow["ports"]:
                    is_dns = (flow["protocol"], port) == ("udp", 53)
                    name = (self.order["other_names"] or ["localhost"])[0] if is_dns else None
                    one = door(flow["to"], "dns" if is_dns else flow["protocol"], port, name)
                    self.row(place, flow["flow"], one, [["controller", one]], guest)
        if guest["address"] in resolver["sources"]:
            self.resolves(place, guest)
        for flow in policy["named"]:
            if flow["source"] == guest["address"]:
                self.by_name(place, guest, flow)
        self.open_names(place, guest)

    def resolves(self, place: str, guest: dict) -> None:
        """The hypervisor's resolver knows the allowed names, and refuses the others: it has nobody to ask."""
        address, names = self.expect.resolver["address"], self.expect.resolver["names"]
        for one in doors({"addresses": [address], "tcp": [53], "dns": next(iter(names))}):
            self.row(place, "resolver", one, [], guest)
        if self.allowed(place, address):
            for name in self.order["other_names"]:
                if name not in names:
                    self.row(place, "resolver, another name", door(address, "dns", 53, name), [[place, one]], guest)

    def by_name(self, place: str, guest: dict, flow: dict) -> None:
        address, port = flow["address"], flow["port"]
        if port == 80:
            self.row(place, flow["flow"], door(address, "tcp", port), [], guest)
            return
        allowed = door(address, "tls", port, flow["name"])
        self.row(place, flow["flow"], allowed, [], guest)
        if not self.allowed(place, address):
            return
        names = [f["name"] for f in self.policy["named"] if (f["address"], f["port"]) == (address, port)]
        for name in ["", *self.order["other_names"]]:
            if name not in names:
                one = door(address, "tls", port, name)
                self.row(place, f"{flow['flow']}, another name", one, [[place, allowed]], guest)

    def open_names(self, place: str, guest: dict) -> None:
        """In mode open the names are resolved by a real resolver: the guest looks them up itself."""
        if guest["address"] not in self.policy["open"]:
            return
        for flow in self.order["declared"]["flows"]:
            senders = [flow["from"]] if isinstance(flow["from"], str) else flow["from"]
            if guest["name"] in senders and "open" in flow.get("modes", ["open"]):
                for name in flow.get("names", []):
                    for port in flow["ports"]:
                        one = door(name, "tcp", port) if port == 80 else door(name, "tls", port, name)
                        self.row(place, flow["name"], one, [], guest)

    def from_outside(self, place: str) -> None:
        """Nothing enters the lab, and the hypervisor's services are the guests' alone."""
        for guest in self.policy["guests"]:
            self.guest_doors(place, guest, None)
        listening = [service["listen"] for service in self.policy["services"]]
        if self.policy["resolver"]:
            listening.append(self.policy["resolver"]["listen"])
        for one in doors({"addresses": [self.policy["address"]], "tcp": listening}):
            self.row(place, "hypervisor's services", one, [["hypervisor", one]], None)
        self.lives(place, place, door(self.order["hypervisor_address"], "tcp", 22))
