"""Refuse a run that would clash with the host or cut its caller off.

Fed to the hypervisor's python3 on standard input, with the policy as JSON in the first argument; changes nothing.
Prints one line a problem and exits 1 when there is any; else what the plan has to know of the host, as JSON.
"""

import ipaddress
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

INTERFACES = pathlib.Path("/etc/network/interfaces")
SAVED = pathlib.Path("/var/lib/glasslab-network")
FORMER = pathlib.Path("/run/glasslab-network/former.json")
SYSCTL = pathlib.Path("/proc/sys")
NET = pathlib.Path("/sys/class/net")
FREE_BYTES = 16 * 1024 * 1024
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RULE_PRIORITY = 4700
# Other programs that write packet rules, and what each means for ours.
FIREWALLS = {
    "pve-firewall": "writes its own chains every few seconds; ours stand before them, and what either drops is dropped",
    "proxmox-firewall": "has tables of its own, and guests' ports then go without fwbr; what either drops is dropped",
    "firewalld": "takes other rules along when it reloads; the watcher puts ours back at once",
    "ufw": "takes other rules along when it is enabled or reloaded; the watcher puts ours back at once",
    "docker": "sets the policy of FORWARD to DROP and makes the host route; ours stand before its chains",
}


def network(text: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text))
    except ValueError:
        return None


def ip_json(*command: str) -> list[dict]:
    # S603, S607: fixed words, no shell, and root's own PATH.
    done = subprocess.run(["ip", "-j", *command], capture_output=True, text=True, timeout=10, check=True)
    return json.loads(done.stdout or "[]")


def tool_problems() -> list[str]:
    """Tools that are missing or cannot be run; the probing calls read and change nothing."""
    problems = []
    if not shutil.which("ifreload"):
        problems.append("ifupdown2 is missing (no ifreload): apt-get install ifupdown2")
    calls = {
        "iptables-restore": ("iptables", ["--version"]),
        "iptables-save": ("iptables", ["--version"]),
        "ip6tables-restore": ("iptables", ["--version"]),
        "ip6tables-save": ("iptables", ["--version"]),
        "nft": ("nftables", ["list", "tables"]),
        "ip": ("iproute2", ["-V"]),
    }
    for tool, (package, arguments) in calls.items():
        try:
            # S603: fixed words, no shell.
            done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=10, check=False)
        except FileNotFoundError:
            problems.append(f"{tool} is missing: apt-get install {package}")
        except OSError as error:
            problems.append(
                f"{tool} cannot be run ({error.strerror}): repair it, or apt-get install --reinstall {package}"
            )
        else:
            if done.returncode:
                said = " ".join((done.stderr or done.stdout).split())[:200]
                problems.append(
                    f"{tool} fails ({said or f'exit {done.returncode}'}): apt-get install --reinstall {package}"
                )
            elif "(legacy)" in done.stdout:
                family = tool.removesuffix("-restore").removesuffix("-save")
                problems.append(
                    f"{tool} is the legacy variant, whose rules cannot be watched: "
                    f"update-alternatives --set {family} /usr/sbin/{family}-nft"
                )
    return problems


def bridge_problems(bridge: str) -> list[str]:
    """Somebody else's bridge of that name: a stanza of it that does not say `glasslab`."""
    if not INTERFACES.is_file():
        return [f"{INTERFACES} does not exist: this host is not configured by ifupdown2"]
    stanza = re.compile(
        rf"^[ \t]*iface[ \t]+{re.escape(bridge)}(?=\s).*?(?=^\s*$|^\s*(?:iface|auto|source|mapping|allow-)|\Z)",
        re.DOTALL | re.MULTILINE,
    )
    problems = []
    ours = False
    for path in [INTERFACES, *sorted(INTERFACES.with_name("interfaces.d").glob("*"))]:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for one in stanza.findall(text):
            ours = ours or "glasslab" in one
            if "glasslab" not in one or path != INTERFACES:
                problems.append(
                    f"{bridge} is already defined in {path}, not by this role: choose another network_bridge "
                    "or take it out"
                )
    if not ours and not problems and (NET / bridge).exists():
        problems.append(f"an interface {bridge} exists that this role did not make: choose another network_bridge")
    waiting = INTERFACES.with_name("interfaces.new")
    if waiting.exists():
        problems.append(
            f"{waiting} holds changes of Proxmox VE's own network editor that would replace ours when they are "
            "applied: apply or revert them there first"
        )
    return problems


def port_problems(policy: dict) -> list[str]:
    """Interfaces of the host's own, named as a guest's: what they take in would be dropped, and they be taken down."""
    return [
        f"network_guests: port {guest['port']} of {guest['name']} is a {what} of this host: name the guest's own port"
        for guest in policy["guests"]
        for what, sign in (("network card", "device"), ("bridge", "bridge"))
        if (NET / guest["port"] / sign).exists()
    ]


