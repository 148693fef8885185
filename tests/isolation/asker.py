"""Asks in many ways at once and says what came back. Fed to a machine's python3 on standard input.

The first argument is a JSON list of questions: {"way": "tls" | "raw" | "dns", "to": [address, port], ...}.
  tls: "sni" (or none), "verify" (the name the certificate must have; without it the issuer alone is checked), "send"
       (text, sent encrypted), "ca" (the issuer's certificate as PEM text)
  raw: "send" (hex), "pieces" (the text is sent in so many parts, "pause" seconds apart)
  dns: "name", "type", "class", "tcp"
All take "timeout". The answer is a JSON list in the same order: {"end": ..., "got": text, "took": seconds}, where end
is `answered`, `closed` (by the other side, without a word), `refused`, `silent` or `error: ...`.
"""

import json
import socket
import ssl
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

TYPES = {"A": 1, "NS": 2, "SOA": 6, "NULL": 10, "PTR": 12, "TXT": 16, "AAAA": 28, "SVCB": 64, "HTTPS": 65}
TYPES |= {"IXFR": 251, "AXFR": 252, "ANY": 255}
CODES = {0: "NOERROR", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}


def connected(question: dict[str, Any], kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    one = socket.socket(socket.AF_INET, kind)
    one.settimeout(question.get("timeout", 1.5))
    one.connect(tuple(question["to"]))
    return one


def everything(one: socket.socket, at_most: int = 65536) -> bytes:
    """What comes until the other side ends, falls silent or has said enough."""
    got = b""
    try:
        while len(got) < at_most and (more := one.recv(at_most)):
            got += more
    except TimeoutError:
        if not got:
            raise
    return got


def tls(question: dict[str, Any]) -> bytes:
    context = ssl.create_default_context(cadata=question["ca"])
    context.check_hostname = False  # what is asked for and what must be proven may differ: compared below
    with connected(question) as plain, context.wrap_socket(plain, server_hostname=question.get("sni")) as one:
        names = [value for kind, value in one.getpeercert()["subjectAltName"] if kind == "DNS"]
        wanted = question.get("verify")
        if wanted and wanted not in names:
            raise ssl.SSLCertVerificationError(f"certificate is for {names}")
        if "send" not in question:
            return b"handshake"
        one.sendall(question["send"].encode())
        return everything(one)


def raw(question: dict[str, Any]) -> bytes:
    data = bytes.fromhex(question["send"])
    size = -(-len(data) // question.get("pieces", 1)) or 1
    with connected(question) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size):
            one.sendall(data[start : start + size])
            time.sleep(question.get("pause", 0))
        return everything(one)


def dns(question: dict[str, Any]) -> bytes:
    labels = [label.encode() for label in question["name"].split(".") if label]
    asked = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    asked += struct.pack(">HH", TYPES[question.get("type", "A")], question.get("class", 1))
    message = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + asked
    over_tcp = question.get("tcp", False)
    with connected(question, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as one:
        one.send((struct.pack(">H", len(message)) if over_tcp else b"") + message)
        reply = one.recv(4096)[2 if over_tcp else 0 :]
    if reply[:2] != message[:2] or len(reply) < len(message):
        return reply
    code, answers, rest = reply[3] & 15, struct.unpack(">H", reply[6:8])[0], reply[len(message) :]
    said = CODES.get(code, str(code)) + ("" if answers or code else " NODATA")
    last = socket.inet_ntoa(rest[-4:]) if answers == 1 and len(rest) == 16 else rest[12:].hex()
    return f"{said} {last}".strip().encode()


def ask(question: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    got = b""
    try:
        got = {"tls": tls, "raw": raw, "dns": dns}[question["way"]](question)
        end = "answered" if got else "closed"
    except TimeoutError:
        end = "silent"
    except ConnectionRefusedError:
        end = "refused"
    except (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError):
        end = "closed"
    except OSError as error:
        end = f"error: {error}"
    return {"end": end, "got": got.decode("latin-1"), "took": round(time.monotonic() - began, 3)}


if __name__ == "__main__":
    questions = json.loads(sys.argv[1])
    with ThreadPoolExecutor(64) as pool:
        print(json.dumps(list(pool.map(ask, questions))))
