"""What the tests of egress share: questions asked from a place, and a resolver that says what a test wants."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isolationtools import command, pve, run
from labtools import STATE

Question = dict[str, Any]
ASKER = (Path(__file__).parent / "asker.py").read_text(encoding="utf-8")
AGENT, LOGS = ("exec", "agent"), ("exec", "logs")
CTL, INTERNET = ("ns-exec", "ctl"), ("ns-exec", "internet")
MODEL, MODEL_ADDRESS = "model.glasslab.test", "203.0.113.10"
RESOLVER = "203.0.113.53"
SHUT = {"silent", "closed"}  # not `refused`: whoever refuses was reached


def asked(place: tuple[str, str], questions: list[Question]) -> list[dict[str, Any]]:
    """What comes back to that place, question by question."""
    authority = (STATE / "ca/ca.crt").read_text(encoding="utf-8")
    given = [{"ca": authority, **question} for question in questions]
    found: list[dict[str, Any]] = json.loads(run(place, "python3", "-", json.dumps(given), stdin=ASKER).stdout)
    return found


def ends(place: tuple[str, str], questions: list[Question]) -> list[str]:
    """How each question ended there."""
    return [one["end"] for one in asked(place, questions)]


def tls(sni: str | None, address: str = MODEL_ADDRESS, port: int = 443, **more: Any) -> Question:
    """A TLS handshake, verified, with a server name or none."""
    return {"way": "tls", "to": [address, port], "sni": sni, **more}


def raw(data: bytes, address: str = MODEL_ADDRESS, port: int = 443, **more: Any) -> Question:
    """Bytes over TCP."""
    return {"way": "raw", "to": [address, port], "send": data.hex(), **more}


def dns(name: str, kind: str = "A", address: str = RESOLVER, port: int = 53, **more: Any) -> Question:
    """A DNS query."""
    return {"way": "dns", "to": [address, port], "name": name, "type": kind, **more}


def hello(sni: str | None) -> bytes:
    """A ClientHello as a TLS library writes it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    connection = context.wrap_bio(incoming, outgoing, server_hostname=sni)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def extended(message: bytes, kind: int, content: bytes) -> bytes:
    """A ClientHello with one more extension at its end."""
    extra = kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
    body = message[9:]
    at = 34  # version and random
    at += 1 + body[at]  # session
    at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
    at += 1 + body[at]  # compression
    size = int.from_bytes(body[at : at + 2], "big") + len(extra)
    body = body[:at] + size.to_bytes(2, "big") + body[at + 2 :] + extra
    handshake = message[5:6] + len(body).to_bytes(3, "big") + body
    return message[:3] + len(handshake).to_bytes(2, "big") + handshake


# Answers what it is told to on standard input, one JSON object a line; NXDOMAIN for the rest.
SAYER = """
import json, select, socket, sys
answers, buffered = {}, sys.stdin.buffer.raw
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 53))
print("up", flush=True)
while True:
    for ready in select.select([one, buffered], [], [])[0]:
        if ready is buffered:
            told = buffered.read(4096)
            if not told:
                sys.exit()
            answers = json.loads(told)
            print("told", flush=True)
            continue
        query, peer = one.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        kind, address = query[at + 1 : at + 5], answers.get(".".join(labels).lower(), "")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        fits = address and kind == (b"\\0\\x1c\\0\\1" if ":" in address else b"\\0\\1\\0\\1")
        data = socket.inet_pton(family, address) if fits else b""
        record = b"\\xc0\\x0c" + kind + b"\\0\\0\\0\\1" + len(data).to_bytes(2, "big") + data if fits else b""
        head = query[:2] + (b"\\x81\\x80\\0\\1" if address else b"\\x81\\x83\\0\\1")
        one.sendto(head + bytes([0, 1 if fits else 0, 0, 0, 0, 0]) + query[12 : at + 5] + record, peer)
"""
OWN_RESOLVER = "203.0.113.99"
PROXY = "/etc/glasslab/network/proxy.cfg"
RESTART = (
    "systemctl restart glasslab-proxy && "
    "for _ in $(seq 100); do ss -Hltn 'sport = :14000' | grep -q . && exit 0; sleep 0.05; done; exit 1"
)


class Sayer:
    """The hypervisor's resolver while a test has the word."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self, address: str) -> None:
        """From now on the model's name leads to that address; returns once the proxy must have heard."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({MODEL: address}))
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "told\n"
        time.sleep(0.5)


@contextmanager
def hypervisor_asks_us() -> Iterator[Sayer]:
    """For this block the hypervisor's own resolver says what the test wants, at first nothing; the proxy asks often."""
    run(INTERNET, "ip", "address", "add", f"{OWN_RESOLVER}/24", "dev", "eth0")
    often = "s/timeout resolve .*/timeout resolve 100ms/; s/hold valid .*/hold valid 50ms/"
    pve(f"cp {PROXY} /root/proxy.cfg.asking; sed -i '{often}' {PROXY}; cp /etc/resolv.conf /root/resolv.conf.kept")
    words = ("python3", "-c", SAYER, OWN_RESOLVER)
    try:
        with subprocess.Popen(command(INTERNET, *words), stdin=-1, stdout=-1, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            pve(f"echo nameserver {OWN_RESOLVER} >/etc/resolv.conf; {RESTART}")
            yield Sayer(process)
            process.communicate(timeout=10)
    finally:
        run(INTERNET, "ip", "address", "delete", f"{OWN_RESOLVER}/24", "dev", "eth0")
        pve(f"mv /root/resolv.conf.kept /etc/resolv.conf; mv /root/proxy.cfg.asking {PROXY}; {RESTART}")


@contextmanager
def proxy_without(pattern: str) -> Iterator[None]:
    """For this block the proxy lacks the lines that match."""
    changed = f"sed -i '/{pattern}/d' {PROXY}; ! cmp --silent /root/proxy.cfg.kept {PROXY}"
    try:
        pve(f"cp {PROXY} /root/proxy.cfg.kept; {changed} && {RESTART}")
        yield
    finally:
        pve(f"mv /root/proxy.cfg.kept {PROXY}; {RESTART}")


def queries_upstream() -> list[str]:
    """Every query that the lab's resolver has seen, one line each, letters as they came."""
    lines = (STATE / "log/resolver.log").read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split(": ", 1)[1] for line in lines if ": query[" in line]


# What a guest's kernel says unasked where IPv6 is on: it looks for routers, and tells which groups it listens to.
OF_THE_KERNEL = '"dest_ip": "ff02::\\(2\\|16\\)"'


def denied() -> int:
    """Packets that the hypervisor has denied so far: by its rules' own counters, and as its witness wrote them down.

    Without a guest's own looking for IPv6 routers, which is denied as well and belongs to no flow.
    """
    counters = re.findall(r"^\[(\d+):.*glasslab denied", pve("iptables-save --counters"), re.MULTILINE)
    assert counters, "no rule logs what is denied"
    witnessed = f"grep denied /var/log/glasslab/flows.json | grep --invert-match --count '{OF_THE_KERNEL}'; true"
    return sum(map(int, counters)) + int(pve(witnessed))
