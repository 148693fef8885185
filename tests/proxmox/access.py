"""The lab's user, role and token on the double, made by its administrator with the privileges that the role lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml
from proxmoxer import ProxmoxAPI

from pvehost import Token

ROOT = Path(__file__).resolve().parents[2]
LISTED = ROOT / "roles" / "machine" / "vars" / "proxmox_privileges.yml"
PLACES = {
    "guests": "/pool/glasslab",
    "disks": "/storage/local-lvm",
    "images": "/storage/local",
    "node": "/nodes/pve",
    "bridge": "/sdn/zones/localnetwork/vmbr1",
}
Grant = tuple[str, str]


def grants() -> list[Grant]:
    """Every privilege of the role's list with the path on which it is needed."""
    listed = yaml.safe_load(LISTED.read_text(encoding="utf-8"))["machine_proxmox_privilege_list"]
    return [(PLACES[one["place"]], one["privilege"]) for one in listed]


def token(api: ProxmoxAPI, user: str, granted: Iterable[Grant]) -> Token:
    """A token `lab` of a user of its own with exactly these privileges."""
    api.access.users.post(userid=user)
    by_path: dict[str, set[str]] = {}
    for path, privilege in granted:
        by_path.setdefault(path, set()).add(privilege)
    for number, (path, privileges) in enumerate(sorted(by_path.items())):
        role = f"{user.partition('@')[0]}-{number}"
        api.access.roles.post(roleid=role, privs=",".join(sorted(privileges)))
        api.access.acl.put(path=path, users=user, roles=role, propagate=1)
    made = api.access.users(user).token("lab").post(privsep=0)
    return Token(user, "lab", str(made["value"]))
