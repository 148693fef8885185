"""Knock on a list of doors, all at once, and say what answered.

Fed to a machine's python3 on standard input; the first argument is JSON: {"timeout": seconds, "place": name, "targets":
[{"name", "addresses", "tcp": [ports], "udp": [ports], "ping": true, "dns": name, "expected", "control"}]}. The place
`agent` knocks on every target, any other on those whose control it is. Prints {place: [one object a probe]}, with
`answer`: `open`, `refused` (a closed port that answers is reached all the same), `silent`, or `error: ...` when the
probe itself could not be made or does not work on this machine; `time` (seconds since the epoch) and `hop` (the way it
took: a gateway, `on link` or `no route`). Harmless: connections without data, two datagrams, two echo requests, two
lookups.
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
SHUT = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address: str, port: int, timeout: float) -> str:
    with socket.socket(family(address), socket.SOCK_STREAM) as one:
        one.settimeout(timeout)
        one.connect(socket.getaddrinfo(address, port, proto=socket.IPPROTO_TCP)[0][4])
    return "open"


def exchange(one: socket.socket, packets: list[bytes], mine, timeout: float) -> str:
    """Send one packet after the other (one may be lost while a neighbour is looked up) until an answer is ours."""
    for packet in packets:
        one.send(packet)
        until = time.monotonic() + timeout / len(packets)
        while (left := until - time.monotonic()) > 0:
            if select.select([one], [], [], left)[0] and mine(one.recv(4096)):
                return "open"
    return "silent"


def udp(address: str, port: int, timeout: float) -> str:
    with socket.socket(family(address), socket.SOCK_DGRAM) as one:
        one.connect(socket.getaddrinfo(address, port, proto=socket.IPPROTO_UDP)[0][4])
        return exchange(one, [b"glasslab probe"] * 2, lambda _: True, timeout)


def dns(address: str, port: int, timeout: float, question: str) -> str:
    """Any well-formed reply to an A query of ours counts, also one that knows no such name."""
    number = os.urandom(2)
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in question.rstrip(".").split("."))
    query = number + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + labels + struct.pack("!xHH", 1, 1)
    with socket.socket(family(address), socket.SOCK_DGRAM) as one:
        one.connect((address, port))
        return exchange(
            one, [query] * 2, lambda reply: reply[:2] == number and len(reply) > 2 and reply[2] & 0x80, timeout
        )


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ping(address: str, timeout: float) -> str:
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
        return exchange(one, [request] * 2, mine, timeout)


def knock(probe: dict, timeout: float) -> dict:
    address, protocol = probe["address"], probe["protocol"]
    try:
        if protocol == "ping":
            answer = ping(address, timeout)
        elif protocol == "dns":
            answer = dns(address, probe["port"], timeout, probe["question"])
        else:
            answer = {"tcp": tcp, "udp": udp}[protocol](address, probe["port"], timeout)
    except TimeoutError:
        answer = "silent"
    except OSError as error:
        if isinstance(error, ConnectionRefusedError):
            answer = "refused"
        elif error.errno in SHUT:
            answer = "silent"
        else:
            answer = f"error: {error}"  # EPERM too: no right to a raw socket, or a rule on the own machine
    return {**probe, "answer": answer, "hop": hop(address), "time": time.time()}


def hop(address: str) -> str:
    """By which way packets to an IPv4 address leave: a needed flow by the same way shows that it carries."""
    if ":" in address:
        return "IPv6"
    wanted = struct.unpack("=I", socket.inet_aton(address))[0]
    best = (-1, "no route")
    for line in pathlib.Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
        _, target, gateway, _, _, _, _, mask, *_ = line.split()
        length = int(mask, 16).bit_count()
        if wanted & int(mask, 16) == int(target, 16) and length > best[0]:
            way = int(gateway, 16)
            best = (length, socket.inet_ntoa(struct.pack("=I", way)) if way else "on link")
    return best[1]


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


def probes(target: dict) -> list[dict]:
    """One entry a probe of a target."""
    common = {"target": target["name"], "expected": target["expected"], "control": target["control"]}
    found = []
    for address in target["addresses"]:
        one = {**common, "address": address}
        for protocol in ("tcp", "udp"):
            found += [{**one, "protocol": protocol, "port": port} for port in target.get(protocol) or []]
        if target.get("dns"):
            found.append({**one, "protocol": "dns", "port": 53, "question": target["dns"]})
        if target.get("ping"):
            found.append({**one, "protocol": "ping", "port": None})
    return found


def main() -> None:
    order = json.loads(sys.argv[1])
    ours = [target for target in order["targets"] if order["place"] in ("agent", target["control"])]
    doors = [probe for target in ours for probe in probes(target)]
    timeout = float(order["timeout"])
    fails = broken(timeout)
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(128, len(doors) or 1)) as pool:
        seen = list(pool.map(lambda probe: knock(probe, timeout), doors))
    for probe in seen:
        if probe["answer"] == "silent" and probe["protocol"] in fails:
            probe["answer"] = fails[probe["protocol"]]
    print(json.dumps({order["place"]: seen}))


if __name__ == "__main__":
    main()
