"""Carries out rows of attackrows.py on the lab under test: all at once, each with its positive controls.

`observe(ROWS)` sends every row's frames in one batch while every place watches, and says of each row

    reachable   seen where it must not be (or may, by design)
    blocked     not seen, although this very frame came in at the hypervisor's port, that place's watch saw a control
                frame of the same batch, and the sender's own allowed traffic got through
    unproven    not seen, and one of those is missing: that a dead network is silent proves nothing

The processes at the places stay from one call to the next; `close()` ends them, and so does the end of the program.
"""

from __future__ import annotations

import atexit
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from attackrows import Row
from forging import AGENT, AGENT6, GATEWAY, HELD, INTERNET, LAN, LOGS, OTHER, Layers, arp, echo, tcp, udp
from outposts import Outposts

Report = dict[str, Any]
INTERFACES = {"lan": "brlan"}  # the others' is eth0
PORTS = {"agent": "tap101i0", "logs": "tap102i0", "lan": "eno1", "internet": "eno1", "otherlab": "tap201i0"}
LINKS = {
    "gateway": ("pve", "vmbr1"),
    "pve-lan": ("pve", "vmbr0"),
    "pve-other": ("pve", "vmbr2"),
    "agent": ("agent", "eth0"),
    "logs": ("logs", "eth0"),
    "otherlab": ("otherlab", "eth0"),
    "lan": ("lan", "brlan"),
    "router": ("lan", "internet0"),
}
SETTLE = 0.1  # seconds for what is on its way; the way is inside one kernel
# Where the agent's held connection goes, by mode. Other modes have none.
HELD_TO = {"allowlist": ("203.0.113.10", 443), "build": ("203.0.113.10", 443), "open": (INTERNET, 80)}


def _from_pve(name: str, interface: str, frame: Layers, *seen: str) -> Row:
    return Row(f"C {name}", f"control: pve to {name}", f"pve/{interface}", (frame,), seen)


CONTROLS = (
    Row(
        "C agent flow",
        "control: the agent's flow to the log",
        "agent",
        (tcp(LOGS, 8088, to="@logs"),),
        ("logs", "reply"),
    ),
    *(
        Row(
            f"C {name} arp",
            f"control: {name} asks for the gateway",
            name,
            (arp(GATEWAY, claims=address),),
            ("pve:vmbr1", "reply"),
        )
        for name, address in (("agent", AGENT), ("logs", LOGS))
    ),
    Row(
        "C lan ping",
        "control: LAN to pve",
        "lan",
        (echo("192.168.50.2", source=LAN, to="@pve-lan"),),
        ("pve:accepted", "reply"),
    ),
    Row(
        "C otherlab ping",
        "control: other lab to pve",
        "otherlab",
        (echo("10.20.20.1", source=OTHER, to="@pve-other"),),
        ("reply",),
    ),
    Row(
        "C internet ping",
        "control: internet to pve",
        "internet",
        (echo("192.168.50.2", source=INTERNET, to="@router"),),
        ("reply",),
    ),
    _from_pve("agent", "vmbr1", udp(AGENT, source=GATEWAY, to="@agent"), "agent"),
    _from_pve("logs", "vmbr1", udp(LOGS, source=GATEWAY, to="@logs"), "logs", "logs:accepted"),
    _from_pve("lan", "vmbr0", udp(LAN, source="192.168.50.2", to="@lan"), "lan"),
    _from_pve("internet", "vmbr0", udp(INTERNET, source="192.168.50.2", to="@lan"), "internet"),
    _from_pve("otherlab", "vmbr2", udp(OTHER, source="10.20.20.1", to="@otherlab"), "otherlab"),
)
# What a sender needs, and what a place to be seen at, before silence counts as blocked.
SENDERS = {
    "agent": ("C agent flow", "C agent arp"),
    "logs": ("C logs arp",),
    "lan": ("C lan ping",),
    "otherlab": ("C otherlab ping",),
    "internet": ("C internet ping",),
    "pve/vmbr1": ("C agent", "C logs"),
}
LOOPBACK = {"C pve IPv4": "127.0.0.1", "C pve IPv6": "::1"}
SINKS = {name: (f"C {name}",) for name in ("agent", "logs", "lan", "internet", "otherlab")} | {
    "logs:accepted": ("C logs",),
    "pve:accepted": tuple(LOOPBACK),
    **{f"pve:{what}": ("C agent arp",) for what in ("vmbr1", "route", "fdb", "neighbour")},
    **{f"logs:{what}": ("C logs",) for what in ("route", "neighbour")},
    "reply": (),
}


