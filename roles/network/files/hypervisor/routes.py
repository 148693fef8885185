"""Policy routes: what from the lab's bridge may be routed at all. No flush of packet rules opens them.

Told to the kernel directly: no program is needed, and a rule that was deleted is back within a millisecond.
"""

from __future__ import annotations

import errno
import ipaddress
import pathlib
import socket
import struct
from typing import NamedTuple

from . import netlink
from .kernel import Failure

NEWRULE, DELRULE, GETRULE = 32, 33, 34
# linux/fib_rules.h
DST, SRC, IIF, PRIORITY, FWMARK, TABLE, FWMASK, OIF, PROTOCOL = 1, 2, 3, 6, 10, 15, 16, 17, 21
SUPPRESS_GROUP, SUPPRESS_LENGTH, PAD = 13, 14, 18
UNDERSTOOD = (DST, SRC, IIF, PRIORITY, FWMARK, TABLE, FWMASK, OIF, PROTOCOL, PAD)
ACTIONS = {"lookup": 1, "blackhole": 6, "unreachable": 7, "prohibit": 8}
TABLES = {"local": 255, "main": 254, "default": 253}
FAMILIES = {"-4": socket.AF_INET, "-6": socket.AF_INET6}
INVERT = 2
PROTO_GLASSLAB = 0x47  # `ip rule` shows it as `proto 71`: how a rule of ours is known when the policy has changed
IPV6 = pathlib.Path("/proc/sys/net/ipv6")
HEADER = struct.Struct("=BBBBBBBBI")  # struct fib_rule_hdr


class Rule(NamedTuple):
    """One policy route; two that are equal do the same."""

    family: int
    pref: int
    action: int
    table: int = 0
    iif: str = ""
    oif: str = ""
    source: str = ""
    to: str = ""
    mark: int = 0
    mask: int = 0
    other: tuple[tuple[int, bytes], ...] = ()  # what this program never asks for

    def __str__(self) -> str:
        """As `ip rule` would say it, shortened."""
        names = {number: name for name, number in ACTIONS.items()}
        words = [f"ip {'-6' if self.family == socket.AF_INET6 else '-4'} rule pref {self.pref}"]
        words += [f"from {self.source}"] * bool(self.source) + [f"to {self.to}"] * bool(self.to)
        words += [f"iif {self.iif}"] * bool(self.iif) + [f"oif {self.oif}"] * bool(self.oif)
        words += [f"fwmark {self.mark:#x}/{self.mask:#x}"] * bool(self.mask)
        words += ["on a condition of somebody's"] * bool(self.other)
        words.append(f"lookup {self.table}" if self.action == 1 else names.get(self.action, str(self.action)))
        return " ".join(words)


def parse(words: list[str]) -> Rule:
    """A rule from the arguments of `ip rule`; Failure for a word that is not understood here."""
    said = " ".join(words)
    try:
        values: dict[str, object] = {"family": FAMILIES[words[0]]}
        rest = iter(words[1:])
        for word in rest:
            if word in ("pref", "priority", "preference"):
                values["pref"] = int(next(rest))
            elif word in ("iif", "oif"):
                values[word] = next(rest)
            elif word in ("from", "to"):
                values["source" if word == "from" else "to"] = str(ipaddress.ip_network(next(rest)))
            elif word == "fwmark":
                mark, _, mask = next(rest).partition("/")
                values |= {"mark": int(mark, 0), "mask": int(mask or "0xffffffff", 0)}
            elif word in ("lookup", "table"):
                table = next(rest)
                values |= {"action": ACTIONS["lookup"], "table": TABLES.get(table) or int(table)}
            else:
                values["action"] = ACTIONS[word]
        return Rule(**values)  # type: ignore[arg-type]  # the names above are the tuple's own
    except (KeyError, ValueError, StopIteration, TypeError, IndexError) as error:
        raise Failure(f"settings.json: ip_rules: `{said}` is not understood ({error!r})") from error


def wanted(ip_rules: list[list[str]]) -> list[Rule]:
    """The rules of the settings; without IPv6 in the kernel those for IPv4."""
    rules = [parse(words) for words in ip_rules]
    return [rule for rule in rules if rule.family == socket.AF_INET or IPV6.exists()]


def encode(rule: Rule) -> bytes:
    """The body of the message that adds or deletes it."""
    lengths, parts = [], []
    for kind, text in ((DST, rule.to), (SRC, rule.source)):
        network = ipaddress.ip_network(text) if text else None
        lengths.append(network.prefixlen if network else 0)
        parts += [netlink.attribute(kind, network.network_address.packed)] if network else []
    for kind, name in ((IIF, rule.iif), (OIF, rule.oif)):
        parts += [netlink.attribute(kind, name.encode() + b"\0")] if name else []
    numbers = {PRIORITY: rule.pref} | ({FWMARK: rule.mark, FWMASK: rule.mask} if rule.mask else {})
    numbers |= {TABLE: rule.table} if rule.table else {}
    parts += [netlink.attribute(kind, struct.pack("=I", number)) for kind, number in numbers.items()]
    parts.append(netlink.attribute(PROTOCOL, bytes([PROTO_GLASSLAB])))
    table = rule.table if rule.table < 256 else 0
    return HEADER.pack(rule.family, *lengths, 0, table, 0, 0, rule.action, 0) + b"".join(parts)


