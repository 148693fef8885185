"""What the packet rules cost on a bridge with 50 guests: time to load them, and time a packet against no rules.

    .venv/bin/python bench/rules.py [--json]

In network namespaces of its own, made and removed here: a hypervisor with 50 ports at its bridge, two of them with a
guest behind (iperf3, as the embedded lab's image has it), and one host outside. Rules are rendered by the role's own
templates from its own policy filter. Root, and the embedded lab's image, are all it needs; no lab.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLE = ROOT / "roles" / "network"
sys.path.insert(0, str(ROOT / "roles" / "machine" / "files" / "nspawn"))

import image  # noqa: E402  (the backend's files are no package; found by the line above)

GUESTS, LOADS, ROUNDS, SECONDS = 50, 10, 5, 1
HYPERVISOR, AGENT, LOGS, OUTSIDE = (f"glbench-{name}" for name in ("pve", "agent", "logs", "outside"))
TARGETS = {"bridged": "10.10.10.11", "routed": "203.0.113.80"}
# MSS and length of a write: about 100 bytes a packet, and as large as the cable takes.
SIZES = {"small": ("88", "76"), "large": ("1448", "128K")}
Result = dict[str, Any]


def policy() -> dict[str, Any]:
    """50 guests in the mode that has most rules: each may reach the log and any internet address."""
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    variables = {name.removeprefix("network_"): value for name, value in defaults.items()}
    variables["guests"] = [
        {"name": f"guest{n}", "address": f"10.10.10.{n}", "mac": f"02:10:00:00:00:{n:02x}", "port": f"tap{100 + n}i0"}
        for n in range(10, 10 + GUESTS)
    ]
    names = [guest["name"] for guest in variables["guests"]]
    common = {"protocol": "tcp", "why": "measured"}
    variables["flows"] = [
        {
            "name": "log",
            "from": [name for name in names if name != "guest11"],
            "to": "guest11",
            "ports": [5201],
            **common,
        },
        {"name": "model", "from": names, "names": ["model.example"], "ports": [443], **common},
    ]
    variables["special_ranges"] = [one for one in variables["special_ranges"] if one != "203.0.113.0/24"]
    spec = importlib.util.spec_from_file_location("glasslab_policy", ROLE / "filter_plugins" / "glasslab_policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.network_policy({**variables, "mode": "open"})
    return found


def rendered(name: str, found: dict[str, Any]) -> str:
    """A rule file as the role renders it."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 (no HTML)
    environment.filters["to_json"] = json.dumps
    text = (ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(ansible_managed="bench", network_policy=found) + "\n"


def within(namespace: str, *words: str) -> list[str]:
    """The command line that runs a program of the image in a namespace, with a /tmp and a /proc of its own."""
    root = image.path()
    # S108: that is the image's, over which a file system of this process alone is laid.
    script = f'mount -t tmpfs none {root}/tmp && mount -t proc none {root}/proc && exec chroot {root} "$@"'  # noqa: S108
    return ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", script, "sh", *words]


def run(*command: str, text: str = "") -> str:
    """Output of a command; RuntimeError with its words when it fails."""
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])}: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def batch(namespace: str, *lines: str) -> None:
    """Carry out lines of `ip`."""
    run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


