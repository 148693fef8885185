"""Plugs guests' ports into the hypervisor's bridges when those appear, as Proxmox VE does at a guest's start."""

from __future__ import annotations

import asyncio
import json
import socket

import netns
import topology
from errors import LabError, run
from topology import Lab

RTMGRP_LINK = 1
SETTLE = 0.03  # seconds: one `ifup` makes a burst of events


class Plugger:
    """Watches the hypervisor's interfaces.

    A port is plugged once for each bridge that appears and is up. If somebody takes it out again or brings it down, it
    stays so: that is how a hypervisor whose rules cannot be loaded closes its guests in.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.watch: socket.socket | None = None
        self.scheduled = False
        self.plugged: dict[str, int] = {}  # tap -> index of the bridge it was plugged into

    def open(self) -> None:
        """Begin (or, for a renewed namespace, begin again) to watch. Raises LabError without the namespace."""
        self.close()
        with netns.inside(netns.path(self.lab, "pve")):
            self.watch = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            self.watch.bind((0, RTMGRP_LINK))
        self.watch.setblocking(False)
        asyncio.get_running_loop().add_reader(self.watch, self._event)
        self._schedule()

    def close(self) -> None:
        """Watch no longer; what was plugged is forgotten."""
        if self.watch is not None:
            asyncio.get_running_loop().remove_reader(self.watch)
            self.watch.close()
            self.watch = None
        self.plugged.clear()

    def _event(self) -> None:
        assert self.watch is not None
        try:
            while self.watch.recv(65536):
                pass
        except OSError:
            pass  # drained, or events were lost: either way the interfaces are looked at anew
        self._schedule()

    def _schedule(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            asyncio.get_running_loop().call_later(SETTLE, self.check)

    def check(self) -> None:
        """Look at the interfaces and plug what belongs plugged."""
        self.scheduled = False
        try:
            found = json.loads(run(["ip", "-n", self.lab.namespace("pve"), "-j", "link", "show"]))
            links = {link["ifname"]: link for link in found}
            for tap in topology.TAPS:
                if tap.interface in links:
                    self._consider(tap, links[tap.interface], links.get(tap.bridge))
        except LabError as error:  # an interface that went away meanwhile: its own event follows
            print(f"plugging: {error}", flush=True)

    def _consider(self, tap: topology.Tap, port: dict[str, object], bridge: dict[str, object] | None) -> None:
        if bridge is None or "UP" not in str(bridge["flags"]).strip("[]").replace("'", "").split(", "):
            return
        index = int(str(bridge["ifindex"]))
        if self.plugged.get(tap.interface) == index:
            return
        if port.get("master") != tap.bridge:
            netns.plug(self.lab, tap)
            print(f"plugged {tap.interface} into {tap.bridge}", flush=True)
        self.plugged[tap.interface] = index
