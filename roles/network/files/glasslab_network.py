#!/usr/bin/python3
"""Assert, check or remove the lab's packet rules on a hypervisor.

apply   load the rules of /etc/glasslab/network (replacing ours, touching nobody else's), then let the bridge route;
        run before the bridge exists, after each time it comes up, and by the role
check   say what differs from the rules last loaded; exit 1 when anything does
remove  take our chains, tables and settings away and put back what was there before

Only the standard library: it runs while the network is down.
"""

import fcntl
import hashlib
import itertools
import json
import pathlib
import re
import subprocess
import sys

ETC = pathlib.Path("/etc/glasslab/network")
RUN = pathlib.Path("/run/glasslab-network")
SYSCTL = pathlib.Path("/proc/sys")
FILES = ("rules.v6", "bridge.nft", "rules.v4")
FAMILIES = {"rules.v4": ("iptables", "ip"), "rules.v6": ("ip6tables", "ip6")}
OURS = "GLASSLAB-"
BRIDGE_TABLE = "glasslab"
LAST_LINE = "# end of the rules"


class Failure(Exception):
    """A rule, tool or setting that stopped us; the text names it and the remedy."""


def run(*command: str, text: str | None = None) -> str:
    """Output of a command; Failure with its own words when it fails or cannot be run."""
    try:
        # S603: the commands are fixed words of this file, and there is no shell.
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        raise Failure(f"{command[0]} cannot be run ({error.strerror}): install or repair it") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{command[0]} did not end within 20 s: is another program holding the xtables lock?") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise Failure(f"`{' '.join(command)}` failed: {said or f'exit {done.returncode}'}")
    return done.stdout


def read(name: str) -> str:
    try:
        return (ETC / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{ETC / name} cannot be read ({error}): run playbooks/network.yml again") from error


def settings() -> dict:
    try:
        found = json.loads(read("settings.json"))
        return {"bridge": str(found["bridge"]), "ports": [str(port) for port in found["ports"]]}
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"{ETC}/settings.json is damaged ({error!r}): run playbooks/network.yml again") from error


