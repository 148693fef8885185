"""Bringing files of the lab's network into effect, and undoing what the program has done."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys

ETC = pathlib.Path("/etc/glasslab/network")
UNITS = pathlib.Path("/etc/systemd/system")
INTERFACES = pathlib.Path("/etc/network/interfaces")
LAUNCHER = pathlib.Path("/usr/local/sbin/glasslab-network")
# Which files a service reads; a change of any other does not cut its connections.
READS = {"glasslab-resolver.service": ("resolver.conf",), "glasslab-proxy.service": ("proxy.cfg",)}


class Failure(Exception):
    """What stopped us, in one line."""


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command; with check, Failure with its own words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=90, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        done = subprocess.CompletedProcess(command, 127, "", getattr(error, "strerror", None) or "no end within 90 s")
    if check and done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise Failure(f"`{' '.join(command)}` failed: {said or f'exit {done.returncode}'}")
    return done


def say(text: str) -> None:
    """To the journal, or to whoever called."""
    print(f"glasslab-network: {text}", file=sys.stderr, flush=True)


def networking() -> bool:
    """Whether the host's network is up: before that, ifupdown2 still reads the files itself."""
    return run("systemctl", "is-active", "networking.service", check=False).stdout.strip() == "active"


def unit_file(name: object) -> bool:
    return isinstance(name, str) and "/" not in name and (UNITS / name).is_file()


def wanted_units() -> list[str]:
    """Units of ours that are to run, by the files that are there."""
    found = [unit for unit in ("glasslab-network-heal.timer", "glasslab-network-watch.service") if unit_file(unit)]
    services = settled("services")
    return found + [unit for unit in services if unit_file(unit)] if isinstance(services, list) else found


def settled(key: str) -> object:
    """What settings.json has under a key; None when it has none, or is damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads((ETC / "settings.json").read_text(encoding="utf-8"))
        return found.get(key) if isinstance(found, dict) else None
    return None


def activate(paths: list[str], bridge: str | None) -> None:
    """Bring changed files into effect. Rules before the bridge, the bridge before what listens on it."""
    changed = {pathlib.Path(path) for path in paths}
    units = {path.name for path in changed if path.parent == UNITS}
    for unit in sorted(units):
        if not unit_file(unit) and unit != "glasslab-network.service":
            run("systemctl", "stop", unit, check=False)
    if units:
        run("systemctl", "daemon-reload")
    if not LAUNCHER.exists():
        return
    up = networking()
    run(str(LAUNCHER), "apply")
    if (
        bridge
        and INTERFACES in changed
        and up
        and str(LAUNCHER) in INTERFACES.read_text(encoding="utf-8", errors="replace")
    ):
        # ifup and not ifreload: the host's other interfaces are none of our business.
        run("ifup", bridge)
    later = [] if up else ["--no-block"]
    for unit in wanted_units():
        reads = READS.get(unit)
        touched = unit in units or any(path.name in reads for path in changed) if reads else bool(changed)
        run("systemctl", *later, "restart" if touched else "start", unit)


def withdraw(bridge: str | None, *, for_good: bool) -> None:
    """Undo what the program did, before its files go: the guests lose their bridge before the rules go."""
    if not LAUNCHER.exists():
        return
    # First of all the watcher, which would put everything back.
    units = [*wanted_units(), "glasslab-network-heal.service", *(["glasslab-network.service"] if for_good else [])]
    run("systemctl", "stop", *units, check=False)
    if bridge and pathlib.Path("/sys/class/net", bridge).exists():
        run("ifdown", bridge, check=False)
        if pathlib.Path("/sys/class/net", bridge).exists():
            run("ip", "link", "delete", bridge)
    run(str(LAUNCHER), "remove")
