"""A place to build in: a Proxmox VE API with the lab's token, and an inventory that names both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

import access
import foreign
import labinventory
import plays
from pvehost import Double, Host, Token, double

IMAGE = "debian-13-genericcloud-amd64.qcow2"
USER = "glasslab@pve"
# As roles/machine makes it, for tests of what comes after it.
TEMPLATE = {
    "vmid": 900,
    "name": f"{labinventory.LAB_ID}-debian13",
    "template": True,
    "tags": f"glasslab;glasslab-{labinventory.LAB_ID}",
    "pool": foreign.POOL,
    "config": {
        "description": f"Built by Glasslab 0.1.0: lab {labinventory.LAB_ID}, template of its machines",
        "scsihw": "virtio-scsi-single",
        "scsi0": "local-lvm:base-900-disk-0,size=3G",
        "ide2": "local-lvm:vm-900-cloudinit,media=cdrom",
        "boot": "order=scsi0",
    },
}
Guests = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Place:
    """`lab` is the API as the lab's token sees it; `admin` and `state` are there when it is a double's."""

    inventory: Path
    lab: Host
    admin: Host | None = None
    state: Path | None = None

    def save(self, file: Path) -> None:
        """Write it down for another process of this user."""
        file.touch(0o600)
        file.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")


def load(file: Path) -> Place:
    """The place that was written down."""
    given = json.loads(file.read_text(encoding="utf-8"))

    def host(one: dict[str, Any]) -> Host:
        return Host(**(one | {"token": Token(**one["token"])}))

    return Place(
        inventory=Path(given["inventory"]),
        lab=host(given["lab"]),
        admin=host(given["admin"]) if given["admin"] else None,
        state=Path(given["state"]) if given["state"] else None,
    )


def image(state: Path) -> dict[str, str]:
    """Put a cloud image where the double's node finds it; return the variables that name it."""
    content = b"QFI\xfb" + b"\0" * 1020
    (state / "images").mkdir(parents=True, exist_ok=True)
    (state / "images" / IMAGE).write_bytes(content)
    return {
        "machine_image_url": f"https://images.glasslab.test/{IMAGE}",
        "machine_image_checksum": f"sha512:{hashlib.sha512(content).hexdigest()}",
    }


def furnish_as_a_user_does(one: Double) -> Place:
    """The same by playbooks/proxmox_access.yml, with the administrator's password."""
    inventory = one.state / "inventory"
    nobody = Token(USER, "lab", "")
    labinventory.write(inventory, one.host, nobody, **image(one.state))
    tree = json.loads((inventory / "hosts.yml").read_text(encoding="utf-8"))
    del tree["all"]["vars"]["machine_proxmox_token_secret"]
    (inventory / "hosts.yml").write_text(json.dumps(tree, indent=1), encoding="utf-8")
    command = ["ansible-playbook", "-i", str(inventory), "playbooks/proxmox_access.yml"]
    plays.run(command, PROXMOX_PASSWORD=one.ready["root"]["password"]).succeeded()
    secret = yaml.safe_load((inventory / "group_vars" / "all" / "proxmox_token.yml").read_text(encoding="utf-8"))
    token = replace(nobody, secret=str(secret["machine_proxmox_token_secret"]))
    return Place(inventory, replace(one.host, token=token), one.host, one.state)


def furnish(one: Double, guests: Guests | None = None, **own: Any) -> Place:
    """The lab's pool, token and image on a double, and an inventory beside its state."""
    api = one.host.api()
    if not any(pool["poolid"] == foreign.POOL for pool in api.pools.get()):
        api.pools.post(poolid=foreign.POOL)
    lab = replace(one.host, token=access.token(api, USER, access.grants()))
    variables = image(one.state) | own
    inventory = labinventory.write(one.state / "inventory", lab, lab.token, guests, **variables)
    return Place(inventory, lab, one.host, one.state)


@contextmanager
def own_place(
    folder: Path,
    guests: Guests | None = None,
    *,
    foreigners: bool = True,
    template: bool = False,
    by_playbook: bool = False,
    **own: Any,
) -> Iterator[tuple[Double, Place]]:
    """A double of one's own for the time of a block, furnished: somebody else's machines on it, the lab's template."""
    folder.mkdir(parents=True, exist_ok=True)
    seed = folder / "seed.json"
    there = (foreign.seed()["vms"] if foreigners else []) + ([TEMPLATE] if template else [])
    seed.write_text(json.dumps({"vms": there}), encoding="utf-8")
    with double(folder, "--token", "none", "--seed", str(seed)) as one:
        yield one, furnish_as_a_user_does(one) if by_playbook else furnish(one, guests, **own)
