"""Knock on a list of doors, all at once, and say what answered.

Fed to a machine's python3 on standard input; the first argument is JSON: {"timeout": seconds, "doors": [{"address",
"protocol": tcp, udp, dns, ping or tls, "port", "name": that is looked up (dns) or asked for (tls), "frame": MAC,
"patient"}...], "ca": text of the CA for tls, or null for the system's, "system_ca": whether the system's count beside
it, "sandbox": {name: value} of /proc/self/status}.
A door with `frame` is IPv6 and knocked on by frames of our own to that MAC: no route and no neighbour is needed. Prints
the doors, each with

    answer  open; refused (a closed port that answers is reached all the same); silent; denied (this machine's own
            kernel forbids it to this process); for tls also foreign (somebody shook hands, whose certificate does not
            hold) and cut (accepted, and ended before any certificate); or `error: ...` when the probe could not be made
            or does not work on this machine
    source, mark   the own address, and the own port or echo identifier, by which it is known on its way
    time    in seconds since the epoch

With `sandbox`, the process is to be in that sandbox, or every answer is an error. Harmless: connections without data,
two datagrams, two echo requests, two lookups, a TLS handshake.
"""

import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import select
import socket
import struct
import sys
import threading
import time

# What routers and the own machine say about a way that is shut; the target itself said nothing.
PATIENCE = 3  # times the timeout, where an answer is expected
REFUSED = 5  # what a resolver says when it answers no such question
SHUT = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextlib.contextmanager
def noted(one: socket.socket, own: dict):
    """Whatever comes of it: by which address and port it went."""
    try:
        yield
    finally:
        own["source"], own["mark"] = one.getsockname()[:2]


def tcp(address: str, port: int, timeout: float, own: dict) -> str:
    with socket.socket(family(address), socket.SOCK_STREAM) as one, noted(one, own):
        one.settimeout(timeout)
        one.connect(socket.getaddrinfo(address, port, proto=socket.IPPROTO_TCP)[0][4])
    return "open"


def tls(address: str, port: int, timeout: float, own: dict, name: str, ca: str | None = None, system=False) -> str:
    """A handshake in which a name is asked for; an empty one asks for none."""
    import ssl  # here, since most places try no names and it takes longer to load than all the rest

    context = ssl.create_default_context(cadata=None if system else ca)
    if ca and system:
        context.load_verify_locations(cadata=ca)
    context.check_hostname = bool(name)
    with socket.socket(family(address), socket.SOCK_STREAM) as one, noted(one, own):
        one.settimeout(timeout)
        one.connect(socket.getaddrinfo(address, port, proto=socket.IPPROTO_TCP)[0][4])
        try:
            with context.wrap_socket(one.dup(), server_hostname=name or None):
                return "open"
        except ssl.SSLCertVerificationError:
            return "foreign"
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            return "cut"
        except ssl.SSLError:  # an alert, or no TLS: somebody answered
            return "foreign"


def exchange(one: socket.socket, packets: list[bytes], mine, timeout: float) -> str:
    """Send one packet after the other (one may be lost while a neighbour is looked up) until an answer is ours."""
    for packet in packets:
        one.send(packet)
        until = time.monotonic() + timeout / len(packets)
        while (left := until - time.monotonic()) > 0:
            if select.select([one], [], [], left)[0] and mine(one.recv(4096)):
                return "open"
    return "silent"


def udp(address: str, port: int, timeout: float, own: dict) -> str:
    with socket.socket(family(address), socket.SOCK_DGRAM) as one, noted(one, own):
        one.connect(socket.getaddrinfo(address, port, proto=socket.IPPROTO_UDP)[0][4])
        return exchange(one, [b"glasslab probe"] * 2, lambda _: True, timeout)


