"""What the isolation tests share: commands on the lab's machines that need no network, probes, and rule dumps.

Nothing here goes over SSH: the tests take networks down.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from labtools import LAB_ID, LAB_PY, ROOT, STATE, Done

VERIFY = ROOT / "roles" / "verify"
sys.path.insert(0, str(VERIFY / "files"))

import doors  # noqa: E402  (the role's files are no package; found by the line above)
import plan as planning  # noqa: E402  (as above)
import receipt  # noqa: E402  (as above)

Probe = dict[str, Any]
PROBER, PLACER, WATCHER = (
    (VERIFY / "files" / name).read_text(encoding="utf-8") for name in ("probe.py", "places.py", "watch.py")
)
SETTINGS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))
SANDBOX = ["203.0.113.10", "203.0.113.53", "10.10.10.20"]  # as the local inventory has it in agent_ip_allow
PLACES = {
    "agent": ("exec", "agent"),
    "logs": ("exec", "logs"),
    "hypervisor": ("exec", "pve"),
    "controller": ("ns-exec", "ctl"),
}
LOADER = "/usr/local/sbin/glasslab-network"
# SYN_SENT, SYN_RECV, FIN_WAIT1, LAST_ACK, CLOSING, as /proc/net/tcp has them: `ss` does not show the second of these.
BEGUN_OR_ENDING = ("02", "03", "04", "09", "0B")
RATE = "net.ipv4.icmp_ratelimit"
MENDERS = "glasslab-network-watch.service glasslab-network-heal.timer"


def command(place: tuple[str, str], *words: str) -> list[str]:
    """The command line that runs words in a machine (exec) or a namespace (ns-exec) of the lab under test."""
    verb, name = place
    return [sys.executable, str(LAB_PY), verb, "--lab-id", LAB_ID, name, "--", *words]


def run(place: tuple[str, str], *words: str, stdin: str = "", check: bool = True) -> Done:
    """Run words there; with check, a failure shows what they said."""
    done = subprocess.run(command(place, *words), input=stdin, text=True, capture_output=True, check=False, timeout=120)
    said = done.stderr or done.stdout
    assert not check or done.returncode == 0, f"{place[1]}: {' '.join(words)}: exit {done.returncode}: {said}"
    return done


def pve(script: str, *, check: bool = True) -> str:
    """Run a shell script on the hypervisor; what it printed."""
    return run(PLACES["hypervisor"], "sh", "-c", script, check=check).stdout


@contextmanager
def nobody_mends() -> Iterator[None]:
    """While the block runs nothing puts the walls back but the test: no watcher, no round of the timer's."""
    pve(f"systemctl stop {MENDERS} glasslab-network-heal.service")  # a round that is under way, too
    try:
        yield
    finally:
        pve(f"systemctl start {MENDERS}")


@contextmanager
def sysctl_at(name: str, value: int, *places: tuple[str, str]) -> Iterator[None]:
    """While the block runs these places have that setting."""
    former = {place: run(place, "sysctl", "-n", name).stdout.strip() for place in places}
    try:
        for place in places:
            run(place, "sysctl", "-qw", f"{name}={value}")
        yield
    finally:
        for place, before in former.items():
            run(place, "sysctl", "-qw", f"{name}={before}")


@contextmanager
def errors_unlimited(*places: tuple[str, str]) -> Iterator[None]:
    """While the block runs these places send ICMP errors whenever there is cause.

    One a second, as usual, would tell of nothing: whose answer is an error had its turn taken by another's.
    """
    with sysctl_at(RATE, 0, *places):
        yield


def repeating(place: str) -> list[str]:
    """A machine's TCP connections that wait for a word from the other side, and say theirs again until it comes."""
    lines = run(PLACES[place], "cat", "/proc/net/tcp").stdout.splitlines()[1:]
    return [line for line in lines if line.split()[3] in BEGUN_OR_ENDING]