def state(name: str) -> dict | None:
    """A record of this boot; None when there is none (under /run: sysctls and rules do not outlive a boot either)."""
    try:
        return json.loads((RUN / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def store(name: str, value: dict) -> None:
    (RUN / f"{name}.new").write_text(json.dumps(value), encoding="utf-8")
    (RUN / f"{name}.new").rename(RUN / name)


def sysctl(path: str) -> str | None:
    try:
        return (SYSCTL / path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def set_sysctl(path: str, value: str) -> None:
    """Write only what differs: writing ip_forward resets the forwarding and accept_redirects of every interface."""
    if sysctl(path) == value:
        return
    try:
        (SYSCTL / path).write_text(value, encoding="ascii")
    except OSError as error:
        raise Failure(f"sysctl {path.replace('/', '.')}={value} refused ({error.strerror})") from error


def tables() -> list[str]:
    return [line.removeprefix("table ").strip() for line in run("nft", "list", "tables").splitlines()]


def remember() -> None:
    """Before our first change of this boot: what `remove` has to put back."""
    if state("former.json") is not None:
        return
    forwarding = [str(path.relative_to(SYSCTL)) for path in (SYSCTL / "net/ipv4/conf").glob("*/forwarding")]
    touched = ["net/ipv4/ip_forward", "net/ipv4/conf/all/accept_redirects", *sorted(forwarding)]
    store("former.json", {"sysctl": {path: sysctl(path) for path in touched}, "tables": tables()})


def saved(tool: str) -> dict[str, list[str]]:
    """Lines of iptables-save by table; reading creates nothing."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in run(f"{tool}-save").splitlines():
        if line.startswith("*"):
            lines = found.setdefault(line[1:], [])
        elif line[:1] in (":", "-"):
            lines.append(re.sub(r" \[\d+:\d+\]$", "", line))
    return found


def is_jump(line: str) -> bool:
    """A rule in somebody else's chain that jumps into one of ours."""
    return line.startswith("-A ") and not line.startswith(f"-A {OURS}") and f" -j {OURS}" in line


def is_ours(line: str) -> bool:
    return line.startswith((f":{OURS}", f"-A {OURS}"))


def restore(tool: str, text: str) -> None:
    """One transaction: our chains are emptied and refilled, our jumps taken out wherever they stand and put first."""
    standing = saved(tool)
    lines: list[str] = []
    table = ""
    pending: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
            pending = ["-D " + rule[3:] for rule in standing.get(table, []) if is_jump(rule)]
        if line.startswith("-I ") and pending:
            lines += pending
            pending = []
        lines.append(line)
    run(f"{tool}-restore", "--noflush", "-w", "10", text="\n".join(lines) + "\n")


def loaded() -> dict[str, list[str]]:
    """What the kernel holds of ours, in its own words."""
    found = {}
    for name, (tool, _) in FAMILIES.items():
        found[name] = [
            f"{table} {line}"
            for table, lines in saved(tool).items()
            for line in lines
            if is_ours(line) or is_jump(line)
        ]
    listed = f"bridge {BRIDGE_TABLE}" in tables()
    found["bridge.nft"] = run("nft", "list", "table", "bridge", BRIDGE_TABLE).splitlines() if listed else []
    return found


def gaps(config: dict) -> list[str]:
    """What the kernel lacks of the walls, by its own words: that a tool ended with 0 does not mean that they stand."""
    found = []
    for name, (tool, _) in FAMILIES.items():
        kernel, table = saved(tool), ""
        lacking, last = [], {}
        for line in read(name).splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith("-I "):
                jump = re.sub(r"^-I (\S+) 1 ", r"-A \1 ", line)
                lacking += [] if jump in kernel.get(table, []) else [jump]
            elif line.startswith("-A "):
                last[table, line.split()[1]] = line
        for (table, chain), line in last.items():
            rules = [one for one in kernel.get(table, []) if one.startswith(f"-A {chain} ")]
            lacking += [f"{line} at its end"] if line.endswith(" -j DROP") and rules[-1:] != [line] else []
        found += [f"the kernel lacks `{tool} {line}`, of {ETC / name}" for line in lacking[:1]]
    ports = config["ports"]
    listed = run("nft", "list", "table", "bridge", BRIDGE_TABLE) if f"bridge {BRIDGE_TABLE}" in tables() else ""
    if "hook forward" not in listed or any(not re.search(rf"\b{re.escape(port)}\b", listed) for port in ports):
        found.append(f"the kernel lacks the table bridge {BRIDGE_TABLE} or a guest's port in it, of {ETC}/bridge.nft")
    return found


def digest() -> str:
    return hashlib.sha256("\0".join(read(name) for name in FILES).encode()).hexdigest()


def misplaced() -> list[str]:
    """Hooks in which a rule of somebody else stands before ours, and so decides first."""
    found = []
    for tool, _ in FAMILIES.values():
        for table, lines in saved(tool).items():
            hooks: dict[str, list[bool]] = {}
            for line in lines:
                if line.startswith("-A ") and not is_ours(line):
                    hooks.setdefault(line.split()[1], []).append(is_jump(line))
            found += [
                f"{tool}: a foreign rule stands before ours in {table} {hook}"
                for hook, jumps in hooks.items()
                if any(later and not earlier for earlier, later in itertools.pairwise(jumps))
            ]
    return found


def link(name: str) -> pathlib.Path:
    return pathlib.Path("/sys/class/net") / name


def is_up(name: str) -> bool:
    """Administratively up (IFF_UP); operstate would also be down for want of a port."""
    return bool(int((link(name) / "flags").read_text(encoding="ascii"), 16) & 1)


def stray_ports(config: dict) -> list[str]:
    """Guests' ports that exist and are in no bridge: `systemctl restart networking` deletes the bridge under them."""
    return [port for port in config["ports"] if link(port).exists() and not (link(port) / "master").exists()]


def plug(config: dict) -> None:
    """Put stray ports back into the bridge, and up what unplug() took down; a port in another bridge is left alone."""
    for port in config["ports"]:
        if not link(port).exists():
            continue
        master = link(port) / "master"
        if not master.exists() or (master.resolve().name == config["bridge"] and not is_up(port)):
            run("ip", "link", "set", port, "master", config["bridge"], "up")


def unplug(config: dict) -> None:
    """A port outside the bridge is an interface of the hypervisor like any other: without rules it must not be up."""
    for port in stray_ports(config):
        run("ip", "link", "set", port, "down")


def load(config: dict) -> None:
    """Each file is one transaction: what fails leaves the rules that stood."""
    texts = {name: read(name) for name in FILES}
    # Emptied, or cut short behind a COMMIT, a file would load without an error and leave the bridge open.
    if cut := [str(ETC / name) for name, text in texts.items() if text.splitlines()[-1:] != [LAST_LINE]]:
        raise Failure(f"{', '.join(cut)}: cut short or added to: run playbooks/network.yml again")
    remember()
    for name in FILES:
        if name in FAMILIES:
            restore(FAMILIES[name][0], texts[name])
        else:
            run("nft", "-f", "-", text=texts[name])
    if lacking := gaps(config):
        raise Failure(f"{'; '.join(lacking)}: run playbooks/network.yml again")
    store("loaded.json", {"digest": digest(), "kernel": loaded()})


def apply() -> None:
    config = settings()
    try:
        load(config)
    except (Failure, OSError):
        unplug(config)
        raise
    bridge = config["bridge"]
    if link(bridge).exists():
        set_sysctl(f"net/ipv6/conf/{bridge}/disable_ipv6", "1")
    # Forwarding last: until every table is in, nothing is routed for the guests.
    set_sysctl("net/ipv4/ip_forward", "1")
    if link(bridge).exists():
        plug(config)


def check() -> list[str]:
    config = settings()
    record = state("loaded.json")
    if record is None:
        return ["the rules have not been loaded since the machine started"]
    differs = [] if record["digest"] == digest() else [f"the files in {ETC} are newer than the rules in the kernel"]
    now = loaded()
    differs += [f"the kernel's rules differ from {ETC / name}" for name in FILES if now[name] != record["kernel"][name]]
    differs += gaps(config) + misplaced()
    bridge = config["bridge"]
    if not link(bridge).exists():
        differs.append(f"{bridge} does not exist")
    else:
        if sysctl(f"net/ipv6/conf/{bridge}/disable_ipv6") == "0":
            differs.append(f"IPv6 is on at {bridge}")
        if not is_up(bridge):
            differs.append(f"{bridge} is down")
        differs += [f"guest port {port} is in no bridge" for port in stray_ports(config)]
    if sysctl("net/ipv4/ip_forward") != "1":
        differs.append("net.ipv4.ip_forward is off")
    return differs


def remove() -> None:
    if (ETC / "settings.json").exists():
        unplug(settings())
    former = state("former.json") or {"sysctl": {}, "tables": None}
    # First nothing is routed any more, then the rules go: never the other way round.
    for path, value in former["sysctl"].items():
        if value is not None and sysctl(path) is not None:
            set_sysctl(path, value)
    for tool, family in FAMILIES.values():
        for table, lines in saved(tool).items():
            chains = [line[1:].split()[0] for line in lines if line.startswith(f":{OURS}")]
            if not chains:
                continue
            orders = ["-D " + line[3:] for line in lines if is_jump(line)]
            orders += [f"-F {chain}" for chain in chains] + [f"-X {chain}" for chain in chains]
            run(f"{tool}-restore", "--noflush", "-w", "10", text="\n".join([f"*{table}", *orders, "COMMIT", ""]))
            # iptables-nft makes a table on first use and never drops it: ours to drop when it was not there before.
            left = saved(tool).get(table, [])
            unused = all(line.startswith(":") and line.endswith(" ACCEPT") for line in left)
            made_by_us = former["tables"] is not None and f"{family} {table}" not in former["tables"]
            if unused and made_by_us and f"{family} {table}" in tables():
                run("nft", "delete", "table", family, table)
    if f"bridge {BRIDGE_TABLE}" in tables():
        run("nft", "delete", "table", "bridge", BRIDGE_TABLE)
    for name in ("former.json", "loaded.json"):
        (RUN / name).unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    if arguments not in (["apply"], ["check"], ["remove"]):
        print("usage: glasslab-network apply | check | remove", file=sys.stderr)
        return 2
    verb = arguments[0]
    try:
        RUN.mkdir(mode=0o755, exist_ok=True)
        # The unit, ifupdown2 and the role may come at the same moment.
        with (RUN / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if verb == "check":
                differs = check()
                print("\n".join(differs) or "as loaded")
                return 1 if differs else 0
            (apply if verb == "apply" else remove)()
    except Failure as error:
        print(f"glasslab-network: {verb}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"glasslab-network: {verb}: {error.filename or RUN}: {error.strerror}: mend that", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
