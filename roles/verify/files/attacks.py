"""Build forged frames, each with a tag of its own in its payload, and put them on the wire.

Fed to a machine's python3 on standard input, as root; the first argument is JSON:

    {"interface": "eth0", "macs": {"gateway": "fe:10:00:00:00:10"}, "frames": [FRAME...]}

FRAME is {"tag": "8 hex digits", "layers": [[NAME, {FIELD: VALUE}]...], "interface": other than the order's}, outermost
layer first. What a field leaves out is filled in as an honest sender would; MACs may be names from `macs`. Types,
protocol numbers, lengths and checksums follow from the layers. The layers (* must be given):

    ether        dst*, src, vlan [numbers, outermost first], type
    arp          op (1 request, 2 reply), sha, spa*, tha, tpa*
    ip           src*, dst*, ttl, id, options (hex), offset (bytes), more (true: fragments follow), proto, total,
                 version
    ip6          src*, dst*, hop, next
    hopbyhop, destination, routing (type, addresses), fragment (offset, more, id)     IPv6 extension headers
    udp, tcp     sport*, dport*; udp: length; tcp: flags (default SYN), seq, ack
    icmp, icmp6  type*, code, id (of an echo) or rest (hex, the four bytes after the checksum), body (hex)
    igmp         type*, group
    ndoption     the tag as an option that neighbour discovery passes over
    gre, esp     (around an ip, ip6 or nothing)
    raw          hex*

The tag stands at the end of the frame as `<gl:TAG>` (an ARP frame's is in its padding), so that it is found
wherever the frame or an answer that quotes it arrives. Prints {"sent": number, "failed": {tag: reason}}.
As a module: `build(frame, own_mac, macs)` gives a frame's bytes, `layers(...)` those of a part, `send(order)` sends.
Only the standard library, any Python from 3.9 on.
"""

import fcntl
import json
import socket
import struct
import sys

ETHERTYPES = {"ip": 0x0800, "arp": 0x0806, "ip6": 0x86DD}
NUMBERS = {
    "hopbyhop": 0,
    "icmp": 1,
    "igmp": 2,
    "ip": 4,
    "tcp": 6,
    "udp": 17,
    "ip6": 41,
    "routing": 43,
    "fragment": 44,
    "gre": 47,
    "esp": 50,
    "icmp6": 58,
    "destination": 60,
}
NO_NEXT_HEADER = 59
SYN = 2
SIOCGIFHWADDR = 0x8927


def mark(tag):
    """The bytes that carry a tag."""
    return f"<gl:{tag}>".encode("ascii")


def mac(text):
    """The six bytes of a MAC; ValueError names one that is none."""
    try:
        found = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        found = b""
    if len(found) != 6:
        raise ValueError(f"{text!r} is neither a MAC nor a name in macs")
    return found


def v4(text):
    return socket.inet_pton(socket.AF_INET, text)


def v6(text):
    return socket.inet_pton(socket.AF_INET6, text)


def checksum(data):
    """The internet checksum of bytes; an odd length counts a zero at the end."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Around:
    """What a layer has to know of those around it."""

    def __init__(self, outer, inner, own, macs):
        self.outer, self.inner, self.own, self.macs = outer, inner, own, macs

    def address(self, value):
        """A MAC given as itself or by name; none is the sender's own."""
        return mac(self.macs.get(value, value)) if value else self.own

    def number(self, default=NO_NEXT_HEADER):
        """The protocol number of the next layer."""
        return NUMBERS.get(self.inner, default)

    def summed(self, protocol, data, at):
        """The data with its checksum put in, over the pseudo header of the packet around it."""
        kind, packet = next((one for one in reversed(self.outer) if one[0] in ("ip", "ip6")), ("ip", None))
        if packet is None:
            return data
        head = b"".join((v4 if kind == "ip" else v6)(packet[end]) for end in ("src", "dst"))
        head += struct.pack("!HH", protocol, len(data)) if kind == "ip" else struct.pack("!II", len(data), protocol)
        return data[:at] + struct.pack("!H", checksum(head + data)) + data[at + 2 :]


def ether(fields, data, around):
    kind = fields.get("type") or ETHERTYPES.get(around.inner, 0x88B5)
    tags = b"".join(struct.pack("!HH", 0x8100, number) for number in fields.get("vlan", []))
    head = around.address(fields["dst"]) + around.address(fields.get("src")) + tags + struct.pack("!H", kind)
    return (head + data).ljust(60, b"\0")


def arp(fields, data, around):
    source = fields.get("sha") or next((one.get("src") for name, one in around.outer if name == "ether"), None)
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, fields.get("op", 1))
    head += around.address(source) + v4(fields["spa"])
    return head + around.address(fields.get("tha") or "00:00:00:00:00:00") + v4(fields["tpa"]) + data


