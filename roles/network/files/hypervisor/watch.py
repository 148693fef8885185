"""The watcher: hears of every change of rules, routes, links and settings, and heals at once.

The kernel reports changes over netlink. A change in a table of ours shuts the bridge's ports within a millisecond,
before anything is listed or loaded; they pass again when the walls are seen to stand. What nobody reports is looked at
twice a second.
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

POLL = 0.5  # seconds
SPACING = 0.05  # seconds between looks at links and routes, however many events there are
PATIENCE = 8.0  # seconds a tool may take: three in a row are fewer than WatchdogSec
BURST, PER_SECOND = 20, 2.0  # whole looks: so many at once, then so many a second, however often rules change
RETRY_FROM, RETRY_TO = 1.0, 30.0  # seconds between attempts while the guests are shut in


class Watcher:
    """Events in, heals out."""

    def __init__(self) -> None:
        self.rules = netlink.listen(netlink.NETFILTER)
        self.routes = netlink.listen(netlink.ROUTE)
        self.tokens = float(BURST)
        self.counted = time.monotonic()
        self.looked, self.next_look = 0.0, 0.0
        self.retry, self.retry_at = RETRY_FROM, 0.0

    def wait(self, seconds: float) -> tuple[bool, bool]:
        """Wait for reports; whether a table of ours has changed, and whether routes, links or settings have."""
        ready, _, _ = select.select([self.rules, self.routes], [], [], max(0.0, seconds))
        changed = False
        if self.rules in ready:
            reports, lost = netlink.drain(self.rules)
            changed = lost or any(event and concerns(event) for event in map(netlink.nft_event, reports))
        if self.routes in ready:
            netlink.drain(self.routes)
        return changed, self.routes in ready

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
        changed, touched = self.wait(self.next_look - time.monotonic())
        began = time.monotonic()
        notify("WATCHDOG=1")
        if touched and began < self.looked + SPACING:
            self.next_look = min(self.next_look, self.looked + SPACING)
        if not changed and began < (self.looked + SPACING if touched else self.next_look):
            return
        self.looked, self.next_look = began, began + POLL
        if state(CLOSED) and began < self.retry_at:
            with lock(lambda: notify("WATCHDOG=1")), contextlib.suppress(Failure, OSError):
                walls.stay_shut()
            return
        # Who has the lock changes the rules on purpose (apply, remove) or heals them itself. What it changed, as what
        # we change, is reported as well: then the rules have been seen whole since, and there is nothing to do.
        with lock(lambda: notify("WATCHDOG=1")):
            record = loaded()
            if record and not walls.unchanged():
                if changed:
                    ports.hold(Settings.of(record["settings"]))
                if not self.may_look():
                    self.next_look = began + 1 / PER_SECOND
                    return
            try:
                walls.heal(began)
                self.retry = RETRY_FROM
            except (Failure, OSError) as error:
                print(f"glasslab-network: watch: {error}", file=sys.stderr, flush=True)
                self.retry_at = time.monotonic() + self.retry
                self.next_look = min(self.next_look, self.retry_at)
                self.retry = min(RETRY_TO, self.retry * 2)


def concerns(event: tuple[int, str, str]) -> bool:
    """Whether an event is about a table that has rules of ours, and there about a hook or a chain of ours."""
    _, table, chain = event
    if table == f"bridge {tables.BRIDGE_TABLE}":
        return True
    family, _, name = table.partition(" ")
    if family not in ("ip", "ip6") or name not in tables.TABLES:
        return False
    return not chain or chain in tables.HOOKS or chain.startswith(tables.OURS)


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