def dns(address: str, port: int, timeout: float, own: dict, question: str) -> str:
    """Any well-formed reply to an A query of ours counts, also one that knows no such name; `cut` for a refusal."""
    codes: list[int] = []

    def mine(reply: bytes) -> bool:
        if reply[:2] == number and len(reply) > 3 and reply[2] & 0x80:
            codes.append(reply[3] & 15)
        return bool(codes)

    number = os.urandom(2)
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in question.rstrip(".").split("."))
    query = number + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + labels + struct.pack("!xHH", 1, 1)
    with socket.socket(family(address), socket.SOCK_DGRAM) as one, noted(one, own):
        one.connect((address, port))
        answer = exchange(one, [query] * 2, mine, timeout)
    return "cut" if codes == [REFUSED] else answer


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ping(address: str, timeout: float, own: dict) -> str:
    six = family(address) == socket.AF_INET6
    number = os.urandom(2)
    body = number + struct.pack("!H", 1) + b"glasslab"
    request = struct.pack("!BBH", 8, 0, checksum(b"\x08\0\0\0" + body)) + body
    if six:  # the kernel fills in the checksum of ICMPv6
        request = b"\x80\0\0\0" + body

    def mine(reply: bytes) -> bool:
        message = reply if six else reply[(reply[0] & 15) * 4 :]
        return message[:1] == (b"\x81" if six else b"\0") and message[4:6] == number

    with socket.socket(family(address), socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP) as one:
        where = socket.getaddrinfo(address, None)[0][4]
        if address.lower().startswith("ff"):  # a group's members answer from addresses of their own
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)  # this machine is no answer
            one.sendto(request, where)
            one.settimeout(timeout)
            with contextlib.suppress(TimeoutError):
                while not mine(one.recv(4096)):
                    pass
                return "open"
            return "silent"
        one.connect(where)
        own |= {"source": one.getsockname()[0], "mark": int.from_bytes(number, "big")}
        return exchange(one, [request] * 2, mine, timeout)


def knock(door: dict, timeout: float, *ca) -> dict:
    """The door with what answered. An address that is a name is looked up by this machine's own resolver."""
    timeout *= PATIENCE if door.get("patient") else 1
    address, protocol = door["address"], door["protocol"]
    own: dict = {"source": None, "mark": None}
    try:
        if protocol == "ping":
            answer = ping(address, timeout, own)
        elif protocol == "dns":
            answer = dns(address, door["port"], timeout, own, door["name"])
        elif protocol == "tls":
            answer = tls(address, door["port"], timeout, own, door["name"], *ca)
        else:
            answer = {"tcp": tcp, "udp": udp}[protocol](address, door["port"], timeout, own)
    except TimeoutError:
        answer = "silent"
    except OSError as error:
        if isinstance(error, ConnectionRefusedError):
            answer = "refused"
        elif error.errno in SHUT:
            answer = "silent"
        elif error.errno in (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT):
            answer = "denied"  # no right to a socket, or a rule on the own machine
        else:
            answer = f"error: {error}"
    return {**door, **own, "answer": answer, "time": time.time()}


def interface() -> str:
    """By which the default route leaves, or the first one there is."""
    lines = [line.split() for line in pathlib.Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]]
    return next((line[0] for line in sorted(lines, key=lambda line: line[1] != "00000000")), "eth0")


def own6(mac: bytes) -> bytes:
    """The link-local address that IPv6 derives from a hardware address."""
    return b"\xfe\x80" + bytes(6) + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]


def sum6(source: bytes, target: bytes, number: int, data: bytes) -> int:
    return checksum(source + target + struct.pack("!II", len(data), number) + data + bytes(len(data) % 2))