def ip(fields, data, around):
    options = bytes.fromhex(fields.get("options", ""))
    options += bytes(-len(options) % 4)
    words = 5 + len(options) // 4
    piece = fields.get("offset", 0) // 8 | (0x2000 if fields.get("more") else 0)
    protocol = fields.get("proto", around.number(253))
    total = fields.get("total", 4 * words + len(data))
    head = struct.pack(
        "!BBHHHBBH",
        fields.get("version", 4) << 4 | words,
        0,
        total,
        fields.get("id", 1),
        piece,
        fields.get("ttl", 64),
        protocol,
        0,
    )
    head += v4(fields["src"]) + v4(fields["dst"]) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def ip6(fields, data, around):
    head = struct.pack("!IHBB", 6 << 28, len(data), fields.get("next", around.number()), fields.get("hop", 64))
    return head + v6(fields["src"]) + v6(fields["dst"]) + data


def options6(fields, data, around):
    # six bytes of padding as the one option
    return struct.pack("!BB", around.number(), 0) + b"\x01\x04\0\0\0\0" + data


def routing(fields, data, around):
    hops = [v6(one) for one in fields.get("addresses", [])]
    head = struct.pack("!BBBBI", around.number(), 2 * len(hops), fields.get("type", 0), len(hops), 0)
    return head + b"".join(hops) + data


def fragment(fields, data, around):
    piece = fields.get("offset", 0) & 0xFFF8 | (1 if fields.get("more") else 0)
    return struct.pack("!BBHI", fields.get("next", around.number()), 0, piece, fields.get("id", 1)) + data


def udp(fields, data, around):
    # The first fragment of a datagram gives the length of the whole, and no checksum: that would be over all of it.
    whole = struct.pack("!HHHH", fields["sport"], fields["dport"], fields.get("length", 8 + len(data)), 0) + data
    return whole if "length" in fields else around.summed(17, whole, 6)


def tcp(fields, data, around):
    numbers = fields["sport"], fields["dport"], fields.get("seq", 7), fields.get("ack", 0)
    head = struct.pack("!HHIIBBHHH", *numbers, 0x50, fields.get("flags", SYN), 64240, 0, 0)
    return around.summed(6, head + data, 16)


def message(fields, data):
    """An ICMP message of either family without its checksum."""
    head = struct.pack("!BBH", fields["type"], fields.get("code", 0), 0)
    rest = fields.get("rest") or f"{fields.get('id', 7):04x}0001"
    return head + bytes.fromhex(rest + fields.get("body", "")) + data


def icmp(fields, data, around):
    body = message(fields, data)
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def icmp6(fields, data, around):
    return around.summed(58, message(fields, data), 2)


def igmp(fields, data, around):
    group = v4(fields["group"]) if "group" in fields else bytes(4)
    body = struct.pack("!BBH", fields["type"], 100, 0) + group + data
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def ndoption(fields, data, around):
    size = (len(data) + 2 + 7) // 8
    return struct.pack("!BB", 253, size) + data.ljust(8 * size - 2, b"\0")


def gre(fields, data, around):
    return struct.pack("!HH", 0, ETHERTYPES.get(around.inner, 0x0800)) + data


def esp(fields, data, around):
    return struct.pack("!II", fields.get("spi", 0x1001), fields.get("seq", 1)) + data


def raw(fields, data, around):
    return bytes.fromhex(fields["hex"]) + data


LAYERS = {
    "ether": ether,
    "arp": arp,
    "ip": ip,
    "ip6": ip6,
    "hopbyhop": options6,
    "destination": options6,
    "routing": routing,
    "fragment": fragment,
    "udp": udp,
    "tcp": tcp,
    "icmp": icmp,
    "icmp6": icmp6,
    "igmp": igmp,
    "ndoption": ndoption,
    "gre": gre,
    "esp": esp,
    "raw": raw,
}


def layers(stack, data, own=bytes(6), macs=None):
    """The bytes of a stack of layers around data. Raises KeyError or ValueError for one that cannot be built."""
    for position in reversed(range(len(stack))):
        name, fields = stack[position]
        inner = stack[position + 1][0] if position + 1 < len(stack) else ""
        data = LAYERS[name](fields, data, Around(stack[:position], inner, own, macs or {}))
    return data


def build(frame, own, macs):
    """The bytes of one frame with its tag; `own` is the sending interface's MAC as bytes."""
    return layers(frame["layers"], mark(frame["tag"]), own, macs)


def hardware(one, interface):
    """An interface's own MAC, asked of the kernel: what lies in /sys may be another network namespace's."""
    return fcntl.ioctl(one, SIOCGIFHWADDR, struct.pack("256s", interface.encode("ascii")))[18:24]


def send(order):
    """Send an order's frames in their sequence. Frames that cannot be built or sent are named, the others go out."""
    sockets, sent, failed = {}, 0, {}
    try:
        for frame in order["frames"]:
            interface = frame.get("interface") or order["interface"]
            try:
                if interface not in sockets:
                    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
                    sockets[interface] = wire, hardware(wire, interface)
                    wire.bind((interface, 0))
                wire, own = sockets[interface]
                wire.send(build(frame, own, order.get("macs", {})))
                sent += 1
            except (OSError, KeyError, ValueError, struct.error) as error:
                failed[frame["tag"]] = f"{type(error).__name__}: {error}"
    finally:
        for wire, _ in sockets.values():
            wire.close()
    return {"sent": sent, "failed": failed}


if __name__ == "__main__":
    print(json.dumps(send(json.loads(sys.argv[1]))))
