"""What the receipt has to know of the hypervisor, and what is seen there while the probes knock.

Fed to a machine's python3 on standard input, as root; the first argument is JSON:

    {"verb": "begin", "bridge", "ports": [guests' ports], "watched": [IPv4 addresses],
     "tags": whether forged frames come}
        prints {"addresses": [[interface, address]...], "mac": the bridge's, "link_local", "rules", "versions",
        "watch": {"folder", "pid"}} and leaves a watch running, for MINUTE at most
    {"verb": "end", "watch": as begin printed it, "bridge", "neighbours": {address: MAC}}
        ends the watch and prints {"seen": [[interface, "in" or "out", protocol, source, source port or echo identifier,
        destination, port]...], "own": [[protocol, source, source port, destination, port]...] of the hypervisor's own
        connections, "tags": [[tag, interface, "in" or "out"]...], "lost": packets it missed, "rules", "believed"}
    {"verb": "believed", "bridge": an interface, "neighbours"}
        prints {"believed": what this machine believes of others that is not so}, and puts it right

Seen is what comes and goes at the guests' ports, and at every interface what is for the watched addresses: before any
packet filter when it comes in, after all of them when it goes out.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

MINUTE = 60.0
AT_MOST = 20_000  # sightings, and own connections
LOOK_EVERY = 0.05  # seconds between two looks at the own connections; a closed one is still listed for a minute
ALL = 0x0003  # ETH_P_ALL
SO_ATTACH_FILTER, SO_RCVBUFFORCE, STATISTICS = 26, 33, (263, 6)
PROTOCOLS = {1: "ping", 6: "tcp", 17: "udp", 58: "ping"}
TAG = re.compile(rb"<gl:([0-9a-f]{8})>")
LOADER = "/usr/local/sbin/glasslab-network"
NET = pathlib.Path("/sys/class/net")


def said(*command):
    """What a command prints, on both streams; empty when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def content(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def rules():
    """Whether the rules are those that were loaded, and the digests of the rule files and of what the kernel holds."""
    lines = []
    for tool in ("iptables-save", "ip6tables-save"):
        text = re.sub(r" ?\[\d+:\d+\]", "", said(tool))
        lines += [f"{tool} {line}" for line in text.splitlines() if "GLASSLAB-" in line]
    lines += re.sub(
        r"counter packets \d+ bytes \d+ ?", "", said("nft", "list", "table", "bridge", "glasslab")
    ).splitlines()
    for family in ("-4", "-6"):
        lines += [f"{family} {line}" for line in said("ip", family, "rule").splitlines() if line.startswith("47")]
    try:
        files = json.loads(content("/run/glasslab-network/loaded.json"))["digest"]
    except (ValueError, KeyError, TypeError):
        files = ""
    checked = said(LOADER, "check").strip() or f"{LOADER} cannot be run"
    mode = re.search(r'"mode": "(\w+)"', content("/etc/glasslab/network/settings.json"))
    kernel = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"mode": mode[1] if mode else None, "check": checked, "files": files, "kernel": kernel}


def versions():
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', content("/etc/os-release"), re.MULTILINE)
    found = {"system": release[1] if release else "", "kernel": os.uname().release}
    for tool in ("iptables", "nft"):
        found[tool] = (said(tool, "--version").splitlines() or [""])[0]
    if shutil.which("pveversion"):
        found["proxmox"] = said("pveversion").strip()
    return found


def addresses():
    """[interface, address] of every address of this machine that others could name, and the bridge's link-local one."""
    found = []
    for line in said("ip", "-oneline", "address", "show").splitlines():
        words = line.split()
        if words[2] in ("inet", "inet6") and words[1] != "lo":
            found.append([words[1], words[3].partition("/")[0]])
    return found


def link_local(mac):
    """The address that IPv6 derives from a hardware address: the bridge's own, also while IPv6 is off there."""
    data = bytes.fromhex(mac.replace(":", ""))
    packed = b"\xfe\x80" + bytes(6) + bytes([data[0] ^ 2]) + data[1:3] + b"\xff\xfe" + data[3:]
    return socket.inet_ntop(socket.AF_INET6, packed)


def believed(order):
    """Neighbours by another hardware address than theirs, and routes out of router advertisements; both are removed."""
    bridge, false = order["bridge"], []
    for line in content("/proc/net/arp").splitlines()[1:]:
        address, _, flags, mac, _, interface = line.split()
        if interface == bridge and flags != "0x0" and order["neighbours"].get(address, "").lower() != mac.lower():
            false.append(f"{address} is at {mac}")
            said("ip", "neighbour", "delete", address, "dev", bridge)
    for line in said("ip", "-6", "route", "show", "dev", bridge).splitlines():
        if "proto ra" in line:
            false.append(f"IPv6 route {line.split(' proto ')[0]}")
            said("ip", "-6", "route", "flush", "proto", "ra", "dev", bridge)
    return false


def endpoint(text):
    """(address, port) of what /proc/net/tcp writes: 32-bit words in this machine's byte order, then the port."""
    words, _, port = text.partition(":")
    data = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    if data.startswith(bytes(10) + b"\xff\xff"):
        data = data[12:]  # an IPv4 connection of an IPv6 socket
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def connections(folder="/proc/net"):
    """(protocol, source, source port, destination, port) of every connection of this machine's own."""
    found = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in content(f"{folder}/{name}").splitlines()[1:]:
            words = line.split()
            (source, own), (target, port) = endpoint(words[1]), endpoint(words[2])
            if port:
                found.add((name[:3], source, own, target, port))
    return found


