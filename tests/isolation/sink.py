"""Watch one place for tagged frames (attacks.py) and say which arrived, how far they came and what they changed.

`with Watch() as watch:` begins to watch, as root; `watch.report()` says what has arrived since:

    sightings   [[tag, how, interface, source address, source MAC]...], each once. `how` is
                `wire`      it came in by that interface, before any packet filter of this machine; on a bridge's own
                            interface: past the bridge's layer 2 rules
                `accepted`  it came past this machine's INPUT chains to the IP stack (IPv4 and IPv6, raw sockets)
                An answer that quotes the tag (echo reply, ICMP error, datagram sent back) is a sighting at the sender.
    answers     [[source address, source port, own port, "open" or "refused", its sequence number, acknowledged]...]:
                SYN-ACK and RST segments
    arp         [[address, MAC]...]: who claimed to have which address, in ARP replies
    neighbours  {address: MAC} of this machine's table, default_routes6 [[interface, gateway]...],
    fdb         {MAC: port} learnt by this machine's bridges, links {interface: MAC}

It runs on the lab's machines (see outpost.py): only the standard library.
"""

import contextlib
import fcntl
import pathlib
import re
import socket
import struct

TAG = re.compile(rb"<gl:([0-9a-f]{8})>")
ALL = 0x0003  # ETH_P_ALL
SO_RCVBUFFORCE = 33
SIOCGIFHWADDR = 0x8927
ROOM = 16 << 20  # bytes: what arrives between two reports must not be lost
FOUR = (1, 2, 4, 6, 17, 41, 47, 50, 132, 253)
SIX = (4, 6, 17, 41, 47, 50, 58)
SYN_ACK, RST = 0x12, 0x04


def address(data, offset, six=False):
    """The address at an offset of a packet, as text; empty when the packet ends before."""
    size = 16 if six else 4
    found = data[offset : offset + size]
    return socket.inet_ntop(socket.AF_INET6 if six else socket.AF_INET, found) if len(found) == size else ""


def colons(data):
    return data.hex(":")


class Watch:
    """Sockets that hold what arrives until it is asked for. Raises PermissionError without the right to raw sockets."""

    def __init__(self):
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        self.four = [socket.socket(socket.AF_INET, socket.SOCK_RAW, number) for number in FOUR]
        self.six = [socket.socket(socket.AF_INET6, socket.SOCK_RAW, number) for number in SIX]
        for one in (self.wire, *self.four, *self.six):
            one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
            one.setblocking(False)
        self.sightings, self.answers, self.arp = set(), set(), set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (self.wire, *self.four, *self.six):
            one.close()

    @staticmethod
    def drain(one):
        """What has arrived at a socket."""
        while True:
            try:
                yield one.recvfrom(65535)
            except BlockingIOError:
                return

    def frame(self, data, where):
        """Note what one frame says; frames that this machine sends itself are not what arrives."""
        interface, _, kind, *_ = where
        if kind == socket.PACKET_OUTGOING:
            return
        ethertype, start = struct.unpack_from("!H", data, 12)[0], 14
        while ethertype == 0x8100 and len(data) >= start + 4:
            ethertype, start = struct.unpack_from("!H", data, start + 2)[0], start + 4
        source = ""
        if ethertype == 0x0800:
            source = address(data, start + 12)
            size = start + 4 * (data[start] & 15)
            if data[start + 9] == 6 and not struct.unpack_from("!H", data, start + 6)[0] & 0x1FFF:
                self.segment(source, data[size : size + 20])
        elif ethertype == 0x86DD:
            source = address(data, start + 8, six=True)
            if data[start + 6] == 6:
                self.segment(source, data[start + 40 : start + 60])
        elif ethertype == 0x0806:
            source = address(data, start + 14)
            if data[start + 7] == 2:
                self.arp.add((source, colons(data[start + 8 : start + 14])))
        for tag in TAG.findall(data):
            self.sightings.add((tag.decode(), "wire", interface, source, colons(data[6:12])))

    def segment(self, source, head):
        """Note the answer to a connection's first segment."""
        if len(head) == 20:
            theirs, own, number, acknowledged, _, flags = struct.unpack("!HHIIBB", head[:14])
            if flags & SYN_ACK == SYN_ACK or flags & RST:
                state = "refused" if flags & RST else "open"
                self.answers.add((source, theirs, own, state, number, acknowledged))

    def read(self):
        """Take in what has arrived so far."""
        for data, where in self.drain(self.wire):
            try:
                self.frame(data, where)
            except (struct.error, IndexError):
                continue  # cut short: none of ours
        for one in self.four:
            for data, where in self.drain(one):
                self.sightings |= {(tag.decode(), "accepted", "", where[0], "") for tag in TAG.findall(data)}
        for one in self.six:
            for data, where in self.drain(one):
                source = where[0].partition("%")[0]
                self.sightings |= {(tag.decode(), "accepted", "", source, "") for tag in TAG.findall(data)}

    def forget(self):
        """Begin anew: what has arrived until now is not told."""
        self.read()
        for found in (self.sightings, self.answers, self.arp):
            found.clear()

    def report(self):
        """What has arrived since the watch began, and the tables as they are now."""
        self.read()
        seen = {"sightings": self.sightings, "answers": self.answers, "arp": self.arp}
        return {name: sorted(found) for name, found in seen.items()} | tables()


def tables():
    """What frames can change on this machine, and its own interfaces."""
    net = pathlib.Path("/sys/class/net")
    neighbours = {}
    for line in pathlib.Path("/proc/net/arp").read_text(encoding="ascii").splitlines()[1:]:
        columns = line.split()
        neighbours[columns[0]] = columns[3]
    return {
        "neighbours": neighbours,
        "default_routes6": default_routes6(),
        "fdb": {mac: port for bridge in net.glob("*/brforward") for mac, port in forwarding(bridge).items()},
        "links": links(),
    }


def links():
    """This machine's interfaces and their MACs, asked of the kernel: /sys may show another network namespace's."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has gone meanwhile
                asked = fcntl.ioctl(one, SIOCGIFHWADDR, struct.pack("256s", name.encode("ascii")))
                found[name] = colons(asked[18:24])
    return found


def default_routes6():
    """The IPv6 default routes by which this machine would send, as [interface, gateway]."""
    table = pathlib.Path("/proc/net/ipv6_route")
    found = []
    for line in table.read_text(encoding="ascii").splitlines() if table.exists() else []:
        columns = line.split()
        if columns[0] == "0" * 32 and columns[1] == "00" and columns[9] != "lo":
            found.append([columns[9], address(bytes.fromhex(columns[4]), 0, six=True)])
    return found


def forwarding(table):
    """What a bridge has learnt: MAC and the port it is behind."""
    ports = {}
    for port in (table.parent / "brif").iterdir():
        ports[int((port / "port_no").read_text(encoding="ascii"), 16)] = port.name
    learnt = {}
    data = table.read_bytes()
    for at in range(0, len(data) - 15, 16):  # struct __fdb_entry of linux/if_bridge.h
        mac, low, local, _, high = struct.unpack_from("=6sBBIB", data, at)
        if not local:
            learnt[colons(mac)] = ports.get(high << 8 | low, "?")
    return learnt