@contextmanager
def network(found: dict[str, Any]) -> Iterator[None]:
    """The namespaces, cabled."""
    remove()
    try:
        for name in (HYPERVISOR, AGENT, LOGS, OUTSIDE):
            run("ip", "netns", "add", name)
            batch(name, "link set lo up")
        batch(HYPERVISOR, "link add vmbr1 type bridge", "address add 10.10.10.1/24 dev vmbr1", "link set vmbr1 up")
        for guest in found["guests"]:
            port, peer = guest["port"], f"eth-{guest['name']}"
            place = {"guest10": AGENT, "guest11": LOGS}.get(guest["name"], HYPERVISOR)
            batch(HYPERVISOR, f"link add {port} type veth peer name {peer} netns {place}")
            batch(HYPERVISOR, f"link set {port} master vmbr1 gso_max_segs 1 up")
            if place != HYPERVISOR:
                own = f"link set {peer} address {guest['mac']} gso_max_segs 1 up"
                batch(place, own, f"address add {guest['address']}/24 dev {peer}", "route add default via 10.10.10.1")
        batch(HYPERVISOR, f"link add vmbr0 type veth peer name eth0 netns {OUTSIDE}")
        batch(HYPERVISOR, "address add 203.0.113.1/24 dev vmbr0", "link set vmbr0 gso_max_segs 1 up")
        batch(OUTSIDE, "address add 203.0.113.80/24 dev eth0", "link set eth0 gso_max_segs 1 up")
        batch(OUTSIDE, "route add 10.10.10.0/24 via 203.0.113.1")
        run("ip", "netns", "exec", HYPERVISOR, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        yield
    finally:
        remove()


def remove() -> None:
    """Take the namespaces away."""
    for name in (HYPERVISOR, AGENT, LOGS, OUTSIDE):
        if (Path("/run/netns") / name).exists():
            run("ip", "netns", "delete", name)


def load(texts: dict[str, str]) -> float:
    """Load all of it at once into an empty kernel; the seconds that took."""
    run(*within(HYPERVISOR, "nft", "flush", "ruleset"))
    tools = {"rules.v4": "iptables-restore -n", "rules.v6": "ip6tables-restore -n", "bridge.nft": "nft -f -"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        # The clock runs where the files are at hand, so that only the loading is measured.
        jobs = " ".join(f"{tool} </mnt/{name} & set -- $@ $!;" for name, tool in tools.items())
        script = f"a=$(date +%s%N); {jobs} for job; do wait $job || exit 1; done; echo $(( $(date +%s%N) - a ))"
        root = image.path()
        inner = f"mount --bind {folder} {root}/mnt; mount -t proc none {root}/proc; exec chroot {root} sh -c '{script}'"
        out = run("ip", "netns", "exec", HYPERVISOR, "unshare", "--mount", "sh", "-c", inner)
    return int(out) / 1e9


def route(found: dict[str, Any], *, on: bool) -> None:
    """Add or delete the policy routes and what the sysctls need."""
    for family, *words in found["ip_rules"]:
        run("ip", "-n", HYPERVISOR, family, "rule", "add" if on else "delete", *words)
    values = {path: value for path, value in found["sysctls"].items() if "fwbr" not in path} if on else {}
    for path, value in values.items():
        run(
            "ip",
            "netns",
            "exec",
            HYPERVISOR,
            "sh",
            "-c",
            f"[ ! -e /proc/sys/{path} ] || echo {value} >/proc/sys/{path}",
        )


def packets(way: str, size: str) -> float:
    """Packets a second over that way."""
    segment, length = SIZES[size]
    words = ("--client", TARGETS[way], "--time", str(SECONDS), "--set-mss", segment, "--length", length, "--no-delay")
    report = json.loads(run(*within(AGENT, "iperf3", *words, "--json")))
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8 / int(segment)


def measure() -> tuple[list[Result], dict[str, float]]:
    """Results and ratios as bench/results.json holds them."""
    found = policy()
    texts = {name: rendered(name, found) for name in ("rules.v4", "rules.v6", "bridge.nft")}
    rates: dict[tuple[str, str, bool], list[float]] = {}
    with network(found):
        loads = sorted(1000 * load(texts) for _ in range(LOADS))
        rules = sum(line.startswith("-A ") for line in texts["rules.v4"].splitlines())
        servers = [subprocess.Popen(within(name, "iperf3", "--server"), stdout=-3) for name in (LOGS, OUTSIDE)]
        try:
            time.sleep(0.5)
            for _ in range(ROUNDS):
                for on in (False, True):
                    run(*within(HYPERVISOR, "nft", "flush", "ruleset"))
                    if on:
                        load(texts)
                        route(found, on=True)
                    for way in TARGETS:
                        for size in SIZES:
                            rates.setdefault((way, size, on), []).append(packets(way, size))
                    if on:
                        route(found, on=False)
        finally:
            for one in servers:
                one.kill()
                one.wait()
    results = [result("rule load", f"{GUESTS} guests, {rules} rules for IPv4", "ms", loads)]
    for (way, size, on), seen in rates.items():
        design = f"{way}, {size} packets, {'rules of 50 guests' if on else 'no rules'}"
        results.append(result("packet", design, "us", sorted(1e6 / one for one in seen)))
    ratios = {
        f"a {size} packet {way}, rules of {GUESTS} guests / no rules": round(
            statistics.median(rates[way, size, False]) / statistics.median(rates[way, size, True]), 2
        )
        for way in TARGETS
        for size in SIZES
    }
    return results, ratios


def result(name: str, design: str, unit: str, values: list[float]) -> Result:
    """One line of bench/results.json; values in order."""
    figures = {"median": round(statistics.median(values), 2), "p95": round(values[-1 - len(values) // 20], 2)}
    return {"name": name, "design": design, "unit": unit, **figures, "n": len(values)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not image.ready():
        print("rules: the embedded lab's image is not there: `make demo` builds it", file=sys.stderr)
        return 1
    try:
        results, ratios = measure()
    except RuntimeError as error:
        print(f"rules: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"results": results, "ratios": ratios}))
    else:
        for one in results:
            print(f"{one['name']:<10} {one['design']:<50} median {one['median']} {one['unit']}, p95 {one['p95']}")
        print(ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
