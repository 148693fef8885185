"""What the isolation tests share: commands on the lab's machines that need no network, probes, and rule dumps.

Nothing here goes over SSH: the tests take networks down.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import yaml

from labtools import LAB_ID, LAB_PY, ROOT, Done

VERIFY = ROOT / "roles" / "verify"
sys.path.insert(0, str(VERIFY / "files"))

import receipt  # noqa: E402  (the role's files are no package; found by the line above)

Probe = dict[str, Any]
PROBER = (VERIFY / "files" / "probe.py").read_text(encoding="utf-8")
TARGETS = yaml.safe_load((VERIFY / "defaults" / "main.yml").read_text(encoding="utf-8"))["verify_targets"]
PLACES = {"agent": ("exec", "agent"), "hypervisor": ("exec", "pve"), "controller": ("ns-exec", "ctl")}
LOADER = "/usr/local/sbin/glasslab-network"


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


def see(place: str, targets: list[dict[str, Any]]) -> list[Probe]:
    """Knock on the targets from a place."""
    order = json.dumps({"timeout": 1.0, "place": place, "targets": targets})
    seen: dict[str, list[Probe]] = json.loads(run(PLACES[place], "python3", "-", order, stdin=PROBER).stdout)
    return seen[place]


def take_receipt() -> dict[str, Any]:
    """The receipt as the playbook takes it, with the three places at the same moment."""
    with ThreadPoolExecutor(len(PLACES)) as pool:
        seen = dict(zip(PLACES, pool.map(lambda place: see(place, TARGETS), PLACES), strict=True))
    result: dict[str, Any] = receipt.receipt(LAB_ID, seen)
    return result


def differing(result: dict[str, Any]) -> list[str]:
    """One line a probe that is not as expected."""
    return [receipt.line(row) for row in result["probes"] if row["observed"] != row["expected"]]


def door(address: str, **ways: Any) -> dict[str, Any]:
    """A target of its own, for one question."""
    return {"name": address, "addresses": [address], "expected": "blocked", "control": "controller", **ways}


def answers(place: str, target: dict[str, Any]) -> list[str]:
    """What that place gets from the target."""
    return [probe["answer"] for probe in see(place, [{**target, "control": place}])]


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