def frames(doors: list[dict], timeout: float) -> list[dict]:
    """Knock over IPv6 with frames of our own, as one does who has no route and gets no answer to neighbour questions.

    That somebody asks for our hardware address counts as an answer to all: he has got something, and wants to reply.
    """
    name = interface()
    seen = [{**door, "answer": "silent", "time": time.time()} for door in doors]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD)) as wire:
        wire.bind((name, 0x86DD))
        mac = wire.getsockname()[4]
        source = own6(mac)
        for number, one in enumerate(seen):
            target, mark = socket.inet_pton(socket.AF_INET6, one["address"]), 50000 + number
            one |= {"source": socket.inet_ntop(socket.AF_INET6, source), "mark": mark}
            if one["protocol"] == "ping":
                kind, at, body = 58, 2, struct.pack("!BBHHH", 128, 0, 0, mark, 1)
            elif one["protocol"] == "tcp":
                kind, at, body = 6, 16, struct.pack("!HHIIBBHHH", mark, one["port"], 7, 0, 0x50, 2, 64240, 0, 0)
            else:
                kind, at, body = 17, 6, struct.pack("!HHHH", mark, one["port"], 16, 0) + b"glasslab"
            body = body[:at] + struct.pack("!H", sum6(source, target, kind, body)) + body[at + 2 :]
            head = struct.pack("!IHBB", 6 << 28, len(body), kind, 64) + source + target
            wire.send(bytes.fromhex(one["frame"].replace(":", "")) + mac + b"\x86\xdd" + head + body)
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            if not select.select([wire], [], [], left)[0]:
                break
            data, where = wire.recvfrom(4096)
            if where[2] == socket.PACKET_OUTGOING or len(data) < 62:
                continue
            if data[20] == 58 and data[54] == 135 and data[62:78] == source:
                for one in seen:
                    one["answer"] = "refused" if one["answer"] == "silent" else one["answer"]
            if data[38:54] != source:
                continue
            if data[20] == 58 and data[54] == 129:
                mark, answer = struct.unpack_from("!H", data, 58)[0], "open"
            elif data[20] in (6, 17):
                mark = struct.unpack_from("!H", data, 56)[0]
                answer = "refused" if data[20] == 6 and data[67] & 4 else "open"
            else:
                continue
            for one in seen:
                if one["mark"] == mark:
                    one["answer"] = answer
    return seen


def broken(timeout: float) -> dict[str, str]:
    """Ways of knocking that do not work on this machine, tried on itself: their silence would say nothing."""
    found = {}
    with socket.create_server(("127.0.0.1", 0)) as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
        echo.bind(("127.0.0.1", 0))
        echo.settimeout(timeout)

        def reply() -> None:
            with contextlib.suppress(TimeoutError):
                data, peer = echo.recvfrom(4096)
                echo.sendto(data, peer)

        thread = threading.Thread(target=reply)
        thread.start()
        for protocol, port in (("tcp", stream.getsockname()[1]), ("udp", echo.getsockname()[1]), ("ping", None)):
            seen = knock({"protocol": protocol, "address": "127.0.0.1", "port": port}, timeout)
            if seen["answer"] != "open":
                found[protocol] = f"error: {protocol} does not work on this machine: got {seen['answer']} from itself"
        thread.join()
    return found


def strange(expected: dict) -> str:
    """In what this process's sandbox differs from the one it is to be in; empty when in nothing."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    own = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return ", ".join(
        f"{name} {own.get(name)} instead of {value}" for name, value in expected.items() if own.get(name) != value
    )


def main() -> None:
    order = json.loads(sys.argv[1])
    timeout, doors = float(order["timeout"]), order["doors"]
    plain = [door for door in doors if not door.get("frame")]
    framed = [door for door in doors if door.get("frame")]
    # In the sandbox a process may not serve itself: there, the needed flows show that its ways of knocking work.
    fails = {} if order.get("sandbox") else broken(timeout)
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(160, len(plain) + 1)) as pool:
        sent = pool.submit(frames, framed, timeout) if framed else None
        seen = list(pool.map(lambda door: knock(door, timeout, order.get("ca"), order.get("system_ca")), plain))
        seen += sent.result() if sent else []
    other = strange(order["sandbox"]) if order.get("sandbox") else ""
    for one in seen:
        if other:
            one["answer"] = f"error: not in the sandbox it is to be in: {other}"
        elif one["answer"] == "silent" and not one.get("frame"):
            one["answer"] = fails.get(one["protocol"], "silent")
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