class Watch:
    """Sockets opened before anybody knocks, and what they saw."""

    def __init__(self, ports, watched, tags):
        self.seen, self.own, self.tags, self.search, self.lost = set(), set(), set(), tags, 0
        self.sockets = [self.wire(port) for port in ports if (NET / port).exists()]
        self.sockets += [self.wire(None, [] if tags else watched)] if tags or watched else []
        self.ports, self.watched = set(ports), set(watched)

    @staticmethod
    def wire(interface, only=()):
        """Everything at an interface; with addresses, only the IPv4 packets to them, as the kernel picks them out."""
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        if only:
            code = [(0x28, 0, 0, 12), (0x15, 0, len(only) + 1, 0x0800), (0x20, 0, 0, 30)]
            for at, address in enumerate(only):
                code.append((0x15, len(only) - at, 0, struct.unpack("!I", socket.inet_aton(address))[0]))
            code += [(0x06, 0, 0, 0), (0x06, 0, 0, 262144)]
            program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(code), ctypes.addressof(program)))
        if interface:
            one.bind((interface, ALL))
        one.setblocking(False)
        return one

    def frame(self, data, where):
        """Note what one frame is. IndexError and struct.error: it is cut short, so none of ours."""
        interface, _, kind, *_ = where
        way = "out" if kind == socket.PACKET_OUTGOING else "in"
        if self.search:
            self.tags |= {(tag.decode(), interface, way) for tag in TAG.findall(data)}
        ethertype = struct.unpack_from("!H", data, 12)[0]
        if ethertype == 0x0800:
            number, start = data[23], 14 + 4 * (data[14] & 15)
            source, target = (socket.inet_ntoa(data[at : at + 4]) for at in (26, 30))
        elif ethertype == 0x86DD:
            number, start = data[20], 54
            source, target = (socket.inet_ntop(socket.AF_INET6, data[at : at + 16]) for at in (22, 38))
        elif ethertype == 0x0806:
            number, start = 0, 0
            source, target = (socket.inet_ntoa(data[at : at + 4]) for at in (28, 38))
        else:
            return
        if interface not in self.ports and target not in self.watched:
            return
        if ethertype == 0x0806:
            own, port = 0, None
        elif number in (6, 17):
            own, port = struct.unpack_from("!HH", data, start)
        elif number in (1, 58):
            own, port = struct.unpack_from("!H", data, start + 4)[0], None
        else:
            return
        if len(self.seen) < AT_MOST:
            self.seen.add((interface, way, PROTOCOLS.get(number, "arp"), source, own, target, port))
        else:
            self.lost += 1

    def read(self):
        for one in self.sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, where = one.recvfrom(65535)
                    with contextlib.suppress(IndexError, struct.error, OSError, ValueError):
                        self.frame(data, where)

    def look(self):
        """Note the connections to what is watched; listeners and what is none of the receipt's are left out."""
        if len(self.own) < AT_MOST:
            self.own |= {one for one in connections() if one[3] in self.watched}

    def until_told(self, folder):
        """Watch until SIGTERM, or for a minute when nobody asks."""
        enough = []
        signal.signal(signal.SIGTERM, lambda *_: enough.append(True))
        until, look = time.monotonic() + MINUTE, 0.0
        while not enough and time.monotonic() < until:
            if time.monotonic() >= look:
                self.look()
                look = time.monotonic() + LOOK_EVERY
            select.select(self.sockets, [], [], LOOK_EVERY)
            self.read()
        self.look()
        self.read()
        if not enough:
            shutil.rmtree(folder, ignore_errors=True)
            return
        lost = self.lost + sum(struct.unpack("II", one.getsockopt(*STATISTICS, 8))[1] for one in self.sockets)
        result = {"seen": sorted(self.seen, key=str), "own": sorted(self.own), "tags": sorted(self.tags), "lost": lost}
        (folder / "new").write_text(json.dumps(result), encoding="ascii")
        (folder / "new").rename(folder / "result")


def begin(order):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="glasslab-verify-", dir="/run"))
    watch = Watch(order["ports"], order["watched"], order["tags"])
    pid = os.fork()
    if pid == 0:
        # A process of its own that holds none of our streams: whoever waits for their end need not wait for it.
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        try:
            watch.until_told(folder)
        finally:
            os._exit(0)
    mac = content(NET / order["bridge"] / "address")
    return {
        "addresses": addresses(),
        "mac": mac,
        "link_local": link_local(mac) if mac else "",
        "rules": rules(),
        "versions": versions(),
        "watch": {"folder": str(folder), "pid": pid},
    }


def end(order):
    folder, until = pathlib.Path(order["watch"]["folder"]), time.monotonic() + 5
    with contextlib.suppress(ProcessLookupError):
        os.kill(order["watch"]["pid"], signal.SIGTERM)
    while not (folder / "result").exists() and time.monotonic() < until:
        time.sleep(0.02)
    found = json.loads(content(folder / "result") or "{}")
    shutil.rmtree(folder, ignore_errors=True)
    return {**found, "rules": rules(), "believed": believed(order)}


VERBS = {"begin": begin, "end": end, "believed": lambda order: {"believed": believed(order)}}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(VERBS[asked["verb"]](asked)))