def see(place: str, targets: list[dict[str, Any]]) -> list[Probe]:
    """Knock on the targets from a place."""
    wanted = [one for target in targets for one in doors.doors(target)]
    order = json.dumps({"timeout": 1.0, "doors": wanted})
    found: list[Probe] = json.loads(run(PLACES[place], "python3", "-", order, stdin=PROBER).stdout)
    return found


def policy() -> dict[str, Any]:
    """The embedded lab's policy as the playbooks work it out, in the mode that the hypervisor has."""
    network, inventory = ROOT / "roles" / "network", ROOT / "inventories" / "local" / "group_vars" / "hypervisor.yml"
    values = yaml.safe_load((network / "defaults" / "main.yml").read_text(encoding="utf-8"))
    loader = DataLoader()
    values |= loader.load_from_file(str(inventory), trusted_as_template=True)
    settings = loader.load_from_file(str(inventory.with_name("all.yml")))
    values["network_flows"] = Templar(loader=loader, variables=settings).template(values["network_flows"])
    values["network_mode"] = json.loads(pve("cat /etc/glasslab/network/settings.json")).get("mode", "allowlist")
    declared = {name.removeprefix("network_"): value for name, value in values.items()}
    found = importlib.util.spec_from_file_location("glasslab_policy", network / "filter_plugins" / "glasslab_policy.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return {"declared": declared, "policy": module.network_policy(declared)}


def entered(name: str) -> list[str]:
    """Words that start a command in a namespace of the lab."""
    return ["nsenter", f"--net=/run/netns/{LAB_ID}-{name}", "--"]


def watching(order: dict[str, Any], place: str = "hypervisor") -> str:
    """What watch.py prints there."""
    return run(PLACES[place], "python3", "-", json.dumps(order), stdin=WATCHER).stdout


def knocked(machine: str, order: dict[str, Any]) -> str:
    """What places.py prints on a machine of the lab; the controller is this one."""
    words = ["python3", "-", json.dumps(order)]
    if machine != "controller":
        return run(PLACES[machine], *words, stdin=PLACER).stdout
    return subprocess.run(words, input=PLACER, text=True, capture_output=True, check=True, timeout=120).stdout


def plan(known: dict[str, Any], begun: str, *, disruptive: bool) -> dict[str, Any]:
    """What the playbook would try from where."""
    outside = {"LAN": ("lan", "192.168.50.2"), "other lab": ("otherlab", None), "internet": ("internet", "203.0.113.1")}
    order = {
        **known,
        "hypervisor": json.loads(begun),
        "hypervisor_address": "192.168.50.2",
        "guests": ["agent", "logs"],
        "controller_command": entered("ctl"),
        "outside": [
            {"name": name, "command": entered(place), "routes": [["10.10.10.0/24", via]] if via else []}
            for name, (place, via) in outside.items()
        ],
        "ca": (STATE / "ca" / "ca.crt").read_text(encoding="utf-8"),
        "other_names": ["other.glasslab.test", "elsewhere.glasslab.test"],
        "disruptive": disruptive,
        "sandboxes": {place: {**box, "allow": SANDBOX} for place, box in SETTINGS["verify_sandboxes"].items()},
        **{name: SETTINGS[f"verify_{name}"] for name in ("targets", "guest_ports", "timeout")},
    }
    planned: dict[str, Any] = planning.plan(order)
    return planned


def take_receipt(*, disruptive: bool = False, accepted: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The receipt as the playbook takes it, from every place at the same moment; without question and log."""
    known = policy()
    tried = [one for target in SETTINGS["verify_targets"] for one in target["addresses"]]
    guests = [guest["address"] for guest in known["policy"]["guests"]]
    watched = [*tried, *guests, known["policy"]["address"]]
    ports = {"bridge": known["policy"]["bridge"], "ports": known["policy"]["entries"]}
    begun = watching({"verb": "begin", **ports, "watched": watched, "tags": disruptive})
    planned = plan(known, begun, disruptive=disruptive)
    machines = planned.pop("machines")
    with ThreadPoolExecutor(len(machines)) as pool:
        texts = dict(zip(machines, pool.map(knocked, machines, machines.values()), strict=True))
        ends = planned.pop("ends")
        said = list(pool.map(lambda machine: watching(ends[machine], machine), ends))
    result: dict[str, Any] = receipt.receipt(
        {
            "lab_id": LAB_ID,
            "nodes": {"hypervisor": {"policy": known["policy"], "begun": begun}},
            "planned": json.dumps({"nodes": json.dumps({"hypervisor": planned})}),
            "knocked": texts,
            "ended": dict(zip(ends, said, strict=True)),
            "questions": {},
            "accepted": accepted or [],
            "checkout": str(ROOT),
        }
    )
    return result


def differing(result: dict[str, Any]) -> list[str]:
    """One line a probe that is not as expected, and each other problem."""
    rows = [receipt.row_line(row) for row in result["probes"] if row["observed"] != row["expected"]]
    problems: list[str] = result["problems"]
    return rows + problems


def door(address: str, **ways: Any) -> dict[str, Any]:
    """A target of its own, for one question."""
    return {"name": address, "addresses": [address], **ways}


def answers(place: str, target: dict[str, Any]) -> list[str]:
    """What that place gets from the target."""
    return [probe["answer"] for probe in see(place, [target])]


def rules() -> str:
    """All of the hypervisor's packet rules without counters and comments."""
    dump = pve("iptables-save; ip6tables-save; nft list ruleset bridge")
    return "\n".join(re.sub(r" ?\[\d+:\d+\]", "", line) for line in dump.splitlines() if not line.startswith("#"))


def wait_for(what: str, condition: Any, seconds: float = 30) -> None:
    """Wait until the condition holds; fail with its name when it does not."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)


def reboots() -> int:
    """How often the hypervisor has rebooted."""
    done = subprocess.run(
        [sys.executable, str(LAB_PY), "status", "--lab-id", LAB_ID, "--json"],
        text=True,
        capture_output=True,
        check=True,
    )
    return int(json.loads(done.stdout)["machines"]["pve"]["reboots"])


def managed() -> bool:
    """Whether the hypervisor answers on its management address."""
    return answers("controller", door("192.168.50.2", tcp=[22])) == ["open"]


def booted() -> bool:
    """Whether the hypervisor's system has come up, with or without failed units."""
    done = run(PLACES["hypervisor"], "systemctl", "is-system-running", check=False)
    return done.stdout.strip() in ("running", "degraded")


def reboot() -> None:
    """Reboot the hypervisor and wait until it has come up and can be managed."""
    before = reboots()
    run(PLACES["hypervisor"], "systemctl", "reboot", check=False)
    wait_for("the hypervisor reboots", lambda: reboots() > before)
    wait_for("the hypervisor comes up", booted)
    wait_for("the hypervisor can be managed", managed)


def heard(listener: tuple[str, str], sender: tuple[str, str], address: str) -> bool:
    """Whether a datagram from the sender arrives at the listener, reply or no reply."""
    port = 9999
    listen = (
        f"import socket;s=socket.socket(2,2);s.bind(('',{port}));s.settimeout(1.2);print('up',flush=True);s.recv(9)"
    )
    send = (
        f"import socket,time;s=socket.socket(2,2);[(s.sendto(b'x',('{address}',{port})),time.sleep(.2)) for _ in '123']"
    )
    with subprocess.Popen(command(listener, "python3", "-c", listen), stdout=-1, stderr=-3, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        run(sender, "python3", "-c", send, check=False)
        return one.wait(10) == 0


def playbook_lines(done: Done) -> str:
    """What a playbook said when it stopped."""
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if '"msg"' in line or "ERROR" in line)
