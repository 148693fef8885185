"""What differs between the walls that were loaded and those that stand, how it is put right, and the record of it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import pathlib
import re
import sys
from typing import Any

from . import ports, routes, tables
from .kernel import Failure, set_sysctl, sysctl
from .settings import Settings
from .state import AWAY, FORMER, LINKS, Record, forget, state, store

LOG = pathlib.Path("/var/log/glasslab/drift.json")
LOG_BYTES = 1 << 20  # then it becomes drift.json.1; a reader has both
FORWARD = "net/ipv4/ip_forward"
BY_FORWARD = ("/forwarding", "conf/all/accept_redirects")  # what the kernel sets with it
ROOT = pathlib.Path("/")
ROUTING = ("etc/network/interfaces", "etc/network/interfaces.d/*", "etc/sysctl.conf", "etc/sysctl.d/*.conf")
ASKED = re.compile(
    r"^[ \t]*(?:[^#;\s].*?(?:\b1\b.*\bip_forward\b|\bip_forward\s*=\s*1\b)|ip-forward\s+(?:on|yes|1)\b)", re.MULTILINE
)


@dataclasses.dataclass
class Drift:
    """What differs, layer by layer, in words."""

    routes: list[str] = dataclasses.field(default_factory=list)
    rules: dict[tables.Place, list[str]] = dataclasses.field(default_factory=dict)  # by the table that puts it right
    settings: list[str] = dataclasses.field(default_factory=list)
    links: list[str] = dataclasses.field(default_factory=list)
    fresh: list[str] = dataclasses.field(default_factory=list)  # of an interface that has just come: no drift yet
    listing: tables.Listing | None = None

    @property
    def drifted(self) -> list[str]:
        """What has been otherwise."""
        rules = [words for found in self.rules.values() for words in found]
        return [*self.routes, *rules, *self.settings, *self.links]

    @property
    def found(self) -> list[str]:
        """All that has to be put right."""
        return [*self.drifted, *self.fresh]


def rules(record: Record, config: Settings) -> tuple[dict[tables.Place, list[str]], tables.Listing]:
    """What of the packet rules is not as it was loaded, by the table that puts it right."""
    listing = tables.look()
    found = {place: [words] for place, words in tables.changed(record["kernel"], tables.ours(listing))}
    others = tables.gaps(record["texts"], listing, config.bridge, config.ports)
    others += tables.misplaced(listing) + tables.asleep(record["texts"])
    for place, words in others:
        found.setdefault(place, []).append(words)
    return found, listing


def look(record: Record, config: Settings, *, packets: bool = True) -> Drift:
    """Compare; without `packets` only what needs no program: routes, settings, links."""
    drift = Drift(routes=routes.differing(routes.wanted(config.ip_rules)))
    if packets:
        drift.rules, drift.listing = rules(record, config)
    known = state(LINKS) or {}
    for path, value in wrong_sysctls(config).items():
        (drift.settings if is_known(path.split("/")[-2], known) else drift.fresh).append(says(path, value))
    for name in ports.unisolated(config):
        words = f"{name} is not isolated from the other guests"
        (drift.links if is_known(name, known) else drift.fresh).append(words)
    drift.links += [f"guest port {name} is in no bridge" for name in ports.loose(config)]
    drift.links += [elsewhere(name, config) for name in ports.away(config) if ports.is_up(name)]
    drift.fresh += [f"guest port {name} is back in {ports.master(name)}, and down" for name in come_back(config)]
    drift.links += [f"port {name} of {config.bridge} is no guest's" for name in ports.strangers(config)]
    for name in ports.credulous(config):
        words = f"{name} learns from frames to link-local groups"
        (drift.links if is_known(name, known) else drift.fresh).append(words)
    return drift


def elsewhere(name: str, config: Settings) -> str:
    """In words, that a guest's port is in another bridge."""
    return f"guest port {name} is in {ports.master(name)}, not in {config.bridge}"


def come_back(config: Settings) -> list[str]:
    """Guests' ports that we took down in another bridge, and that are where they belong again."""
    gone = (state(AWAY) or {"links": []})["links"]
    return [name for name in gone if is_back(name, config) and not ports.is_up(name)]


def is_back(name: str, config: Settings) -> bool:
    """Whether a guest's port is in a bridge that it belongs in."""
    return ports.master(name) is not None and not ports.is_away(name, config)


def is_known(name: str, known: Record) -> bool:
    """Whether an interface is one that has been seen as it should be; settings of none (ip_forward) always have."""
    there = ports.place(name)
    return there is None or known.get(name) == there


def places(config: Settings) -> Record:
    """The interfaces that there are, as know() takes them; a guest's port only while it is in a bridge."""
    names = [*(path.split("/")[-2] for path in config.sysctls), config.bridge]
    names += [name for name in ports.all_names(config) if ports.master(name)]
    return {name: ports.place(name) for name in names}


def know(places: Record) -> None:
    """From now on what differs at these interfaces, looked up before they were looked at, is drift."""
    known = state(LINKS) or {}
    if known | places != known:
        store(LINKS, known | places)


def wrong_sysctls(config: Settings) -> dict[str, str]:
    """Settings that are there and have another value than they should."""
    wanted = config.sysctls | ({FORWARD: "1"} if config.forwarding else {})
    return {path: value for path, value in wanted.items() if sysctl(path) not in (value, None)}