class Standing(NamedTuple):
    """A rule in the kernel, whether this program put it there, and the kernel's own words for it."""

    rule: Rule
    ours: bool
    body: bytes


def decode(body: bytes) -> Standing:
    """A rule as the kernel describes it."""
    family, to_length, source_length, tos, table, _, _, action, flags = HEADER.unpack_from(body)
    found = dict(netlink.attributes(body[HEADER.size :]))

    def number(kind: int) -> int:
        return int.from_bytes(found.get(kind, b""), "little" if struct.pack("=H", 1)[0] else "big")

    def network(kind: int, length: int) -> str:
        return f"{socket.inet_ntop(family, found[kind])}/{length}" if kind in found else ""

    # Whatever else the kernel tells of a rule makes it another one, also what later kernels know: it may fit less.
    other = [
        (kind, value)
        for kind, value in sorted(found.items())
        if kind not in UNDERSTOOD and not (kind in (SUPPRESS_GROUP, SUPPRESS_LENGTH) and value == b"\xff" * 4)
    ]
    other += [(-1, bytes([tos, flags & INVERT]))] if tos or flags & INVERT else []
    rule = Rule(
        family=family,
        pref=number(PRIORITY),
        action=action,
        table=number(TABLE) or table,
        iif=found.get(IIF, b"").rstrip(b"\0").decode(errors="backslashreplace"),
        oif=found.get(OIF, b"").rstrip(b"\0").decode(errors="backslashreplace"),
        source=network(SRC, source_length),
        to=network(DST, to_length),
        mark=number(FWMARK),
        mask=number(FWMASK) if FWMARK in found else 0,
        other=tuple(other),
    )
    return Standing(rule, found.get(PROTOCOL) == bytes([PROTO_GLASSLAB]), body)


def standing() -> list[Standing]:
    """All policy routes of the machine."""
    found = []
    for family in FAMILIES.values():
        try:
            answers = netlink.request(netlink.ROUTE, GETRULE, HEADER.pack(family, *[0] * 8), netlink.DUMP)
        except OSError as error:
            raise Failure(f"the kernel does not list its policy routes ({error.strerror})") from error
        found += [decode(body) for kind, body in answers if kind == NEWRULE and body[0] == family]
    return found


def _stale(rules: list[Rule], now: list[Standing]) -> list[Standing]:
    asked, places = set(rules), {(rule.family, rule.pref) for rule in rules}
    return [one for one in now if one.rule not in asked and (one.ours or (one.rule.family, one.rule.pref) in places)]


def _missing(rules: list[Rule]) -> list[Rule]:
    there = {one.rule for one in standing()}
    return [rule for rule in rules if rule not in there]


def differing(rules: list[Rule]) -> list[str]:
    """What the kernel lacks of the rules, and what else stands in their places."""
    now = standing()
    there = {one.rule for one in now}
    return [f"the policy route `{rule}` is missing" for rule in rules if rule not in there] + [
        f"the policy route `{one.rule}` is none of the policy's" for one in _stale(rules, now)
    ]


def overruled(rules: list[Rule]) -> list[str]:
    """Somebody else's rules that stand before ours and may decide about the lab's packets. Not ours to take away."""
    names = {rule.iif for rule in rules if rule.iif}
    found = []
    for rule, ours, _ in standing():
        first = min((own.pref for own in rules if own.family == rule.family), default=0)
        if 0 < rule.pref < first and not ours and (not rule.iif or rule.iif in names):
            found.append(f"`{rule}` of somebody else stands before the lab's policy routes")
    return found


def restore(rules: list[Rule]) -> None:
    """First what is missing is added, then what is none of ours in these places goes: never a moment without.

    Asked to delete a rule without a mark, the kernel takes the first that fits the rest, ours with a mark included:
    then once more, for the one that was added again stands behind.
    """
    for _ in range(len(rules) + 1):
        _add(_missing(rules))
        if not (stale := _stale(rules, standing())):
            return
        _delete(stale)
    _add(_missing(rules))


def _add(rules: list[Rule]) -> None:
    for rule in rules:
        try:
            netlink.request(netlink.ROUTE, NEWRULE, encode(rule), netlink.ACK | netlink.CREATE_NEW)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise Failure(f"the kernel refused the policy route `{rule}` ({error.strerror})") from error


def remove() -> None:
    """Take ours away."""
    _delete([one for one in standing() if one.ours])


def _delete(found: list[Standing]) -> None:
    for one in found:
        try:
            netlink.request(netlink.ROUTE, DELRULE, one.body)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise Failure(f"the kernel keeps the policy route `{one.rule}` ({error.strerror})") from error
