"""The watcher: hears of every change of rules, routes, links and settings, and heals at once.

The kernel reports changes over netlink. Rules of ours that were deleted close the bridge's ports within a millisecond,
before anything is loaded; they pass again when the walls stand. What nobody reports is looked at once a second.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

from . import kernel, netlink, ports, tables, walls
from .kernel import Failure
from .settings import Settings
from .state import CLOSED, loaded, lock, state

POLL = 1.0  # seconds
PATIENCE = 8.0  # seconds a tool may take: three in a row are fewer than WatchdogSec
BURST, PER_SECOND = 20, 2.0  # whole looks: so many at once, then so many a second, however often rules change
RETRY_FROM, RETRY_TO = 2.0, 60.0  # seconds between attempts while the guests are shut in


class Watcher:
    """Events in, heals out."""

    def __init__(self) -> None:
        self.rules = netlink.listen(netlink.NETFILTER)
        self.routes = netlink.listen(netlink.ROUTE)
        self.tokens = float(BURST)
        self.counted = time.monotonic()
        self.owed = True  # a whole look is due: after the start, after an event, after lost events
        self.retry, self.retry_at = RETRY_FROM, 0.0

    def wait(self, seconds: float) -> tuple[bool, bool]:
        """Wait for reports; whether our packet rules may have changed, and whether some of them are gone."""
        ready, _, _ = select.select([self.rules, self.routes], [], [], seconds)
        changed = gone = False
        if self.rules in ready:
            reports, changed = netlink.drain(self.rules)
            for event in map(netlink.nft_event, reports):
                if event and concerns(event):
                    changed = True
                    gone = gone or event[0] in (netlink.NFT_DELTABLE, netlink.NFT_DELCHAIN, netlink.NFT_DELRULE)
        if self.routes in ready:
            netlink.drain(self.routes)
        return changed, gone

    def may_look(self) -> bool:
        """Whether the budget of whole looks has one left."""
        now = time.monotonic()
        self.tokens = min(BURST, self.tokens + (now - self.counted) * PER_SECOND)
        self.counted = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def step(self) -> None:
        """One round: wait, close what lies open, heal."""
        changed, gone = self.wait(0.1 if self.owed else POLL)
        began = time.monotonic()
        notify("WATCHDOG=1")
        self.owed = self.owed or changed
        if state(CLOSED) and began < self.retry_at:
            return stay_shut()
        whole = self.owed and self.may_look()
        # Who has the lock changes the rules on purpose (apply, remove) or heals them itself.
        with lock(lambda: notify("WATCHDOG=1")):
            record = loaded()
            if gone and record:
                ports.hold(Settings.of(record["settings"]))
            if self.owed and not whole:
                return None
            try:
                found = walls.heal(began, packets=whole)
                self.retry = RETRY_FROM
                # Our own changes were reported as well: the next round finds them as they should be, and is content.
                self.owed = bool(found)
            except Failure as error:
                print(f"glasslab-network: watch: {error}", file=sys.stderr, flush=True)
                self.owed, self.retry_at = True, time.monotonic() + self.retry
                self.retry = min(RETRY_TO, self.retry * 2)
        return None


def concerns(event: tuple[int, str, str]) -> bool:
    """Whether an event is about a table that has rules of ours, and there about a hook or a chain of ours."""
    _, table, chain = event
    if table == f"bridge {tables.BRIDGE_TABLE}":
        return True
    family, _, name = table.partition(" ")
    if family not in ("ip", "ip6") or name not in tables.TABLES:
        return False
    return not chain or chain in tables.HOOKS or chain.startswith(tables.OURS)


def stay_shut() -> None:
    """While the guests are shut in nobody else brings their ports up."""
    with lock(lambda: notify("WATCHDOG=1")):
        record = loaded()
        if state(CLOSED) and record:
            with contextlib.suppress(Failure):
                ports.close(Settings.of(record["settings"]))


def notify(*words: str) -> None:
    """Tell systemd, when it wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there, contextlib.suppress(OSError):
        there.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        there.send("\n".join(words).encode())


def watch() -> None:
    """Run until stopped."""
    kernel.patience = PATIENCE
    watcher = Watcher()
    watcher.step()
    notify("READY=1", "STATUS=watching")
    while True:
        watcher.step()
