"""Every mutant of the walls as the hypervisor's kernel holds them: each part taken away, and each accept widened.

A mutant is a shell command on the hypervisor that makes one change. Removed in turn: the rules of our chains, the jumps
into them, the rules of the bridge's table, the elements of its sets, policy routes, sysctls, isolated ports. Widened is
what lets pass: a match less (port, interface, address, state ...). What denies, and what leads to a chain that denies,
is not widened: it would deny more.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from isolationtools import pve

OURS = "GLASSLAB-"
TABLE = "bridge glasslab"
# Targets that let a packet pass or turn it; the others deny, log, or lead to chains that do. In the mangle table a
# RETURN only spares a line of log.
PASSING = ("-j ACCEPT", "-j RETURN", "-j REDIRECT", "-j MASQUERADE", "-j MARK", f"-g {OURS}MARK")
# What one widening takes away: a name, and the words of it (None: any word).
MATCHES: tuple[tuple[str, str], ...] = (
    ("interface in", r"(! )?-i \S+"),
    ("interface out", r"(! )?-o \S+"),
    ("source", r"(! )?-s \S+"),
    ("destination", r"(! )?-d \S+"),
    ("port", r"-m (tcp|udp|multiport) (! )?--dports? \S+"),
    ("protocol and port", r"-p \S+( -m (tcp|udp|multiport) --dports? \S+| -m icmp --icmp-type \S+)?"),
    ("ICMP type", r"-m icmp --icmp-type \S+"),
    ("hardware address", r"-m mac --mac-source \S+"),
    ("state", r"-m conntrack( (! )?--ct\S+ \S+)+"),
    ("direction", r"--ctdir \S+"),
    ("origin's port", r"--ctorigsrcport \S+"),
    ("origin", r"--ctorigsrc \S+"),
    ("kind of address", r"-m addrtype( --\S+-type \S+)+"),
)


@dataclass(frozen=True)
class Mutant:
    """One change: its kind, the part as the kernel words it, what happens to it, and the command that does it."""

    kind: str
    part: str
    change: str
    command: str

    @property
    def name(self) -> str:
        """As reports and the table of layers name it."""
        return f"{self.kind}: {self.part}: {self.change}"

    @property
    def topology(self) -> str:
        """Where the part matters: at the lab's bridge as it is, or in one of mutationbench's TOPOLOGIES."""
        if re.search(r"GLASSLAB-(ZONE|INNER)|fwbr", self.part):
            return "inner"
        if re.search(r"\bfw(pr|ln)\d+", self.part) and "tap10" not in self.part:
            return "fwbr"
        if "goto allowed-" in self.part or "tcp dport 1024-65535" in self.part:
            return "third"
        if "GLASSLAB-PORTS" in self.part or re.search(r"rule pref \d+ iif tap", self.part):
            return "loose"
        if re.search(r"-i vmbr1 -o vmbr1|DENIED -d 10.10.10.0/24", self.part):
            return "filtered"
        return "plain"


def rules_of(tool: str, saved: str) -> Iterator[Mutant]:
    """Mutants of what `iptables-save` or `ip6tables-save` printed."""
    table = ""
    counts: dict[tuple[str, str], int] = {}
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        if not line.startswith("-A "):
            continue
        chain, rest = line.split(maxsplit=2)[1:] if len(line.split()) > 2 else (line.split()[1], "")
        number = counts[table, chain] = counts.get((table, chain), 0) + 1
        is_jump = not chain.startswith(OURS)
        if is_jump and f" {OURS}" not in line:
            continue
        part = f"{tool} {table} {line}"
        kind = f"{tool} {'jump' if is_jump else 'log' if '-j NFLOG' in line else 'rule'}"
        where = f"{tool} -t {table} -{{}} {chain} {number}"
        yield Mutant(kind, part, "removed", where.format("D"))
        if any(target in rest for target in PASSING) and not (table == "mangle" and "-j RETURN" in rest):
            for what, pattern in MATCHES:
                wider = re.sub(rf"(^| ){pattern}(?= |$)", "", rest).strip()
                if wider != rest and loads(wider):
                    yield Mutant(kind, part, f"any {what}", f"{where.format('R')} {wider}")


def loads(rule: str) -> bool:
    """Whether the rule without that match is one that iptables takes, and says less than before."""
    words = shlex.split(rule)
    needs_protocol = any(word in rule for word in ("--dport", "--icmp-type", "--to-ports"))
    lone_conntrack = re.search(r"-m conntrack(?! (! )?--ct)", rule)
    return not (needs_protocol and "-p" not in words) and not lone_conntrack


def bridge_of(listed: list[dict[str, Any]], words: dict[int, str]) -> Iterator[Mutant]:
    """Mutants of the bridge's table: `nft -j -a list table`, and each rule's words by its handle."""
    for item in listed:
        if "rule" in item:
            rule = item["rule"]
            part = f"nft {rule['chain']}: {words[rule['handle']]}"
            log = any("log" in one for one in rule["expr"])
            kind = "bridge log" if log else "bridge rule"
            at = f"nft delete rule {TABLE} {rule['chain']} handle {rule['handle']}"
            yield Mutant(kind, part, "removed", at)
            last = rule["expr"][-1]
            if log or "drop" in last or last.get("goto", {}).get("target") in ("denied", "entering", "between"):
                continue
            for position, one in enumerate(rule["expr"]):
                if "match" in one:
                    rest = rule["expr"][:position] + rule["expr"][position + 1 :]
                    order = {"nftables": [{"replace": {"rule": {**rule, "expr": rest}}}]}
                    command = f"echo {shlex.quote(json.dumps(order))} | nft -j -f -"
                    yield Mutant(kind, part, f"any {field(one['match'])}", command)
        if "set" in item:
            for one in item["set"].get("elem", []):
                element = " . ".join(quoted(word) for word in (one["concat"] if isinstance(one, dict) else [one]))
                order = f"nft delete element {TABLE} {item['set']['name']} '{{ {element} }}'"
                yield Mutant("set element", f"nft set {item['set']['name']}: {element}", "removed", order)


def quoted(word: str) -> str:
    """An interface's name in quotes, an address as it is."""
    return f'"{word}"' if word[0].isalpha() and ":" not in word else word


