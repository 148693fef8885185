"""The verbs: apply, check, heal, remove. Each is called with the lock held.

What cannot be asserted leaves the guests shut in: their ports and the bridge go down, and come up when it can.
"""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import time

from . import drift, netlink, ports, routes, tables
from .kernel import Failure
from .settings import ETC, Settings, digest, rule_files, settings
from .state import AWAY, CLOSED, FORMER, LINKS, LOADED, SEEN, Record, forget, loaded, state, store

ATTEMPTS = 3  # looks, after which a heal that did not succeed has failed
PATIENCE = 3.0  # seconds in which it is tried again at once


def load(config: Settings, raw: Record) -> None:
    """Routes first, packet rules second; the record of what stands then."""
    texts = rule_files()
    drift.remember()
    wanted = routes.wanted(config.ip_rules)
    routes.restore(wanted)
    tables.load(texts, tables.look())
    generation = netlink.nft_generation()
    listing = tables.look()
    lacking = [words for _, words in tables.gaps(texts, listing, config.bridge, config.ports) + tables.asleep(texts)]
    if lacking := lacking + routes.differing(wanted):
        raise Failure(f"{'; '.join(lacking)}: run playbooks/network.yml again")
    store(LOADED, {"digest": digest(), "texts": texts, "settings": raw, "kernel": tables.ours(listing)})
    store(SEEN, {"generation": generation})


def apply() -> None:
    """Load the files of /etc/glasslab/network, then let the bridge route. Failure leaves what stood, or shuts in."""
    config = None
    try:
        config, raw = settings()
        load(config, raw)
        drift.assert_sysctls(config)
        places = drift.places(config)
        drift.assert_links(config)
    except (Failure, OSError) as error:
        _could_not_apply(config, str(error))
        raise
    if ports.exists(config.bridge):
        ports.plug(config)
    drift.know(places)
    reopen(config)


def _could_not_apply(config: Settings | None, why: str) -> None:
    record = loaded()
    config = config or (Settings.of(record["settings"]) if record else None)
    if config is None:
        return
    try:
        ports.unplug(config)
        stand = record is not None and not drift.look(record, config).found
    except (Failure, OSError):
        stand = False
    if not stand:
        shut(config, "apply", why)


def shut(config: Settings, verb: str, why: str) -> None:
    """The bridge and the guests' ports go down, until `verb` succeeds; called again, what has come up meanwhile."""
    former, now = state(CLOSED) or {"links": []}, ports.up(config)
    # First the note: what was up must come up again even when this is interrupted.
    links = list(dict.fromkeys([*former["links"], *now]))
    try:
        store(CLOSED, {"verb": verb, "why": why, "links": links, "settings": dataclasses.asdict(config)})
    finally:
        ports.close(now)


def stay_shut() -> None:
    """While the guests are shut in nobody else brings their ports up: not before `verb` has succeeded."""
    if closed := state(CLOSED):
        shut(Settings.of(closed["settings"]), closed["verb"], closed["why"])


def reopen(config: Settings) -> None:
    """Bring up again what shut() took down, the bridge first, and let pass what was held. A stranger's port stays."""
    if closed := state(CLOSED):
        strange = set(ports.members(config.bridge)).difference(ports.all_names(config))
        for name in sorted(closed["links"], key=lambda name: name != config.bridge):
            if name not in strange:
                ports.set_up(name, up=True)
        forget(CLOSED)
    ports.release(config)


def differences() -> list[str]:
    """What `check` says: everything that is not as loaded, healed or not."""
    config, _ = settings()
    record = loaded()
    if record is None:
        return ["the rules have not been loaded since the machine started"]
    differs = [] if record["digest"] == digest() else [f"the files in {ETC} are newer than the rules in the kernel"]
    differs += drift.look(record, config).found
    differs += [
        f"guest port {name} is in no bridge, and down"
        for name in ports.strays(config)
        if ports.belongs(name) and not ports.is_up(name)
    ]
    # Up, the look has named it; down, it stays so until it comes back.
    differs += [drift.elsewhere(name, config) for name in ports.away(config) if not ports.is_up(name)]
    differs += routes.overruled(routes.wanted(config.ip_rules))
    if closed := state(CLOSED):
        differs.append(f"the guests are shut in, because {closed['verb']} failed: {closed['why']}")
    else:  # whoever took it down may have meant it, and nobody brings it up but `apply`
        down = [name for name in ports.all_names(config) if drift.is_back(name, config) and not ports.is_up(name)]
        differs += [f"guest port {name} is down" for name in down]
    if not ports.exists(config.bridge):
        differs.append(f"{config.bridge} does not exist")
    elif not ports.is_up(config.bridge):
        differs.append(f"{config.bridge} is down")
    differs += [f"guest port {name} is held shut" for name in ports.held(config)]
    return differs + [f"{name} does not run" for name in idle_services(config)]


