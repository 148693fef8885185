"""Prints what playbooks/status.yml found, a line a machine. Standard input: its JSON."""

import json
import sys
import time


def age(since: float, now: float) -> str:
    """How long ago, in the largest unit that it fills twice."""
    seconds = max(now - since, 0)
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def line(machine: dict, now: float, lab_id: str) -> str:
    """One machine."""
    parts = [f"{machine['machine']:<8} {machine['state']}"]
    if machine.get("node"):
        parts.append(f"VM {machine['vmid']} on {machine['node']}")
    if machine.get("at"):
        parts.append(f"made {age(machine['at'], now)} ago by {machine.get('version') or 'unknown'}")
    if machine.get("image_current") is False:
        parts.append("on an older base image: the next build begins it anew")
    if machine.get("predecessor"):
        which = "" if lab_id == "glasslab" else f" LAB_ID={lab_id}"
        parts.append(f"its predecessor is kept: make rebuild{which} goes on, REVERT=1 goes back")
    kept = [f"{one['name']} ({age(one['at'], now)} ago)" for one in machine.get("snapshots", [])]
    if machine["state"] != "absent" and "snapshots" in machine:
        parts.append(f"snapshots: {', '.join(kept) or 'none'}")
    return ", ".join(parts)


def lines(found: dict, now: float) -> list[str]:
    """All of it."""
    machines = [one for one in found["machines"] if one["state"] != "hypervisor"]  # it was there before the lab
    standing = [one for one in machines if one["state"] != "absent"]
    told = [f"lab {found['lab_id']}: {'nothing stands' if not standing else f'{len(standing)} machines'}"]
    told += [f"  {line(one, now, found['lab_id'])}" for one in machines if standing]
    return told + [f"  {name:<8} could not be asked about: see above" for name in found["unknown"]]


def main() -> None:
    """Read and print."""
    print("\n".join(lines(json.load(sys.stdin), time.time())))


if __name__ == "__main__":
    main()