@dataclass(frozen=True)
class Observation:
    """What became of a row: the verdict, where it was seen (with the source it came under), and why it is unproven."""

    verdict: str
    seen: tuple[str, ...] = ()
    why: str = ""


OUTPOSTS = Outposts()
atexit.register(OUTPOSTS.close)
_batches = itertools.count(int(time.time()) % 0x1000 * 16)


def close() -> None:
    """End the processes at the places."""
    OUTPOSTS.close()


class Batch:
    """One sending of rows: their tags and ports, and what came of them."""

    def __init__(self, rows: Iterable[Row], links: dict[str, dict[str, str]]) -> None:
        self.number = next(_batches) & 0xFFFF
        self.rows = [*CONTROLS, *rows]
        self.macs = {name: links[place][interface] for name, (place, interface) in LINKS.items()}
        self.words: dict[str, Any] = {f"@{name}": mac for name, mac in self.macs.items()}
        self.words |= {f"@{name}6": link_local(self.macs[name]) for name in ("gateway", "logs")}
        self.tags: dict[str, list[str]] = {}
        self.ports: dict[str, int] = {}
        counter = itertools.count(1)
        for position, row in enumerate(self.rows):
            assert row.id not in self.tags, f"two rows are called {row.id}"
            self.tags[row.id] = [f"{self.number:04x}{next(counter):04x}" for _ in row.frames]
            self.ports[row.id] = 10000 + (self.number * 499 + position) % 20000
        self.loopback = {name: f"{self.number:04x}{next(counter):04x}" for name in LOOPBACK}
        self.reports: dict[str, Report] = {}
        self.unsent: dict[str, str] = {}
        self.held: list[str] = []

    def orders(self, *, last: bool) -> dict[str, dict[str, Any]]:
        """What each place has to send."""
        frames: dict[str, list[dict[str, Any]]] = {}
        for row in (row for row in self.rows if row.last == last):
            place, _, interface = row.sender.partition("/")
            for tag, layers in zip(self.tags[row.id], row.frames, strict=True):
                filled = self.fill(layers, self.ports[row.id])
                way = {"interface": interface or INTERFACES.get(place, "eth0")}
                frames.setdefault(place, []).append({"tag": tag, "layers": filled, **way})
        found = {place: {"verb": "send", "frames": ones} for place, ones in frames.items()}
        if not last:
            found["pve"]["datagrams"] = [[LOOPBACK[name], 9, tag] for name, tag in self.loopback.items()]
        return found

    def fill(self, value: Any, port: int) -> Any:
        """A frame with its names and its port put in."""
        if isinstance(value, dict):
            return {key: self.fill(one, port) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.fill(one, port) for one in value]
        if value == "@stranger":  # a MAC that nobody has and no earlier batch had
            return f"02:66:{self.number >> 8:02x}:{self.number & 255:02x}:{port >> 8:02x}:{port & 255:02x}"
        return port if value == "@port" else self.words.get(value, value) if isinstance(value, str) else value

    def marked(self, row: Row) -> set[str]:
        """The tags of a row whose arrival says something."""
        return {tag for position, tag in enumerate(self.tags[row.id]) if position not in row.unmarked}

    def sightings(self, place: str, how: str, tags: set[str]) -> list[list[str]]:
        """Where a place saw one of the tags."""
        return [one for one in self.reports[place]["sightings"] if one[0] in tags and one[1] == how]

    def seen_at(self, row: Row, where: str) -> str:
        """How a row was seen there; empty when it was not."""
        place, _, what = where.partition(":")
        sender = row.sender.partition("/")[0]
        if where == "reply":
            return self.reply(row, self.reports[sender])
        report = self.reports[place]
        if what == "route":
            return next((f"{where} {one}" for one, gateway in report["default_routes6"] if gateway == AGENT6), "")
        if what == "neighbour":
            believed = report["neighbours"].get(LOGS if place == "pve" else GATEWAY)
            return f"{where} {believed}" if believed == self.macs["agent"] else ""
        if what == "fdb":
            forged = [self.fill(layers[0][1]["src"], self.ports[row.id]) for layers in row.frames]
            return next((f"{where} {mac}" for mac in forged if report["fdb"].get(mac) == PORTS[sender]), "")
        found = self.sightings(place, "accepted" if what == "accepted" else "wire", self.marked(row))
        if what not in ("", "accepted"):
            found = [one for one in found if one[2] == what]
        return f"{where} from {found[0][3]}" if found else ""

    def reply(self, row: Row, report: Report) -> str:
        """The answer that a sender has."""
        for source, _, own, state, *_ in report["answers"]:
            if own == self.ports[row.id]:
                return f"reply {state} from {source}"
        asked = {layers[1][1]["tpa"] for layers in row.frames if layers[1][0] == "arp" and layers[1][1]["op"] == 1}
        for address, mac in report["arp"]:
            if address in asked:
                return f"reply {mac} for {address}"
        back = [one for one in report["sightings"] if one[0] in self.marked(row) and one[1] == "wire"]
        return f"reply from {back[0][3]}" if back else ""

    def judge(self) -> dict[str, Observation]:
        """What became of each row."""
        seen = {row.id: tuple(filter(None, (self.seen_at(row, where) for where in row.seen))) for row in self.rows}
        working = {row.id for row in CONTROLS if len(seen[row.id]) == len(row.seen)}
        working |= {name for name, tag in self.loopback.items() if self.sightings("pve", "accepted", {tag})}
        at_port = {(tag, interface) for tag, how, interface, *_ in self.reports["pve"]["sightings"] if how == "wire"}
        found = {}
        for row in self.rows[len(CONTROLS) :]:
            needed = [*SENDERS[row.sender], *itertools.chain.from_iterable(SINKS[where] for where in row.seen)]
            port = PORTS.get(row.sender)  # none where the hypervisor itself is the sender
            lost = [tag for tag in self.tags[row.id] if (tag, port) not in at_port] if port else []
            why = [f"without {name}" for name in needed if name not in working]
            why += [self.unsent.get(tag, f"a frame did not come to {port}") for tag in lost]
            why += [self.unsent[tag] for tag in self.tags[row.id] if not port and tag in self.unsent]
            why += self.held if row.connection else []
            verdict = "reachable" if seen[row.id] else "unproven" if why else "blocked"
            found[row.id] = Observation(verdict, seen[row.id], "; ".join(why))
        return found


