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


class Witness:
    """What is written from now on."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}
        self.sizes = self.settled()

    @staticmethod
    def settled() -> dict[Path, int]:
        """The files' sizes once nothing more is being written."""
        before, now = None, {}
        while before != now or before is None:
            before = now
            time.sleep(0.12)
            now = {file: file.stat().st_size for file in FOLDER.glob("flows.json*")}
        return now

    def lines(self) -> list[dict[str, object]]:
        """What has been written since."""
        self.settled()
        found = []
        for file in FOLDER.glob("flows.json*"):
            with file.open(encoding="utf-8", errors="replace") as lines:
                lines.seek(self.sizes.get(file, 0))
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