def own_doors(policy: dict, address: str) -> list[str]:
    """Flows to the hypervisor: its doors are shut for guests, whatever a flow says."""
    return [
        f"network_flows: {flow['name']}: to {address} is this host itself, whose doors are shut for guests"
        for flow in policy["flows"]
        if flow.get("to") == address
    ]


def host_problems(policy: dict) -> list[str]:
    """What on this host stands against the policy."""
    problems = tool_problems()
    if problems:
        return problems
    bridge, subnet = policy["bridge"], network(policy["subnet"])
    problems = bridge_problems(bridge) + port_problems(policy)
    if shutil.disk_usage("/var/lib").free < FREE_BYTES:
        problems.append("less than 16 MiB are free below /var/lib, where the former files are kept: make room there")
    if not (NET / policy["uplink"]).exists():
        problems.append(f"network_uplink {policy['uplink']} does not exist on this host")
    for entry in ip_json("-4", "address", "show"):
        for held in entry.get("addr_info", []):
            net = ipaddress.IPv4Interface(f"{held['local']}/{held['prefixlen']}").network
            problems += own_doors(policy, held["local"])
            if entry["ifname"] != bridge and subnet is not None and net.overlaps(subnet):
                problems.append(
                    f"network_subnet {subnet} is in use: {entry['ifname']} has {held['local']}/{held['prefixlen']}"
                )
    for route in ip_json("-4", "route", "show"):
        target = None if route["dst"] == "default" else network(route["dst"])
        if target is not None and route.get("dev") != bridge and subnet is not None and target.overlaps(subnet):
            line = (
                f"network_subnet {subnet} is in use: a route to {route['dst']} leaves by {route.get('dev', 'nowhere')}"
            )
            if not any(f"{route.get('dev')} has" in problem for problem in problems):
                problems.append(line)
    caller = os.environ.get("SSH_CONNECTION", "").split()
    client = network(caller[0]) if caller else None
    if client is not None and subnet is not None and client.overlaps(subnet):
        problems.append(
            f"this connection comes from {caller[0]}, inside the lab, and would be cut: connect by {policy['uplink']}"
        )
    return problems


def output(*command: str) -> str:
    """What a command prints, whatever its exit code; nothing when it is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except FileNotFoundError:
        return ""


def notes(policy: dict) -> list[str]:
    """What is no obstacle, and should be known before anything is changed."""
    states = output("systemctl", "is-active", *FIREWALLS).splitlines()
    running = [name for name, state in zip(FIREWALLS, states, strict=False) if state == "active"]
    found = [f"{name} runs here: it {FIREWALLS[name]}" for name in running]
    legacy = [pathlib.Path(f"/proc/net/{family}_tables_names") for family in ("ip", "ip6")]
    if any(path.exists() and path.read_text(encoding="ascii").strip() for path in legacy):
        found.append("iptables-legacy has tables here: what they drop stays dropped; ours stand beside them")
    if value("net/ipv4/ip_forward") == "1" and not FORMER.exists():
        found.append("this host routes already (net.ipv4.ip_forward is 1): that stays so when the lab is taken away")
    earlier = [str(rule["priority"]) for rule in ip_json("rule", "show") if 0 < rule["priority"] < RULE_PRIORITY]
    if earlier:
        found.append(f"`ip rule` {', '.join(earlier)} decide before ours, which begin at {RULE_PRIORITY}")
    return found


def value(path: str) -> str | None:
    try:
        return (SYSCTL / path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def facts(policy: dict) -> dict:
    """What the plan has to know. `unwanted`: services that came with packages which the role has installed."""
    record = SAVED / "packages"
    packages = record.read_text(encoding="ascii").split() if record.exists() else []
    on = "haproxy" in packages and output("systemctl", "is-enabled", "haproxy.service").strip() == "enabled"
    devices = [f"net/{family}/conf/{policy[end]}" for family in ("ipv4", "ipv6") for end in ("bridge", "uplink")]
    paths = [f"{device}/{path.name}" for device in devices for path in sorted((SYSCTL / device).glob("*"))]
    return {
        "plan": notes(policy),
        "armed": (SAVED / "pending.json").exists(),
        "tools": [name for name in ("dnsmasq", "haproxy") if shutil.which(name, path=PATH)],
        "packages": packages,
        "unwanted": ["haproxy"] if on else [],
        "sysctls": {path: read for path in ["net/ipv4/ip_forward", *paths] if (read := value(path)) is not None},
    }


def main() -> int:
    policy = json.loads(sys.argv[1])
    problems = host_problems(policy)
    for problem in problems:
        print(problem)
    if not problems:
        print(json.dumps(facts(policy)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