def link_local(mac: str) -> str:
    """The address that an interface gives itself."""
    part = [int(one, 16) for one in mac.split(":")]
    return f"fe80::{part[0] ^ 2:02x}{part[1]:02x}:{part[2]:02x}ff:fe{part[3]:02x}:{part[4]:02x}{part[5]:02x}"


def repair(batch: Batch) -> None:
    """What forged frames taught the machines is unlearnt; the bridge learns from the logs machine where it is."""
    frame = {"tag": f"{batch.number:04x}ffff", "layers": batch.fill(arp(GATEWAY, claims=LOGS), 0), "interface": "eth0"}
    taught = {"pve": "vmbr1", "logs": "eth0", "agent": "eth0"}
    OUTPOSTS.ask({place: {"verb": "forget", "interface": interface} for place, interface in taught.items()})
    OUTPOSTS.ask({"logs": {"verb": "send", "frames": [frame]}})


def connect(batch: Batch, to: tuple[str, int]) -> None:
    """Let the agent hold a connection to the outside, for the rows that aim at it."""
    stands = OUTPOSTS.ask({"agent": {"verb": "connect", "to": to, "port": HELD}})["agent"]
    answers = OUTPOSTS.ask({"agent": {"verb": "report"}})["agent"]["answers"]
    numbers = [(number, acked) for _, _, own, state, number, acked in answers if (own, state) == (HELD, "open")]
    batch.held = [] if stands and numbers else [f"without the agent's connection to {to[0]}"]
    theirs, ours = numbers[0] if numbers else (0, 0)
    # Far above the window, for conntrack takes what is below it for late duplicates.
    batch.words |= {"@next": theirs + 1 & 0xFFFFFFFF, "@acked": ours, "@beyond": theirs + (1 << 30) & 0xFFFFFFFF}


def carry_out(rows: Iterable[Row], mode: str = "allowlist") -> Batch:
    """Send the rows of a mode in one batch, and collect what every place saw."""
    rows = [row for row in rows if mode in HELD_TO or not row.connection]
    OUTPOSTS.start()
    batch = Batch(rows, OUTPOSTS.ask_all("watch"))
    if any(row.connection for row in rows):
        connect(batch, HELD_TO[mode])
    for last in (False, True):
        for done in OUTPOSTS.ask(batch.orders(last=last)).values():
            batch.unsent |= done["failed"]
        time.sleep(SETTLE)
    batch.reports = OUTPOSTS.ask_all("report")
    repair(batch)
    return batch


def observe(rows: Iterable[Row], mode: str = "allowlist") -> dict[str, Observation]:
    """Send the rows in one batch and say what became of each, by the row's id.

    Rows that need a connection of the agent to the outside are left out where the mode has none.
    """
    return carry_out(rows, mode).judge()
