"""What the tests of a change share: everything of ours on the hypervisor at a glance, a controller that is cut off."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lab
from isolationtools import pve, rules, run, wait_for
from labtools import ANSIBLE, ROOT

LAN = ("ns-exec", "lan")
CONTROLLERS_PORT = "port-ctl"
OURS = (
    "/etc/network/interfaces /etc/glasslab /usr/local/lib/glasslab/network /usr/local/sbin/glasslab-network "
    "/etc/systemd/system /var/lib/glasslab-network/packages"
)


def everything() -> dict[str, str]:
    """Files with their modes and contents, packet rules, routes, sysctls, links and units: what a change may touch."""
    files = pve(
        f"find {OURS} -name __pycache__ -prune -o -type f -printf '%p %m ' -exec sha256sum {{}} \\; "
        f"-o -type l -printf '%p -> %l\\n' 2>/dev/null | sed 's|  /.*||' | sort",
        check=False,
    )
    return {
        "files": files,
        "folders": pve(f"find {OURS} -name __pycache__ -prune -o -type d -print 2>/dev/null | sort", check=False),
        "rules": rules(),
        "routes": pve("ip rule; ip -6 rule; ip route; ip -6 route show table all | grep -v ' cache'", check=False),
        "sysctls": pve(
            "sysctl -a 2>/dev/null | grep -E 'ip_forward|forwarding|rp_filter|src_valid|redirects|arp_|disable_ipv6'",
            check=False,
        ),
        "links": pve(
            "for one in vmbr0 vmbr1 vmbr2 tap101i0 tap102i0; do "
            "ip -oneline link show $one 2>/dev/null | grep -o -E ': [a-z0-9]+|[<,]UP[,>]|master [a-z0-9]+'; done; "
            "for one in vmbr0 vmbr1 vmbr2; do ip -oneline -4 address show $one 2>/dev/null; done",
            check=False,
        ),
        "units": pve(
            "systemctl list-units --all --plain --no-legend 'glasslab*' haproxy.service networking.service "
            "| grep -v -e heal.service -e witness | awk '{print $1, $3}'",
            check=False,
        ),
    }


def differing(before: dict[str, str], now: dict[str, str]) -> dict[str, list[str]]:
    """The lines that are in one and not in the other, by kind."""
    found = {kind: sorted(set(before[kind].splitlines()) ^ set(now[kind].splitlines())) for kind in before}
    return {kind: lines for kind, lines in found.items() if lines}


def armed() -> Any:
    """The change that is armed, as the program tells it; None when none is."""
    said = pve("[ ! -x /usr/local/sbin/glasslab-network ] || glasslab-network status", check=False)
    return json.loads(said or "null")


def is_pending() -> bool:
    """Whether one is armed on disk: also while the program is not there yet."""
    return pve("ls /var/lib/glasslab-network/pending.json 2>/dev/null", check=False) != ""


def backups() -> list[str]:
    return pve("ls /var/lib/glasslab-network/backup", check=False).split()


@contextlib.contextmanager
def cut_off() -> Iterator[None]:
    """The controller's packets are lost, both ways, without an error."""
    run(LAN, "ip", "link", "set", CONTROLLERS_PORT, "nomaster")
    try:
        yield
    finally:
        run(LAN, "ip", "link", "set", CONTROLLERS_PORT, "master", "brlan")


def begun(path: str, *arguments: str) -> subprocess.Popen[str]:
    """A playbook of this checkout that runs, in a process group of its own."""
    return subprocess.Popen(
        [str(lab.BIN / "ansible-playbook"), path, *arguments],
        cwd=ROOT,
        env=ANSIBLE,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@contextlib.contextmanager
def running(path: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The same; killed at the end whatever happens."""
    with begun(path, *arguments) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """The playbook and its workers, as if their machine had lost power. A worker is in no process group of its."""
    for one in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def descendants(parent: int) -> list[int]:
    """Who was started by it, by those, and so on."""
    try:
        children = [int(one) for one in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in descendants(child))]


def until_task(process: subprocess.Popen[str], number: int) -> str:
    """Waits until the playbook announces its task of that number; its line, or "" when it ends before."""
    assert process.stdout is not None
    tasks = (line.strip() for line in process.stdout if line.startswith("TASK ["))
    return next(itertools.islice(tasks, number - 1, None), "")


def until_armed() -> None:
    wait_for("a change is armed", is_pending, 40)


def until_settled(seconds: float = 40) -> None:
    wait_for("the change has gone back", lambda: not is_pending(), seconds)


def long[**P](test: Callable[P, None]) -> Callable[P, None] | None:
    """A test of `make soak` alone."""
    return test if os.environ.get("GLASSLAB_SOAK") else None
