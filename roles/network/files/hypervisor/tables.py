"""Packet rules: iptables, ip6tables and the nft bridge table, loaded, listed and compared in the kernel's own words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from . import netlink
from .kernel import Failure, run, run_together
from .settings import ETC

FAMILIES = {"rules.v4": ("iptables", "ip"), "rules.v6": ("ip6tables", "ip6")}
TABLES = ("raw", "mangle", "nat", "filter", "security")
HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
OURS = "GLASSLAB-"
BRIDGE_TABLE = "glasslab"
TRANSLATES = {"masquerade", "MASQUERADE", "snat", "SNAT"}  # in capitals where nft has no word of its own
SIMPLE_JUMP = re.compile(rf"-A \w+ -[io] [\w.+-]+ -j {OURS}[\w-]+")

Listing = dict[str, dict[str, list[str]]]  # rule file: table: lines
Place = tuple[str, str]  # rule file, table
Finding = tuple[Place, str]  # where, and what in words


def listed() -> dict[str, bool]:
    """The nftables tables there are, such as `ip filter`, and whether each is dormant."""
    try:
        return netlink.nft_tables()
    except OSError as error:
        raise Failure(f"the kernel does not list its nftables tables ({error.strerror})") from error


def look() -> Listing:
    """What the kernel holds, everybody's; reading creates nothing, and of a table that is not there nothing is run."""
    there = listed()
    found: Listing = {name: {} for name in (*FAMILIES, "bridge.nft")}
    asked: dict[str, tuple[str, ...]] = {
        name: (f"{tool}-save",)
        for name, (tool, family) in FAMILIES.items()
        if any(f"{family} {table}" in there for table in TABLES)
    }
    if f"bridge {BRIDGE_TABLE}" in there:
        asked["bridge.nft"] = ("nft", "--stateless", "list", "table", "bridge", BRIDGE_TABLE)
    outputs = run_together([(command, None) for command in asked.values()])
    for name, output in zip(asked, outputs, strict=True):
        found[name] = saved(output) if name in FAMILIES else {BRIDGE_TABLE: output.splitlines()}
    return found


def saved(output: str) -> dict[str, list[str]]:
    """Lines of iptables-save by table, without counters."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    # Not splitlines(): a comment of somebody else's may hold what Unicode takes for the end of a line.
    for line in output.split("\n"):
        if line.startswith("*"):
            lines = found.setdefault(line[1:], [])
        elif line[:1] in (":", "-"):
            lines.append(re.sub(r" \[\d+:\d+\]$", "", line))
    return found


def is_jump(line: str) -> bool:
    """A rule in somebody else's chain that jumps into one of ours."""
    return line.startswith("-A ") and not line.startswith(f"-A {OURS}") and bool(re.search(rf" -[jg] {OURS}", line))


def is_ours(line: str) -> bool:
    """One of our chains, or a rule in one."""
    return line.startswith((f":{OURS}", f"-A {OURS}"))


def ours(listing: Listing) -> Listing:
    """What of the listing is ours: what has to be the same as long as the walls stand. Order matters within a chain."""
    found: Listing = {}
    for name, tables in listing.items():
        found[name] = {}
        for table, lines in tables.items():
            if name in FAMILIES:
                lines = [line for line in lines if is_ours(line) or is_jump(line)]
                lines.sort(key=lambda line: (line[0] != ":", line.split()[:2]))
            if lines:
                found[name][table] = lines
    return found


