"""The embedded lab: machines in namespaces of their own on this Linux machine. Needs root and nothing but the standard
library.

Exit codes: 0 done, 2 something the user can act on (one line on standard error), else that of the executed command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build
import cgroups
import control
import destroy
import image
import lifecycle
import machine
import netns
import preflight
import state
import topology
from errors import LabError

CHECKOUT = Path(__file__).resolve().parents[4]


def command_line(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="lab.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lab-id", default=topology.DEFAULT, help="the lab's name (default: %(default)s)")
    common.add_argument("--check", action="store_true", help="change nothing, say what would be done")
    owned = argparse.ArgumentParser(add_help=False)
    owned.add_argument("--checkout", type=Path, default=CHECKOUT, help="whose lab it is (default: this program's)")
    owned.add_argument("--force", action="store_true", help="also a living lab of another checkout")

    first = verbs.add_parser("preflight", parents=[common, owned], help="is everything there that a lab needs?")
    first.add_argument("--machine", help="a machine of the inventory, whose other data follows, to compare")
    for name in ("address", "mac", "port"):
        first.add_argument(f"--{name}", default="", help="as the inventory has it; empty is not compared")
    verbs.add_parser("image", parents=[common], help="build the base image unless it is there")
    up = verbs.add_parser("up", parents=[common, owned], help="bring up surroundings and machines")
    up.add_argument("--machines", default=",".join(topology.MACHINES), help="which to boot (default: %(default)s)")
    up.add_argument("--spec", help='JSON file or -: {"model": {"command": [...]} or {"relay": {...}}}')
    verbs.add_parser("down", parents=[common, owned], help="halt the machines, keep disks and keys")
    gone = verbs.add_parser("destroy", parents=[common, owned], help="remove all of the lab")
    gone.add_argument("--cache", action="store_true", help="also the base image and the wheels")
    gone.add_argument("--text", action="store_true", help="say it in words instead of JSON")
    guests = argparse.ArgumentParser(add_help=False)
    guests.add_argument("--machines", default="", help="the guests, by comma")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="clean", help="the snapshot's name (default: %(default)s)")
    taking = verbs.add_parser(
        "snapshot", parents=[common, owned, guests, named], help="keep the guests' disks as they are"
    )
    taking.add_argument("--replace", action="store_true", help="in the place of one that has the name")
    taking.add_argument("--remove", action="store_true", help="remove it instead")
    taking.add_argument("--description", default="", help="what it is for")
    verbs.add_parser(
        "rollback", parents=[common, owned, guests, named], help="put the guests' disks back, and boot them"
    )
    verbs.add_parser(
        "renew", parents=[common, owned, guests], help="boot successors of guests, which are kept, stopped"
    )
    verbs.add_parser("put-back", parents=[common, owned, guests], help="undo renew")
    verbs.add_parser("let-go", parents=[common, owned, guests], help="remove what renew kept")
    status = verbs.add_parser("status", parents=[common], help="what runs")
    status.add_argument("--json", action="store_true", help="as one JSON object")
    inside = verbs.add_parser("exec", parents=[common], help="run a command inside a machine")
    inside.add_argument("name", choices=list(topology.MACHINES))
    within = verbs.add_parser("ns-exec", parents=[common], help="run a command in a namespace of the lab")
    within.add_argument("name", choices=topology.NAMESPACES)
    # argparse would take the command's own options for ours, and ours after NAME for the command's
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    options.command = arguments[split + 1 :]
    return options


def _print(result: dict[str, Any]) -> int:
    print(json.dumps(result))
    return 0


def do_preflight(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Check this machine and who owns the lab."""
    if options.machine:
        topology.compare(options.machine, {name: getattr(options, name) for name in ("address", "mac", "port")})
    preflight.check(lab)
    state.refuse_foreign(lab, options.checkout, options.force)
    found = {"presence": state.presence(lab), "image_ready": image.ready()}
    return _print({"changed": False, "lab_id": lab.lab_id, **found})


