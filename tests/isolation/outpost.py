"""What runs at each place of the lab for the length of a test run: sends forged frames and watches for them.

Started by observing.py with the modules `attacks` and `sink` beside it. One JSON order a line on standard input, one
JSON answer a line on standard output:

    {"verb": "watch"}                     begin (anew) to watch; answers the interfaces' MACs
    {"verb": "send", "interface", "macs", "frames", "datagrams": [[address, port, tag]...]}
    {"verb": "connect", "to": [address, port], "port": own port}     a real connection, held until the next `watch`
    {"verb": "report"}                    what arrived since `watch` (see sink.py)
    {"verb": "forget", "interface"}       unlearn what forged frames taught this machine
"""

import json
import socket
import struct
import subprocess
import sys
from typing import Any

import attacks
import sink


class Outpost:
    """The place's watch and the connection it holds."""

    def __init__(self) -> None:
        self.watched: Any = None
        self.held: socket.socket | None = None

    def watch(self, _: dict[str, Any]) -> Any:
        """Forget what has arrived."""
        if self.held is not None:
            self.held.close()
            self.held = None
        if self.watched is None:
            self.watched = sink.Watch()
        self.watched.forget()
        return sink.tables()["links"]

    def send(self, order: dict[str, Any]) -> Any:
        """Frames as they are, datagrams by the machine's own IP stack."""
        for address, port, tag in order.get("datagrams", []):
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.sendto(attacks.mark(tag), (address, port))
        return attacks.send(order)

    def connect(self, order: dict[str, Any]) -> Any:
        """Whether the connection stands."""
        one = self.held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", order["port"]))
        # closed by a reset, so that the same port can be had again at once
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.settimeout(0.5)
        return one.connect_ex(tuple(order["to"])) == 0

    def report(self, _: dict[str, Any]) -> Any:
        """What has arrived."""
        return self.watched.report()

    def forget(self, order: dict[str, Any]) -> Any:
        """Unlearn neighbours and default routers."""
        interface = order["interface"]
        routers = [one for one in sink.default_routes6() if one[0] == interface]
        if routers:
            subprocess.run(["ip", "-6", "route", "flush", "default", "dev", interface], check=True)
        subprocess.run(["ip", "neighbour", "flush", "dev", interface], check=True, capture_output=True)
        return routers


def serve() -> None:
    """Carry out orders until there are no more."""
    outpost = Outpost()
    verbs = {
        "watch": outpost.watch,
        "send": outpost.send,
        "connect": outpost.connect,
        "report": outpost.report,
        "forget": outpost.forget,
    }
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(verbs[order["verb"]](order)), flush=True)