def restoring(text: str, standing: dict[str, list[str]], only: Iterable[str] | None = None) -> str:
    """Input of iptables-restore, a transaction a table (of `only` these): our chains are emptied and refilled, the
    text's jumps stand first, and jumps and chains of ours that it does not have any more are taken out."""
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            lines = sections.setdefault(line[1:].strip(), [])
        elif line[:1] in (":", "-"):
            lines.append(line)
    sections |= {table: [] for table, lines in standing.items() if table not in sections and any(map(is_ours, lines))}
    out = []
    for table, lines in sections.items():
        if only is not None and table not in only:
            continue
        there = standing.get(table, [])
        jumps = [line for line in lines if line.startswith("-I ")]
        declared = {line.split()[0] for line in lines if line.startswith(":")}
        old = [line.split()[0] for line in there if line.startswith(f":{OURS}")]
        old = [chain[1:] for chain in old if chain not in declared]
        out += [f"*{table}", *(line for line in lines if line not in jumps)]
        out += ["-D " + line[3:] for line in there if is_jump(line)] + jumps
        out += [f"-F {chain}" for chain in old] + [f"-X {chain}" for chain in old] + ["COMMIT"]
    return "\n".join(out) + "\n"


def load(texts: dict[str, str], listing: Listing, only: Iterable[Place] | None = None) -> None:
    """Load the rule files side by side (of `only` these tables); what fails leaves, table by table, what stood."""
    for (name, table), _ in asleep(texts):
        if name in FAMILIES and (only is None or (name, table) in only):
            run("nft", "add", "table", FAMILIES[name][1], table)  # without the flag: awake
    jobs: list[tuple[tuple[str, ...], str]] = []
    for name, text in texts.items():
        tables = None if only is None else [table for file, table in only if file == name]
        if tables == []:
            continue
        if name in FAMILIES:
            command = (f"{FAMILIES[name][0]}-restore", "--noflush", "-w", "10")
            jobs.append((command, restoring(text, listing[name], tables)))
        else:
            jobs.append((("nft", "-f", "-"), text))
    run_together(jobs)


def asleep(texts: dict[str, str]) -> list[Finding]:
    """Tables of ours that are dormant: iptables-save lists them as ever, and no packet asks their rules."""
    there = listed()
    found = [
        ((name, table), f"{tool}: the table {table} is dormant")
        for name, (tool, family) in FAMILIES.items()
        for table in saved(texts[name])
        if there.get(f"{family} {table}")
    ]
    if there.get(f"bridge {BRIDGE_TABLE}"):
        found.append((("bridge.nft", BRIDGE_TABLE), f"nft: the table bridge {BRIDGE_TABLE} is dormant"))
    return found


def changed(former: Listing, now: Listing) -> list[Finding]:
    """Where what is ours is not what it was."""
    places = [(name, table) for name in former for table in dict.fromkeys([*former[name], *now[name]])]
    return [
        ((name, table), f"the kernel's rules differ from {ETC / name}: {table}")
        for name, table in places
        if former[name].get(table) != now[name].get(table)
    ]


def gaps(texts: dict[str, str], listing: Listing, bridge: str, ports: list[str]) -> list[Finding]:
    """What the kernel lacks of the walls, by its own words: that a tool ended with 0 does not mean that they stand."""
    found: list[Finding] = []
    for name, (tool, _) in FAMILIES.items():
        tables = saved(texts[name])
        lacking = {table: _lacking(lines, listing[name].get(table, [])) for table, lines in tables.items()}
        jumps = [line for lines in tables.values() for line in lines if line.startswith("-I ")]
        ways = [f"`-{way} {bridge}`" for way in "io" if not any(f" -{way} {bridge} -j " in line for line in jumps)]
        lacking.setdefault("filter", []).extend(ways)
        found += [
            ((name, table), f"the kernel lacks {tool} {what[0]} in {table}, of {ETC / name}")
            for table, what in lacking.items()
            if what
        ]
    words = "\n".join(listing["bridge.nft"].get(BRIDGE_TABLE, []))
    hooks = re.findall(r"\bhook \w+", texts["bridge.nft"]) or ["hook forward"]
    ports = [port for port in ports if not re.search(rf"\b{re.escape(port)}\b", words)]
    if ports or any(hook not in words for hook in hooks):
        what = f"the kernel lacks the table bridge {BRIDGE_TABLE} or a guest's port in it, of {ETC}/bridge.nft"
        found.append((("bridge.nft", BRIDGE_TABLE), what))
    return found


