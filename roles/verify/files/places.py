"""Run programs in several places of one machine at the same moment, and collect what they print.

Fed to a machine's python3 on standard input, as root; the first argument is JSON: {"programs": {name: text}, "places":
[{"name", "program", "order", "command": words that start a command there, "unit": a service in whose sandbox it is to
run, "routes": [[network, gateway]...], "last": whether it waits for the others}...]}. Prints {place: what the program
printed as JSON, or {"error": why there is nothing}}. Routes are there for that time only, in that place.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading

SECONDS = 30
# Of a unit's own settings, those that are not its sandbox: what it starts and how, and secrets that no probe needs.
OTHERS = ("Type", "NotifyAccess", "Exec", "Restart", "Timeout", "Environment", "LoadCredential", "RuntimeDirectory")
KEPT = ("Uid", "Gid", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters")


def show(unit, name):
    done = subprocess.run(["systemctl", "show", "-P", name, unit], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def kept(process):
    """By what a process's sandbox is known. Raises OSError when there is none."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {name: fields[name] for name in KEPT if name in fields}


def sandboxed(unit):
    """Words that start a command as a service beside that one: its user and sandbox, with its drop-ins."""
    prefix, _, rest = unit.removesuffix(".service").partition("-")
    words = [
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--collect",
        f"--unit={prefix}-probe-{rest}-{os.getpid()}.service",
    ]
    # Those of the unit alone: what is for all of its prefix holds for the probe's unit as well.
    own = [path for path in show(unit, "DropInPaths").split() if pathlib.Path(path).parent.name == f"{unit}.d"]
    section = ""
    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in (show(unit, "FragmentPath"), *own)]
    for line in "\n".join(texts).splitlines():
        if line.startswith("["):
            section = line.strip()
        elif section == "[Service]" and "=" in line and not line.startswith(("#", *OTHERS)):
            words += ["-p", line.strip()]
    return words


def run(place, programs, found):
    try:
        order, words = dict(place["order"]), list(place.get("command") or [])
        if place.get("unit"):
            words += sandboxed(place["unit"])
            order["sandbox"] = kept(show(place["unit"], "MainPID"))
        if order.get("interface") == "default":
            order["interface"] = default_interface()
        program = programs[place["program"]]
        done = subprocess.run(
            [*words, "/usr/bin/python3", "-", json.dumps(order)],
            input=program,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        found[place["name"]] = json.loads(done.stdout or "null") or {"error": last_line(done)}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        found[place["name"]] = {"error": str(error)}


def default_interface():
    """By which the default route leaves."""
    for line in pathlib.Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
        if line.split()[1] == "00000000":
            return line.split()[0]
    raise OSError("this machine has no default route")


def last_line(done):
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


def route(place, verb):
    """Add or delete the place's routes; those that were there already stay."""
    for one in place.get("routes") or []:
        words = [*(place.get("command") or []), "ip", "route", verb, one[0], "via", one[1]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode == 0 and verb == "add":
            place.setdefault("added", []).append(one)


def together(work, calls):
    """One thread a call; returns when all have ended."""
    threads = [threading.Thread(target=work, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    order = json.loads(sys.argv[1])
    found = {}
    places = order["places"]
    together(route, [(place, "add") for place in places if place.get("routes")])
    try:
        together(run, [(place, order["programs"], found) for place in places if not place.get("last")])
        together(run, [(place, order["programs"], found) for place in places if place.get("last")])
    finally:
        together(route, [({**place, "routes": place["added"]}, "delete") for place in places if place.get("added")])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
