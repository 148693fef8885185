"""What a machine's network and kernel settings look like from its root namespace, as text that two moments can be
compared by. Only looks: nothing is loaded, created or changed by it.

Usage: machine_fingerprint.py [--output FILE | --compare FILE]; with --compare it exits 1 and prints the difference.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# Settings that move by themselves, each with what moves it.
MOVING = {
    "fs.dentry-state": "the kernel's cache of names",
    "fs.file-nr": "files open at the moment",
    "fs.inode-nr": "inodes in use at the moment",
    "fs.inode-state": "inodes in use at the moment",
    "fs.aio-nr": "asynchronous requests at the moment",
    "fs.quota.syncs": "counts",
    "fs.quota.lookups": "counts",
    "fs.quota.drops": "counts",
    "fs.quota.reads": "counts",
    "fs.quota.writes": "counts",
    "fs.quota.cache_hits": "counts",
    "fs.quota.allocated_dquots": "counts",
    "fs.quota.free_dquots": "counts",
    "kernel.ns_last_pid": "the last process number",
    "kernel.pty.nr": "terminals open at the moment",
    "kernel.random.entropy_avail": "the random generator's state",
    "kernel.random.uuid": "a new one each time it is read",
    "kernel.perf_event_max_sample_rate": "lowered by the kernel under load",
    "net.netfilter.nf_conntrack_count": "connections at the moment",
    "net.ipv4.tcp_fastopen_key": "made by the kernel when first read by a listener",
    "vm.stat_refresh": "a trigger, not a setting",
}
# Trees that exist only while a kernel module is loaded. Building a lab loads these, as the first container or firewall
# on a machine would; they stay loaded, and their settings of the root namespace then have the kernel's defaults.
# They are compared when both moments have them.
OF_MODULES = {
    "net.bridge.": "br_netfilter, loaded with a bridge's first packet filter",
    "net.netfilter.nf_conntrack_": "nf_conntrack, loaded with the first stateful rule",
    "net.nf_conntrack_max": "nf_conntrack",
    "net.netfilter.nf_log": "nf_log, loaded with the first rule that logs",
    "net.netfilter.nf_hooks_lwtunnel": "nf_conntrack",
    "net.netfilter.nf_flowtable_": "nf_conntrack",
}
COUNTERS = ("stats", "stats64", "ifstats", "valid_life_time", "preferred_life_time", "gc_timer", "hello_timer")
TABLES = {"filter", "nat", "mangle", "raw", "security"}


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return f"{argv[0]} is not installed\n"
    return done.stdout


def _without_counters(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_counters(one) for key, one in value.items() if key not in COUNTERS}
    return [_without_counters(one) for one in value] if isinstance(value, list) else value


def _json(*argv: str) -> list[str]:
    found = json.loads(_run(*argv) or "[]")
    return [json.dumps(one, sort_keys=True) for one in _without_counters(found) if one]


def _saved(program: str, names: str) -> list[str]:
    """Rules as PROGRAM-save prints them, without counters and dates; asked only when the kernel has tables of it."""
    # merely asking makes the old iptables create its tables: what the kernel does not have is not asked for
    if program.endswith("-legacy") and not Path(names).exists():
        return []
    lines = _run(f"{program}-save").splitlines()
    return [re.sub(r"\[\d+:\d+\]", "[]", line) for line in lines if not line.startswith("#")]


def sysctls() -> list[str]:
    """Settings of the root namespace, except those that move by themselves."""
    lines = []
    root = Path("/proc/sys")
    for folder, _, files in os.walk(root):
        for name in files:
            file = Path(folder) / name
            key = ".".join(file.relative_to(root).parts)
            if key in MOVING or not file.stat().st_mode & 0o444:
                continue
            try:
                value = file.read_text(errors="replace").strip()
            except OSError:
                value = "unreadable"
            lines.append(f"{key} = {' '.join(value.split())}")
    return sorted(lines)


def mounts() -> list[str]:
    """Mount points with type and options, without the numbers that the kernel gives them."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        found.append(" ".join([words[4], words[3], words[5], *words[words.index("-") + 1 :]]))
    return sorted(found)


def control_groups() -> list[str]:
    """Every control group directory of every tree, without those of other programs that come and go."""
    return sorted(str(place) for place in Path("/sys/fs/cgroup").rglob("glasslab.*") if place.is_dir())


def _of_other_labs(lab_id: str | None) -> re.Pattern[str]:
    """Matches what belongs to labs other than `lab_id` that live on this machine at the moment; None: nothing."""
    places = (Path("/var/lib/glasslab"), Path("/run/glasslab"))
    names = {one.name for place in places if place.is_dir() for one in place.iterdir() if one.is_dir()} - {lab_id}
    if lab_id is None or not names:
        return re.compile(r"(?!)")
    other = "|".join(re.escape(name) for name in names)
    return re.compile(rf"(^|/run/netns/)({other})-|/glasslab/({other})/|glasslab\.({other})$")


def sections() -> dict[str, list[str]]:
    """The whole picture, section by section."""
    return {
        "links": _json("ip", "-d", "-j", "link", "show"),
        "addresses": _json("ip", "-j", "address", "show"),
        "routes": _run("ip", "route", "show", "table", "all").splitlines(),
        "routes6": _run("ip", "-6", "route", "show", "table", "all").splitlines(),
        "rules": _run("ip", "rule", "show").splitlines(),
        "rules6": _run("ip", "-6", "rule", "show").splitlines(),
        "nft": re.sub(r"counter packets \d+ bytes \d+", "counter", _run("nft", "list", "ruleset")).splitlines(),
        "iptables": _saved("iptables", ""),
        "ip6tables": _saved("ip6tables", ""),
        "iptables-legacy": _saved("iptables-legacy", "/proc/net/ip_tables_names"),
        "ip6tables-legacy": _saved("ip6tables-legacy", "/proc/net/ip6_tables_names"),
        "sysctls": sysctls(),
        "mounts": mounts(),
        "control groups": control_groups(),
        "namespaces": sorted(_run("ip", "netns", "list").splitlines()),
    }


def text(lab_id: str | None = None) -> str:
    """The picture as text; with a lab's name, without what belongs to other labs."""
    other = _of_other_labs(lab_id)
    found = {name: [line for line in lines if not other.search(line)] for name, lines in sections().items()}
    return "".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in found.items())


def comparable(before: str, after: str) -> tuple[list[str], list[str]]:
    """Both pictures without the settings of modules that only one of them had loaded."""

    def keys(picture: str) -> set[str]:
        return {line.split(" = ")[0] for line in picture.splitlines() if " = " in line}

    one_sided = {key for key in keys(before) ^ keys(after) if key.startswith(tuple(OF_MODULES))}

    def kept(picture: str) -> list[str]:
        return [line for line in picture.splitlines() if line.split(" = ")[0] not in one_sided]

    return kept(before), kept(after)


def difference(before: str, after: str) -> str:
    """What differs, as a unified diff; empty when nothing does."""
    left, right = comparable(before, after)
    return "\n".join(difflib.unified_diff(left, right, "before", "after", lineterm="", n=0))


def main() -> int:
    """Print, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write to this file")
    parser.add_argument("--compare", type=Path, help="compare with this file; 1 when something differs")
    parser.add_argument("--lab-id", help="leave out what belongs to other labs on this machine")
    options = parser.parse_args()
    picture = text(options.lab_id)
    if options.compare:
        found = difference(options.compare.read_text(), picture)
        print(found or "the machine is as it was")
        return 1 if found else 0
    if options.output:
        options.output.write_text(picture)
    else:
        print(picture, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
