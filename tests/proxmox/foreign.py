"""Virtual machines and templates of somebody else, as alike to the lab's own as they can be without being them.

Each lacks at least one of the signs of ownership: both tags, the name, the first line of the notes.
"""

from __future__ import annotations

from typing import Any

from labinventory import LAB_ID

OURS = f"glasslab;glasslab-{LAB_ID}"
NOTES = "Built by Glasslab: lab other, machine agent"
POOL = "glasslab"
# What the node would give next, and the ids of the embedded lab's ports.
FIRST = 100


def row(
    name: str,
    *,
    tags: str = "",
    notes: str = "",
    template: bool = False,
    pool: bool = False,
    **config: Any,
) -> dict[str, Any]:
    """A machine, or a template; in the lab's pool when asked, where the lab's token sees it."""
    made: dict[str, Any] = {"name": name, "template": template, "status": "stopped" if template else "running"}
    made["config"] = {"memory": "512", "net0": "virtio=02:00:00:00:00:01,bridge=vmbr0"} | config
    made["config"] |= {"description": notes} if notes else {}
    return made | ({"tags": tags} if tags else {}) | ({"pool": POOL} if pool else {})


ROWS = (
    row("web", pool=True),
    row("db", tags="production"),
    row("mail", template=True, pool=True),
    row("agent", pool=True),
    row("logs", pool=True),
    row("agent", tags="glasslab", pool=True),
    row("logs", tags="glasslab", notes=NOTES, pool=True),
    row(f"{LAB_ID}-agents", pool=True),
    row(f"{LAB_ID}-agent-2", tags=OURS, pool=True),
    row(f"x{LAB_ID}-agent", tags=OURS, notes=NOTES, pool=True),
    row("glasslab-agent", tags="glasslab;glasslab-glasslab", notes=NOTES, pool=True),
    row("glasslab-logs", tags="glasslab;glasslab-glasslab", notes=NOTES),
    row("glasslab-debian13", tags="glasslab;glasslab-glasslab", notes=NOTES, template=True, pool=True),
    row(f"{LAB_ID}2-agent", tags=f"glasslab;glasslab-{LAB_ID}2", notes=NOTES, pool=True),
    row(f"{LAB_ID}-agent", pool=True),
    row(f"{LAB_ID}-logs"),
    row(f"{LAB_ID}-debian13-old", tags=OURS, template=True, pool=True),
    row(f"{LAB_ID}-logs", notes=f"{NOTES}\nby hand", template=True, pool=True),
    row("one-mac", net0="virtio=02:10:00:00:00:10,bridge=vmbr0", pool=True),
    row("tagged", tags=OURS, pool=True),
)
VMIDS = range(FIRST, FIRST + len(ROWS))


def volume(vmid: int) -> str:
    """The name of its one disk."""
    return f"local-lvm:{'base' if ROWS[vmid - FIRST]['template'] else 'vm'}-{vmid}-disk-0"


def disks() -> set[str]:
    """The disks of all of them."""
    return {volume(vmid) for vmid in VMIDS}


def seed() -> dict[str, Any]:
    """The double's seed: all of them, each with a disk of its own."""
    rows = [dict(one, vmid=vmid) for vmid, one in zip(VMIDS, ROWS, strict=True)]
    for one in rows:
        one["config"] = one["config"] | {"scsi0": f"{volume(one['vmid'])},size=1G"}
    return {"vms": rows}
