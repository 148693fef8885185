"""One line of ulogd's JSON, as the few header fields of a packet that are recorded. No I/O happens here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_PREFIX = re.compile(r"glasslab (allowed|denied) ([A-Za-z0-9][A-Za-z0-9._-]{0,62})")
_PROTOCOLS = {1: "icmp", 2: "igmp", 4: "ipip", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 51: "ah", 58: "icmpv6"}
_ETHERTYPES = {0x0806: "arp", 0x0800: "ipv4", 0x86DD: "ipv6"}
_MAX_LINE = 16_384


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of an allowed flow, or a denied packet. None: the packet has no such field."""

    verdict: str
    flow: str
    entered: str | None
    left: str | None
    source_mac: str | None
    source: str | None
    source_port: int | None
    destination: str | None
    destination_port: int | None
    protocol: str | None
    time: float
    number: int | None


class LineError(ValueError):
    """A line that is no packet of ours; the text says why."""


def parse(line: bytes) -> Packet:
    """Return the packet that a line of flows.json tells of. Raises LineError.

    ulogd prints addresses of ARP packets wrongly (a pointer in their place), so those are not taken.
    """
    if len(line) > _MAX_LINE:
        raise LineError("the line is too long")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise LineError("the line is no JSON") from None
    if not isinstance(value, dict):
        raise LineError("the line is no object")
    prefix = _PREFIX.fullmatch(str(value.get("oob.prefix", "")))
    seconds = value.get("oob.time.sec")
    if prefix is None or not isinstance(seconds, int):
        raise LineError("the packet has no prefix of ours, or no time")
    return Packet(
        verdict=prefix[1],
        flow=prefix[2],
        entered=_text(value, "oob.in"),
        left=_text(value, "oob.out"),
        source_mac=_text(value, "mac.saddr.str"),
        source=_text(value, "src_ip"),
        source_port=_number(value, "src_port"),
        destination=_text(value, "dest_ip"),
        destination_port=_number(value, "dest_port"),
        protocol=_protocol(value),
        time=round(seconds + (_number(value, "oob.time.usec") or 0) / 1e6, 6),
        number=_number(value, "oob.seq.local"),
    )


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    return text[:64] if isinstance(text, str) and text else None


def _number(value: dict[str, Any], name: str) -> int | None:
    number = value.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _protocol(value: dict[str, Any]) -> str | None:
    transport = _number(value, "ip.protocol")
    if transport is not None:
        return _PROTOCOLS.get(transport, f"ip-{transport}")
    ethertype = _number(value, "oob.protocol")
    return None if ethertype is None else _ETHERTYPES.get(ethertype, f"ether-{ethertype:04x}")
