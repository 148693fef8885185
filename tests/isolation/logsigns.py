"""What the hypervisor's witness wrote of the packet rules' own log, as far as their rate limits let it be certain."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

from labtools import LAB_ID, STATE
from prober import inside

FOLDER = STATE / "machines" / "pve" / "root" / "var" / "log" / "glasslab"
FLOWS = {("203.0.113.53", 53), ("203.0.113.10", 443), ("10.10.10.20", 8088)}
OWN = {"10.10.10.1", "192.168.50.2", "10.20.20.1"}
NETFILTER = "12"  # the netlink family
# Datagrams that nothing but a line of log tells of: from a namespace to an address.
TEASERS = (
    ("agent", "192.168.50.2"),
    ("agent", "203.0.113.80"),
    ("ctl", "10.10.10.1"),
    ("ctl", "10.10.10.10"),
    ("logs", "203.0.113.80"),
)


def tease() -> None:
    """Send the datagrams, before others use the rules' rates up."""
    for place, address in TEASERS:
        with inside(Path("/run/netns") / f"{LAB_ID}-{place}"), contextlib.suppress(OSError):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.sendto(b"glasslab", (address, 9))
            one.close()


def underway() -> bool:
    """Whether the kernel still holds packets back for the log, or its reader has not read what it was given."""
    net = Path("/proc/thread-self/net")
    with inside(Path("/run/netns") / f"{LAB_ID}-pve"):
        groups = [line.split() for line in (net / "netfilter/nfnetlink_log").read_text().splitlines()]
        sockets = [line.split() for line in (net / "netlink").read_text().splitlines()[1:]]
    readers = {reader for _, reader, *_ in groups}
    unread = {port for _, family, port, _, memory, *_ in sockets if family == NETFILTER and memory != "0"}
    return any(held != "0" for _, _, held, *_ in groups) or bool(readers & unread)


class Witness:
    """What is written from now on."""

    def __init__(self) -> None:
        self.sizes = {number: file.stat().st_size for number, file in self.settled().items()}

    @staticmethod
    def settled() -> dict[int, Path]:
        """The files by their number, for rotation gives one another's name, once nothing more is being written."""
        before, now, until = None, {}, time.monotonic() + 20
        while now != before or underway():
            assert time.monotonic() < until, "the witness's file does not come to rest"
            time.sleep(0.12)
            before, now = now, {(stat := file.stat()).st_ino: stat.st_size for file in FOLDER.glob("flows.json*")}
        return {file.stat().st_ino: file for file in FOLDER.glob("flows.json*")}

    def lines(self) -> list[dict[str, object]]:
        """What has been written since."""
        found = []
        for number, file in self.settled().items():
            with file.open(encoding="utf-8", errors="replace") as lines:
                before = self.sizes.get(number, 0)
                # A number is given again once its file is gone.
                lines.seek(before if before <= file.stat().st_size else 0)
                for line in lines:
                    with contextlib.suppress(ValueError):
                        found.append(json.loads(line))
        return found

    def signs(self) -> set[str]:
        """Which rules wrote at all, by their words; of the denied, whether of allowed flows or its own addresses."""
        return {f"logged: {self.sign(line)}" for line in self.lines()}

    @staticmethod
    def sign(line: dict[str, object]) -> str:
        """Of one line."""
        prefix, where = str(line.get("oob.prefix")), str(line.get("dest_ip"))
        if not prefix.endswith(("denied route", "denied inbound")):
            return f"{prefix}, protocol {line.get('ip.protocol')}" if "allowed" in prefix else prefix
        # From outside comes no flow of a guest's, whatever source it claims.
        guests_own = prefix.endswith("route") and line.get("src_ip") == "10.10.10.10"
        allowed = guests_own and (where, line.get("dest_port")) in FLOWS
        if line.get("src_ip") == "10.10.10.20" and where.startswith("203.0.113."):
            return prefix + ", the log's machine to the internet"
        return prefix + (", an allowed flow" if allowed else ", own address" if where in OWN else "")
