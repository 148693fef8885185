"""Listeners that stand for services of the lab's surroundings. Usage: listeners.py NAME ADDRESS:PORT...

Each answers over TCP with one line that names itself and over UDP with what it got. What arrived is printed, one JSON
object a line, up to a bound: a witness that a probe got through, which no firewall's word can replace.
Stands alone: a copy of it also runs inside the hypervisor stand-in.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time

PRINTED_AT_MOST = 20_000
IP_PKTINFO = 8  # Python's socket module does not name it in every version this runs on


def open_sockets(address: str, port: int) -> list[socket.socket]:
    """A listening TCP and a bound UDP socket. Raises OSError when the address or port is not to be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        one = socket.socket(family, kind)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif kind == socket.SOCK_DGRAM:
            one.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        one.bind((address, port))
        if kind == socket.SOCK_STREAM:
            one.listen(64)
        one.setblocking(False)
        opened.append(one)
    return opened


class Witness:
    """Answers and prints what arrived."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.printed = 0

    def serve(self, listener: socket.socket) -> None:
        """Answer one connection or datagram."""
        try:
            if listener.type == socket.SOCK_STREAM:
                self._tcp(listener)
            else:
                self._udp(listener)
        except OSError:
            return  # the other side is gone, or there is no way back to a forged source

    def _tcp(self, listener: socket.socket) -> None:
        connection, peer = listener.accept()
        with connection:
            address, port = connection.getsockname()[:2]
            self._print("tcp", port, address, peer)
            connection.setblocking(False)
            connection.sendall(f"glasslab {self.name} tcp {port}\n".encode())

    def _udp(self, listener: socket.socket) -> None:
        data, ancillary, _, peer = listener.recvmsg(2048, 256)
        address, port = listener.getsockname()[:2]
        source = []
        for level, kind, info in ancillary:
            if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
                # answer from the address that was asked; interface 0 leaves the way back to the routing table
                address = socket.inet_ntoa(info[8:12])
                source = [(level, kind, struct.pack("=i4s4s", 0, info[4:8], b"\0" * 4))]
            elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
                address = socket.inet_ntop(socket.AF_INET6, info[:16])
                # a link-local address means something on its interface only
                source = [(level, kind, info if info[:2] == b"\xfe\x80" else info[:16] + b"\0" * 4)]
        self._print("udp", port, address, peer)
        listener.sendmsg([f"glasslab {self.name} udp {port} ".encode() + data[:256]], source, 0, peer)

    def _print(self, protocol: str, port: int, address: str, peer: tuple[str, int]) -> None:
        self.printed += 1
        if self.printed <= PRINTED_AT_MOST:
            line = {"time": time.time(), "protocol": protocol, "address": address, "port": port}
            print(json.dumps({**line, "peer": peer[0], "peer_port": peer[1]}), flush=True)


def main(arguments: list[str]) -> int:
    """Listen until killed; 1 when an address cannot be had."""
    selector = selectors.DefaultSelector()
    for target in arguments[1:]:
        address, _, port = target.rpartition(":")
        try:
            for one in open_sockets(address.strip("[]"), int(port)):
                selector.register(one, selectors.EVENT_READ)
        except OSError as error:
            print(f"listeners: cannot listen on {target}: {error}", file=sys.stderr)
            return 1
    witness = Witness(arguments[0])
    while True:
        for key, _ in selector.select():
            listener = key.fileobj
            assert isinstance(listener, socket.socket)
            witness.serve(listener)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