def _lacking(wanted: list[str], there: list[str]) -> list[str]:
    """Of one table: chains with fewer rules than the text gives them, or without the DROP that ends them; jumps."""
    found = []
    for chain in dict.fromkeys(line.split()[1] for line in wanted if line.startswith(f"-A {OURS}")):
        own, kernels = ([line for line in lines if line.startswith(f"-A {chain} ")] for lines in (wanted, there))
        if own[-1] == f"-A {chain} -j DROP" and kernels[-1:] != own[-1:]:
            found.append(f"`{own[-1]}` at its end")
        elif len(kernels) < len(own):
            found.append(f"`-A {chain}`: {len(kernels)} of {len(own)} rules")
    for hook in HOOKS:
        jumps = [re.sub(r"^-I (\w+) 1 ", r"-A \1 ", line) for line in wanted if line.startswith(f"-I {hook} ")]
        kernels = [line for line in there if line.startswith(f"-A {hook} ") and is_jump(line)]
        # By the letter where the kernel says the same, by number for the rest.
        found += [f"`{line}`" for line in jumps if SIMPLE_JUMP.fullmatch(line) and line not in kernels]
        found += [f"`-A {hook}`: {len(kernels)} of {len(jumps)} jumps"] if len(kernels) < len(jumps) else []
    return found


def misplaced(listing: Listing) -> list[Finding]:
    """Hooks in which a rule of somebody else stands before ours, and so decides first."""
    found: list[Finding] = []
    for name, (tool, _) in FAMILIES.items():
        for table, lines in listing[name].items():
            hooks: dict[str, list[bool]] = {}
            for line in lines:
                if line.startswith("-A ") and not is_ours(line):
                    hooks.setdefault(line.split()[1], []).append(is_jump(line))
            found += [
                ((name, table), f"{tool}: a foreign rule stands before ours in {table} {hook}")
                for hook, jumps in hooks.items()
                if any(later and not earlier for earlier, later in itertools.pairwise(jumps))
            ]
    return found


def others_translate() -> bool:
    """Whether somebody else's rules, of iptables or of nftables' own, give IPv4 packets another source."""
    family = chain = ""
    for line in run("nft", "--stateless", "list", "ruleset").split("\n"):
        words = re.sub(r' comment ".*"', "", line).replace('"', "").split()
        if words[:1] == ["table"]:
            family = words[1]
        elif words[:1] == ["chain"]:
            chain = words[1]
        elif family in ("ip", "inet") and not chain.startswith(OURS) and TRANSLATES.intersection(words):
            return True
    return False


def remove(former_tables: list[str] | None) -> None:
    """Take our chains, jumps and tables away; a table that was not there before us, and is empty now, goes too."""
    listing = look()
    for name, (tool, family) in FAMILIES.items():
        for table, lines in listing[name].items():
            chains = [line[1:].split()[0] for line in lines if line.startswith(f":{OURS}")]
            if not chains:
                continue
            orders = ["-D " + line[3:] for line in lines if is_jump(line)]
            orders += [f"-F {chain}" for chain in chains] + [f"-X {chain}" for chain in chains]
            run(f"{tool}-restore", "--noflush", "-w", "10", text="\n".join([f"*{table}", *orders, "COMMIT", ""]))
            # iptables-nft makes a table on first use and never drops it: ours to drop when it was not there before.
            left = look()[name].get(table, [])
            unused = all(line.startswith(":") and line.endswith(" ACCEPT") for line in left)
            made_by_us = former_tables is not None and f"{family} {table}" not in former_tables
            if unused and made_by_us and f"{family} {table}" in listed():
                run("nft", "delete", "table", family, table)
    if f"bridge {BRIDGE_TABLE}" in listed():
        run("nft", "delete", "table", "bridge", BRIDGE_TABLE)