def do_image(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Build the base image, by far the longest step, apart from the others."""
    preflight.check(lab)
    changed = not image.ready() if options.check else image.ensure()
    return _print({"changed": changed, "image": str(image.path())})


def do_up(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Bring machines up."""
    wanted = topology.machines(options.machines)
    preflight.check(lab)
    state.refuse_foreign(lab, options.checkout, options.force)
    model = build.read_spec(options.spec, lab)
    if options.check:
        steps = build.plan(lab, wanted, model)
        return _print({"changed": bool(steps), "lab_id": lab.lab_id, "would": steps})
    with state.locked(lab):
        state.refuse_foreign(lab, options.checkout, options.force)
        return _print(build.up(lab, options.checkout, wanted, model))


def do_down(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Halt machines and clear the runtime, keep the disks."""
    preflight.root()
    state.refuse_foreign(lab, options.checkout, options.force)
    standing = lab.runtime.exists()
    if standing and not options.check:
        with state.locked(lab):
            destroy.power_off(lab)
            destroy.take_down(lab)
            destroy.release_lock(lab)
    return _print({"changed": standing, "lab_id": lab.lab_id})


def do_destroy(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Remove the lab, whatever is left of it."""
    preflight.root()
    state.refuse_foreign(lab, options.checkout, options.force)
    if not options.force:
        state.refuse_unknown(lab)
    # a verb that was killed at once leaves only its lock's file
    present = state.presence(lab) != "absent" or state.verb_lock(lab).exists()
    if options.force:  # somebody removed the state by hand: its names are all that tells the rest
        present = present or len(netns.missing(lab)) < len(topology.NAMESPACES) or not cgroups.empty(lab)
    cached = options.cache and image.CACHE.exists()
    if options.check:
        if not options.text:
            return _print({"changed": present or cached, "lab_id": lab.lab_id})
        print(f"lab {lab.lab_id}: would be removed" if present else f"lab {lab.lab_id}: nothing there to remove")
        return 0
    if present:
        with state.locked(lab):
            state.refuse_foreign(lab, options.checkout, options.force)
            destroy.take_down(lab)
            destroy.remove_state(lab)
            destroy.release_lock(lab)
    # Another lab's machines stand on the image: it stays while one is there.
    others = lab.state.parent.is_dir() and any(lab.state.parent.iterdir())
    removed = cached and not others and destroy.remove_cache()
    if options.text:
        print(f"lab {lab.lab_id}: removed" if present else f"lab {lab.lab_id}: nothing there to remove")
        if image.CACHE.exists():
            why = "another lab is there" if options.cache else f"{lab.make('destroy CACHE=1')} removes it"
            print(f"kept: image and wheels in {image.CACHE} ({why}), and the distribution's packages")
        return 0
    return _print({"changed": bool(present or removed), "lab_id": lab.lab_id})


def _on_guests(lab: topology.Lab, options: argparse.Namespace, work: Callable[[list[str]], list[str]]) -> int:
    """Have one of the guests' verbs work under the lab's lock."""
    preflight.root()
    wanted = topology.machines(options.machines)
    state.refuse_foreign(lab, options.checkout, options.force)
    lifecycle.need(lab, wanted)
    if options.check:
        done = lifecycle.plan(lab, wanted, options)
    else:
        with state.locked(lab):
            state.refuse_foreign(lab, options.checkout, options.force)
            done = work(wanted)
    return _print({"changed": bool(done), "lab_id": lab.lab_id, "machines": done})


def do_snapshot(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Take a snapshot, or remove one."""
    about = {"description": options.description, "version": lifecycle.version(options.checkout)}

    def work(wanted: list[str]) -> list[str]:
        if options.remove:
            return lifecycle.forget(lab, wanted, options.name)
        return lifecycle.snapshot(lab, wanted, options.name, about, replace=options.replace)

    return _on_guests(lab, options, work)


def do_rollback(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Put guests back to a snapshot."""
    return _on_guests(lab, options, lambda wanted: lifecycle.rollback(lab, wanted, options.name))


def do_renew(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Boot successors."""
    version = lifecycle.version(options.checkout)
    return _on_guests(lab, options, lambda wanted: lifecycle.renew(lab, wanted, version))


def do_put_back(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Undo renew."""
    return _on_guests(lab, options, lambda wanted: lifecycle.put_back(lab, wanted))


def do_let_go(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Remove predecessors."""
    return _on_guests(lab, options, lambda wanted: lifecycle.let_go(lab, wanted))


def do_status(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Say what runs."""
    record = state.load(lab)
    result: dict[str, Any] = {"lab_id": lab.lab_id, "presence": state.presence(lab), "checkout": record.get("checkout")}
    if result["presence"] == "alive":
        result |= {key: value for key, value in control.ask(lab, verb="status").items() if key != "changed"}
    result["disks"] = lifecycle.known(lab)
    if options.json:
        return _print({"changed": False, **result})
    print(f"lab {lab.lab_id}: {result['presence']}" + (f", of {result['checkout']}" if result["checkout"] else ""))
    for kind in ("machines", "standins"):
        for name, one in result.get(kind, {}).items():
            print(f"  {kind.rstrip('s')} {name}: " + ", ".join(f"{key} {value}" for key, value in one.items()))
    for name, disk in result["disks"].items():
        print(f"  disk of {name}: snapshots {', '.join(one['name'] for one in disk['snapshots']) or 'none'}")
    return 0


def _command(options: argparse.Namespace) -> list[str]:
    if not options.command:
        raise LabError(f"{options.verb} {options.name}: no command given: write it after --")
    return list(options.command)


def do_exec(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Run a command inside a machine."""
    preflight.root()
    return machine.execute(lab, options.name, _command(options))


def do_ns_exec(lab: topology.Lab, options: argparse.Namespace) -> int:
    """Run a command of this machine in one of the lab's namespaces."""
    preflight.root()
    where = netns.path(lab, options.name)
    if not where.exists():
        raise LabError(f"network namespace {where.name} does not exist: build the lab first ({lab.make('demo')})")
    argv = ["nsenter", f"--net={where}", *_command(options)]
    return subprocess.run(argv, check=False).returncode


VERBS = {
    "preflight": do_preflight,
    "image": do_image,
    "up": do_up,
    "down": do_down,
    "destroy": do_destroy,
    "snapshot": do_snapshot,
    "rollback": do_rollback,
    "renew": do_renew,
    "put-back": do_put_back,
    "let-go": do_let_go,
    "status": do_status,
    "exec": do_exec,
    "ns-exec": do_ns_exec,
}


def main(arguments: list[str]) -> int:
    """Carry out one verb."""
    options = command_line(arguments)
    os.umask(0o022)  # a machine's services have to enter its root directory, whatever the umask of the user is
    # `su` alone leaves root with a user's PATH
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        return VERBS[options.verb](topology.lab(options.lab_id), options)
    except LabError as error:
        print(f"glasslab: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full or read-only file system, a file where a folder belongs
        where = error.filename2 or error.filename or options.verb
        print(f"glasslab: {where}: {error.strerror or error}: mend that and run the same again", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