def says(path: str, value: str) -> str:
    """A wrong setting in words."""
    if path == FORWARD:
        return "net.ipv4.ip_forward is off"
    if path.endswith("/disable_ipv6"):
        return f"IPv6 is on at {path.split('/')[-2]}"
    return f"sysctl {path.replace('/', '.')} is {sysctl(path)}, not {value}"


def put_right(record: Record, config: Settings, drift: Drift) -> None:
    """Route first, netfilter second, then the rest; Failure when something cannot be."""
    if drift.routes:
        routes.restore(routes.wanted(config.ip_rules))
    if drift.rules:
        assert drift.listing is not None  # look() found them in it
        tables.load(record["texts"], drift.listing, drift.rules)
    assert_sysctls(config)
    assert_links(config)
    if ports.loose(config):
        with contextlib.suppress(Failure):  # it is down then: closed, and no reason to close the others
            ports.plug(config)


def assert_links(config: Settings) -> None:
    """What no packet rule can hold at the bridge. A port that is no guest's goes down, and up when it is one.

    So does a guest's in another bridge: there it would be a guest of the hypervisor's other networks.
    """
    gone = ports.away(config)
    for name in come_back(config):
        ports.set_up(name, up=True)
    # Noted until it is where it belongs, by whichever way it comes there: out of its bridge first, or into Proxmox's.
    former = (state(AWAY) or {"links": []})["links"]
    noted = [name for name in former if ports.exists(name) and not is_back(name, config)]
    if noted := list(dict.fromkeys([*noted, *filter(ports.is_up, gone)])):
        store(AWAY, {"links": noted})
    else:
        forget(AWAY)
    for name in gone:
        ports.set_up(name, up=False)
    for name in ports.strangers(config):
        ports.set_up(name, up=False)
    for name in ports.unisolated(config):
        ports.isolate(name)
    for name in ports.credulous(config):
        ports.disbelieve(name)


def remember() -> Record:
    """What `remove` has to put back, begun before our first change of this boot."""
    former = state(FORMER)
    if former is None:
        former = {"sysctl": {}, "tables": list(tables.listed())}
        store(FORMER, former)
    return former


def _set(path: str, value: str, former: Record, also: tuple[str, ...] = ()) -> None:
    now = sysctl(path)
    if now in (value, None):
        return
    for one in (path, *also):
        former["sysctl"].setdefault(one, sysctl(one))
    store(FORMER, former)
    set_sysctl(path, value)


def assert_sysctls(config: Settings) -> None:
    """Settings of interfaces that exist; forwarding last, when everything else stands."""
    former = remember()
    for path, value in config.sysctls.items():
        _set(path, value, former)
    if config.forwarding:
        # Writing ip_forward changes these as well.
        each = sorted(
            str(path.relative_to("/proc/sys")) for path in pathlib.Path("/proc/sys/net/ipv4/conf").glob("*/forwarding")
        )
        _set(FORWARD, "1", former, ("net/ipv4/conf/all/accept_redirects", *each))
        for path, value in config.sysctls.items():
            _set(path, value, former)
    elif former["sysctl"].get(FORWARD) == "0":
        restore_sysctls(former, lambda path: path == FORWARD or path.endswith("/forwarding"))


def others_route() -> bool:
    """Whether somebody else has come to need a host that routes since we made it one.

    Seen by what asks for it at boot (Proxmox VE's own recipe for masquerading is a `post-up` that echoes 1), by
    Docker's bridge, and by who else translates addresses. A host that cannot be asked is left as it is.
    """
    for path in (path for pattern in ROUTING for path in sorted(ROOT.glob(pattern))):
        with contextlib.suppress(OSError):
            if ASKED.search(path.read_text(encoding="utf-8", errors="replace")):
                return True
    try:
        return ports.exists("docker0") or tables.others_translate()
    except Failure:
        return True


def restore_sysctls(former: Record, which: Any = lambda _: True) -> None:
    """Put former values back, ip_forward first: it changes others. Routing that others need by now stays on."""
    if which(FORWARD) and former["sysctl"].get(FORWARD) == "0" and others_route():
        print("net.ipv4.ip_forward stays 1: somebody else needs it by now", file=sys.stderr, flush=True)
        together = [path for path in former["sysctl"] if path == FORWARD or path.endswith(BY_FORWARD)]
        former["sysctl"] = {path: value for path, value in former["sysctl"].items() if path not in together}
    for path in sorted(former["sysctl"], key=lambda path: path != FORWARD):
        if which(path):
            value = former["sysctl"][path]
            if value is not None and sysctl(path) is not None:
                set_sysctl(path, value)
    former["sysctl"] = {path: value for path, value in former["sysctl"].items() if not which(path)}
    store(FORMER, former)


def write(found: list[str], outcome: str, milliseconds: float) -> None:
    """One line a drift. Without room for it the walls stand all the same."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {
        "time": now,
        "event": "drift",
        "found": found[:50],
        "outcome": outcome,
        "milliseconds": round(milliseconds, 1),
    }
    try:
        LOG.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if LOG.exists() and LOG.stat().st_size > LOG_BYTES:
            LOG.rename(LOG.with_name(f"{LOG.name}.1"))
        with LOG.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
    except OSError as error:
        print(f"{LOG}: {error.strerror}: the drift is not recorded there", file=sys.stderr)
    print(f"drift: {outcome} after {milliseconds:.0f} ms: {'; '.join(found)}", file=sys.stderr, flush=True)
