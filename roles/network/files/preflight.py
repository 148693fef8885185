"""Refuse a policy that makes no sense, or a run that would clash with the host or cut its caller off.

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
# What network_special_ranges may not leave out: networks that are somebody's own.
PRIVATE = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")  # of one machine: the lowest bit would make it a group's
NUMBERS = {"connection_limit": (1, 100_000), "confirm_seconds": (5, 3_600), "lease_seconds": (0, 86_400)}
PROXIED = 32_768  # connections at the proxy, all guests together: 2 GiB of memory at the most
DNS_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def network(text: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text))
    except ValueError:
        return None


def policy_problems(policy: dict) -> list[str]:
    """What is wrong with the policy itself, whichever host it is for."""
    subnet = network(policy["subnet"])
    if subnet is None or subnet.num_addresses < 4:
        return [f"network_subnet {policy['subnet']} is not an IPv4 network such as 10.10.10.0/24"]
    problems = []
    for variable in ("bridge", "uplink"):
        if not DEVICE.fullmatch(policy[variable]):
            problems.append(
                f"network_{variable} {policy[variable]!r} is not an interface name of at most 15 characters"
            )
    taken = {}
    for owner, text in [("network_address", policy["address"]), *((g["name"], g["address"]) for g in policy["guests"])]:
        address = network(text)
        if address is None or address.num_addresses != 1 or not address.subnet_of(subnet):
            problems.append(f"{owner}: address {text} is not one address inside network_subnet {subnet}")
        elif text in taken:
            problems.append(f"{owner}: address {text} is taken by {taken[text]}")
        taken.setdefault(text, owner)
    for key, pattern in (("name", NAME), ("port", DEVICE), ("mac", MAC)):
        values = [guest[key].lower() if key == "mac" else guest[key] for guest in policy["guests"]]
        problems += [
            f"network_guests: {key} {value!r} is malformed" for value in values if not pattern.fullmatch(value)
        ]
        problems += [
            f"network_guests: {key} {v!r} is used twice" for v in sorted({v for v in values if values.count(v) > 1})
        ]
    ranges = [(text, network(text)) for text in policy["special_ranges"]]
    problems += [f"network_special_ranges: {text} is not an IPv4 network" for text, value in ranges if value is None]
    special = [value for _, value in ranges if value is not None]
    problems += [
        f"network_special_ranges: {text} is missing: it is never the internet"
        for text in PRIVATE
        if not any(ipaddress.IPv4Network(text).subnet_of(value) for value in special)
    ]
    problems += flow_problems(policy, subnet, special)
    problems += name_problems(policy, subnet)
    problems += [
        f"network_{name} {policy[name]} must be from {least} to {most}"
        for name, (least, most) in NUMBERS.items()
        if not least <= int(policy[name]) <= most
    ]
    return problems


def flow_problems(policy: dict, subnet: ipaddress.IPv4Network, special: list[ipaddress.IPv4Network]) -> list[str]:
    problems = []
    guests = {guest["name"] for guest in policy["guests"]}
    names = [flow["name"] for flow in policy["flows"]]
    for flow in policy["flows"]:
        where = f"network_flows: {flow['name']}"
        if not NAME.fullmatch(flow["name"]) or names.count(flow["name"]) > 1:
            problems.append(f"{where}: the name must be one word of letters, digits, _ and -, and used once")
        ones = senders(flow)
        problems += [f"{where}: from {name!r} is no guest of network_guests" for name in ones if name not in guests]
        if not ones or len(set(map(str, ones))) < len(ones):
            problems.append(f"{where}: from {flow['from']!r} must name at least one guest, each once")
        if not 1 <= len(flow["ports"]) <= 15 or any(not 1 <= int(port) <= 65535 for port in flow["ports"]):
            problems.append(f"{where}: ports {flow['ports']} must be 1 to 15 numbers from 1 to 65535")
        by_name, target = flow.get("names") or [], flow.get("to")
        if bool(by_name) == (target is not None):
            problems.append(f"{where}: give either `to` (a guest or an address) or `names` (DNS names)")
        elif by_name:
            if flow["protocol"] != "tcp":
                problems.append(f"{where}: by name only tcp can be held to the name")
        elif target in guests:
            problems += guest_flow_problems(where, flow, ones)
        else:
            problems += address_problems(where, target, subnet, special)
    return problems


def senders(flow: dict) -> list:
    """The guests a flow is from: one name, or a list of them."""
    return flow["from"] if isinstance(flow["from"], list) else [flow["from"]]


def guest_flow_problems(where: str, flow: dict, ones: list[str]) -> list[str]:
    problems = []
    if flow["protocol"] != "tcp":
        problems.append(f"{where}: from guest to guest only tcp can be told from its replies inside the bridge")
    if flow["to"] in ones:
        problems.append(f"{where}: from and to are the same guest {flow['to']!r}")
    if flow.get("modes"):
        problems.append(f"{where}: modes {flow['modes']}: a flow to a guest holds in every mode: take modes out")
    return problems


def address_problems(
    where: str, to: str, subnet: ipaddress.IPv4Network, special: list[ipaddress.IPv4Network]
) -> list[str]:
    target = network(to)
    if target is None:
        return [f"{where}: to {to!r} is neither a guest nor an IPv4 address (a DNS name goes into `names`)"]
    if target.overlaps(subnet):
        return [f"{where}: to {to} is inside the lab's own subnet: name the guest instead"]
    return [
        f"{where}: to {to} is inside the special-purpose range {one}, which is never the internet"
        for one in special
        if target.overlaps(one)
    ]


def name_problems(policy: dict, subnet: ipaddress.IPv4Network) -> list[str]:
    """What is wrong with the allowed names, and with the addresses that guests are told for them."""
    wanted = [name for flow in policy["flows"] for name in flow.get("names") or []]
    problems = [
        f"network_flows: name {name!r} is not a DNS name in lower case such as api.example.org"
        for name in sorted({*wanted, *policy["name_addresses"]})
        if not DNS_NAME.fullmatch(str(name))
    ]
    told = {"network_resolver_address": policy["resolver_address"]}
    told |= {f"network_name_addresses: {name}": address for name, address in policy["name_addresses"].items()}
    taken: dict[str, str] = {}
    for owner, text in told.items():
        one = network(text)
        if one is None or one.num_addresses != 1 or one.overlaps(subnet):
            problems.append(f"{owner}: {text} is not one IPv4 address outside network_subnet {subnet}")
        elif text in taken:
            problems.append(f"{owner}: address {text} is taken by {taken[text]}")
        taken.setdefault(text, owner)
    named = [flow for flow in policy["flows"] if flow.get("names")]
    doors = {(str(guest), port) for flow in named for guest in senders(flow) for port in flow["ports"]}
    if (most := len(doors) * int(policy["connection_limit"])) > PROXIED:
        problems.append(
            f"network_connection_limit {policy['connection_limit']}: flows by name make that {most} connections at the "
            f"proxy, more than {PROXIED}: lower it"
        )
    spare = network(policy["names_range"])
    needed = len(set(wanted) - set(policy["name_addresses"]))
    if spare is None or spare.overlaps(subnet) or sum(1 for _ in spare.hosts()) < needed:
        problems.append(
            f"network_names_range {policy['names_range']} is not an IPv4 network outside network_subnet with room for "
            f"{needed} names"
        )
    elif inside := [text for text in told.values() if (one := network(text)) and one.overlaps(spare)]:
        problems.append(f"network_names_range {spare} must not hold {', '.join(inside)}, which is given by hand")
    return problems


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
    if not ours and not problems and pathlib.Path("/sys/class/net", bridge).exists():
        problems.append(f"an interface {bridge} exists that this role did not make: choose another network_bridge")
    waiting = INTERFACES.with_name("interfaces.new")
    if waiting.exists():
        problems.append(
            f"{waiting} holds changes of Proxmox VE's own network editor that would replace ours when they are "
            "applied: apply or revert them there first"
        )
    return problems


def host_problems(policy: dict) -> list[str]:
    """What on this host stands against the policy."""
    problems = tool_problems()
    if problems:
        return problems
    bridge, subnet = policy["bridge"], network(policy["subnet"])
    problems = bridge_problems(bridge)
    if shutil.disk_usage("/var/lib").free < FREE_BYTES:
        problems.append("less than 16 MiB are free below /var/lib, where the former files are kept: make room there")
    if not pathlib.Path("/sys/class/net", policy["uplink"]).exists():
        problems.append(f"network_uplink {policy['uplink']} does not exist on this host")
    for entry in ip_json("-4", "address", "show"):
        for held in entry.get("addr_info", []):
            net = ipaddress.IPv4Interface(f"{held['local']}/{held['prefixlen']}").network
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
    problems = policy_problems(policy) or host_problems(policy)
    for problem in problems:
        print(problem)
    if not problems:
        print(json.dumps(facts(policy)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
