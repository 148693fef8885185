"""Bringing a lab up, step by step; every step leaves alone what stands already."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import control
import destroy
import image
import keys
import lifecycle
import machine
import netns
import standins
import state
import topology
from errors import LabError
from topology import Lab


def plan(lab: Lab, wanted: list[str], model: dict[str, Any] | None) -> list[str]:
    """What `up` would do, in words; empty when everything stands."""
    steps = [] if image.ready() else [f"build the base image {image.path()}"]
    presence = state.presence(lab)
    if presence != "alive" and state.load(lab):
        steps.append("take over what a lab without supervisor left")
    if presence != "alive":
        return [*steps, "make namespaces and stand-ins", *(f"boot {name}" for name in wanted)]
    status = control.ask(lab, verb="status")
    steps += [f"boot {name}" for name in to_boot(status, wanted)]
    if model != (state.load(lab).get("model")) or failed_standins(status):
        steps.append("start or replace stand-ins")
    return steps


def to_boot(status: dict[str, Any], wanted: list[str]) -> list[str]:
    """Machines that are wanted and do not run."""
    return [name for name in wanted if status["machines"][name]["state"] not in ("running", "rebooting")]


def failed_standins(status: dict[str, Any]) -> list[str]:
    """Stand-ins that the supervisor has given up."""
    return [name for name, one in status["standins"].items() if one["state"] != "running"]


def up(lab: Lab, checkout: Path, wanted: list[str], model: dict[str, Any] | None) -> dict[str, Any]:
    """Bring the lab's surroundings and the wanted machines up. Returns what was done.

    Raises LabError when a step fails; what stands by then is completed by the next run or removed by destroy.
    """
    began = time.monotonic()
    done = ["built the base image"] if image.ensure() else []
    if not state.alive(lab):
        done += _raise_surroundings(lab, checkout, model)
    lifecycle.settle(lab)
    # a link to a control socket, keys and the program may be newer than the running supervisor: they cost nothing
    keys.ensure(lab)
    state.write(lab.runtime / "ssh_config", keys.configuration(lab), 0o644)
    status = control.ask(lab, verb="status")
    boot = to_boot(status, wanted)
    version = lifecycle.version(checkout) if boot else ""
    for name in boot:
        if machine.prepare(lab, name, version):
            done.append(f"made the disk of {name}")
    if boot:
        done += [f"booted {name}" for name in control.ask(lab, verb="boot", machines=boot)["started"]]
    if control.ask(lab, verb="standins", model=model)["changed"]:
        done.append("started stand-ins")
    standins.wait_until_ready(
        lab, standins.all_of(lab, model), given_up=lambda: failed_standins(control.ask(lab, verb="status"))
    )
    if state.load(lab).get("phase") != "standing" or state.load(lab).get("model") != model:
        state.save(lab, {**state.load(lab), "phase": "standing", "model": model, "spec_hash": spec_hash(lab, model)})
    status = control.ask(lab, verb="status")
    return {
        "changed": bool(done),
        "lab_id": lab.lab_id,
        "did": done,
        "machines": status["machines"],
        "standins": status["standins"],
        "ssh_config": str(lab.runtime / "ssh_config"),
        "image": str(image.path()),
        "seconds": round(time.monotonic() - began, 2),
    }


def _raise_surroundings(lab: Lab, checkout: Path, model: dict[str, Any] | None) -> list[str]:
    """Namespaces, cables and the supervisor, after clearing what a dead lab left of them."""
    done = []
    before = state.load(lab)
    destroy.take_down(lab)
    if before:
        done.append("took over a lab without supervisor")
    was_there = before.get("netns_directory_was_there", True) and netns.NETNS_DIR.exists()
    record = {
        "lab_id": lab.lab_id,
        "checkout": str(checkout),
        "phase": "building",
        "spec_hash": spec_hash(lab, model),
        "model": model,
        "netns_directory_was_there": was_there,
        "supervisor_pid": None,
    }
    state.save(lab, record)
    lab.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
    netns.build(lab)
    control.install(lab)
    state.save(lab, {**record, "supervisor_pid": control.start(lab)})
    return [*done, "made the namespaces", "started the supervisor"]


def spec_hash(lab: Lab, model: dict[str, Any] | None) -> str:
    """Identifies what was asked for."""
    asked = [lab.lab_id, topology.NAMESPACES, repr(topology.CABLES), repr(topology.MACHINES), image.path().name, model]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def read_spec(where: str | None, lab: Lab) -> dict[str, Any] | None:
    """The model API's specification from a JSON file (`-`: standard input); without one, what the standing lab has.

    Raises LabError for a file that is missing, is not JSON or does not hold {"model": {...}}.
    """
    stored = state.load(lab).get("model")
    if where is None:
        return stored
    try:
        content = json.loads(sys.stdin.read() if where == "-" else Path(where).read_text())
    except OSError as error:
        raise LabError(f"spec {where}: {error.strerror}: give a readable JSON file") from None
    except ValueError as error:
        raise LabError(f"spec {where}: not JSON: {error}") from None
    if not isinstance(content, dict) or set(content) - {"model"} or not isinstance(content.get("model"), dict | None):
        raise LabError(f'spec {where}: it must hold {{"model": {{...}}}} and nothing else')
    if content.get("model"):
        standins.model_api(lab, content["model"])  # refuses what it cannot start
        return dict(content["model"])
    return stored