def field(match: dict[str, Any]) -> str:
    """What a match of the bridge's table looks at."""
    left = match["left"]
    left = left["&"][0] if "&" in left else left
    names = []
    for one in left.get("concat", [left]):
        names.append(one["meta"]["key"] if "meta" in one else " ".join(one["payload"].values()))
    return " . ".join(names)


def settings_of(settings: dict[str, Any]) -> Iterator[Mutant]:
    """Mutants of what settings.json asks for beside rules."""
    for family, *rule in settings["ip_rules"]:
        part = f"ip {family} rule {' '.join(rule)}"
        yield Mutant("policy route", part, "removed", f"ip {family} rule delete {' '.join(rule)}")
        if "fwmark" in rule:
            at = rule.index("fwmark")
            wider = " ".join(rule[:at] + rule[at + 2 :])
            yield Mutant("policy route", part, "any mark", f"ip {family} rule add {wider}")
    for path, value in settings["sysctls"].items():
        opposite = "0" if value != "0" else "1"
        yield Mutant("sysctl", f"{path}={value}", f"={opposite}", f"echo {opposite} >/proc/sys/{path}")
    for port in settings["isolated"]:
        order = f"bridge link set dev {port} isolated off"
        yield Mutant("isolated port", f"port {port}", "not isolated", order)


def enumerate_mutants() -> list[Mutant]:
    """All mutants of what stands on the hypervisor."""
    dumps = pve(
        "iptables-save; echo ===; ip6tables-save; echo ===; nft -j -a list table bridge glasslab; echo ===;"
        " nft -a list table bridge glasslab; echo ===; cat /etc/glasslab/network/settings.json"
    )
    four, six, bridge, words, settings = dumps.split("===\n")
    by_handle = {int(number): text for text, number in re.findall(r"^\t\t(.*) # handle (\d+)$", words, re.M)}
    found = [
        *rules_of("iptables", four),
        *rules_of("ip6tables", six),
        *bridge_of(json.loads(bridge)["nftables"], by_handle),
        *settings_of(json.loads(settings)),
    ]
    # The same words in two places of a chain are two mutants.
    names = itertools.groupby(sorted(found, key=lambda one: one.name), key=lambda one: one.name)
    doubled = [name for name, group in names if len(list(group)) > 1]
    assert not doubled, f"cannot tell apart: {doubled}"
    return found