def idle_services(config: Settings) -> list[str]:
    """Units that should answer the guests and do not run."""
    if not config.services:
        return []
    asked = ["systemctl", "is-active", *config.services]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=20)
    states = done.stdout.split()
    return [name for name, now in zip(config.services, states, strict=False) if now != "active"]


def unchanged() -> bool:
    """Whether no packet rule of anybody has changed since ours were last seen whole."""
    generation = netlink.nft_generation()
    return generation is not None and state(SEEN) == {"generation": generation}


def start_services(config: Settings) -> None:
    """Start units that should answer the guests; that they do is not waited for."""
    if idle := idle_services(config):
        subprocess.run(["systemctl", "start", "--no-block", *idle], capture_output=True, check=False, timeout=20)


def settle(record: Record, config: Settings, found: list[str], began: float, *, packets: bool) -> None:
    """Look and put right until nothing differs; what did is added to found. Failure when it stays so.

    More than once, for somebody may be at work at the same moment. Who plugs guests in makes one interface after the
    other: what has just come, each time another, is no wall that does not stand.
    """
    cause, before = "still so after it was put right", set[str]()
    for attempt in itertools.count(1):
        last = attempt >= ATTEMPTS
        # Taken before the look: a change that comes in between is looked at the next time.
        generation, places = netlink.nft_generation(), drift.places(config)
        try:
            differs = drift.look(record, config, packets=packets)
            found += [words for words in differs.drifted if words not in found]
            if not differs.found:
                if packets:
                    store(SEEN, {"generation": generation})
                drift.know(places)
                return
            if last and (differs.drifted or before.intersection(differs.fresh) or time.monotonic() > began + PATIENCE):
                raise Failure(f"{cause}: {'; '.join(differs.found)}")
            before = set(differs.found)
            drift.put_right(record, config, differs)
        except Failure as error:
            cause = str(error)
            if last or time.monotonic() > began + PATIENCE:
                raise


def heal(began: float | None = None) -> list[str]:
    """Compare with what was loaded and put right what differs; what was found. Failure: the guests are shut in."""
    began = time.monotonic() if began is None else began
    closed, record = state(CLOSED), loaded()
    if closed and closed["verb"] == "apply":
        apply()
        drift.write([closed["why"]], "restored", (time.monotonic() - began) * 1e3)
        return [closed["why"]]
    if record is None:
        return []
    config = Settings.of(record["settings"])
    packets = closed is not None or not unchanged()
    found: list[str] = []
    try:
        settle(record, config, found, began, packets=packets)
        reopen(config)
    except Exception as error:  # whichever it is: the walls cannot be seen to stand
        shut(config, "heal", str(error) or repr(error))
        if not closed:
            drift.write([*found, str(error) or repr(error)], "closed", (time.monotonic() - began) * 1e3)
        raise
    if found or closed:
        drift.write(found or [closed["why"] if closed else ""], "restored", (time.monotonic() - began) * 1e3)
    return found


def remove() -> None:
    """Take everything of ours away and put back what was there before, the policy routes last."""
    record = loaded()
    config = Settings.of(record["settings"]) if record else None
    if config is None and (ETC / "settings.json").exists():
        config, _ = settings()
    if config is not None:
        ports.unplug(config)
    former = state(FORMER) or {"sysctl": {}, "tables": None}
    # First nothing is routed any more, then the rules go: never the other way round.
    drift.restore_sysctls(former)
    for name in (state(AWAY) or {"links": []})["links"]:
        ports.set_up(name, up=True)
    tables.remove(former["tables"])
    routes.remove()
    if config is not None:
        ports.release(config)
    forget(FORMER, LOADED, CLOSED, SEEN, LINKS, AWAY)
