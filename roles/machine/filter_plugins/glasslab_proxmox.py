"""Which virtual machine is the lab's own, and what of it differs from the inventory. Pure: nothing is called here."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

TAG = "glasslab"
NOTE = "Built by Glasslab"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DRIVE = re.compile(r"(?:scsi|virtio|sata|ide)\d+")


def tags_of(vm: dict[str, Any]) -> set[str]:
    """Its tags, whichever separator the version of Proxmox VE gives."""
    text = str(vm.get("config", {}).get("tags") or vm.get("tags") or "")
    return {tag for tag in re.split(r"[;, ]+", text) if tag}


def first_line(vm: dict[str, Any]) -> str:
    """The first line of its notes."""
    text = unquote(str(vm.get("config", {}).get("description") or "")).strip()
    return text.splitlines()[0].strip() if text else ""


def unfinished(lab_id: str, machine: str) -> str:
    """The notes of a clone of ours whose tags are still to be set: nobody but the lab writes them."""
    return f"{NOTE}: lab {lab_id}, machine {machine} (unfinished)"


def lacking(vm: dict[str, Any], lab_id: str) -> list[str]:
    """The marks that this machine does not carry, in words."""
    lacks = [f"the tag {tag}" for tag in sorted({TAG, f"{TAG}-{lab_id}"} - tags_of(vm))]
    return lacks + ([] if first_line(vm).startswith(NOTE) else [f"notes that begin with {NOTE!r}"])


def some_marks(vm: dict[str, Any], lab_id: str) -> bool:
    """Whether it carries at least one mark of this very lab."""
    return f"{TAG}-{lab_id}" in tags_of(vm) or (first_line(vm).startswith(NOTE) and f"lab {lab_id}," in first_line(vm))


def said(vm: dict[str, Any]) -> str:
    """How a machine is named in a message."""
    return f"VM {vm.get('vmid')} ({vm.get('name')}) on {vm.get('node')}"


def find(
    vms: list[dict[str, Any]], lab_id: str, name: str, machine: str, template: bool = False, node: str = ""
) -> dict[str, Any]:
    """The machine of that name which carries every mark of the lab: {"vm", "problem", "foreign"}.

    One with the name and none of the marks is somebody else's and only counted; one with some of them is told: a run
    must neither change it nor build a second one beside it.
    """
    kind = [
        vm
        for vm in vms
        if vm.get("name") == name and bool(vm.get("template")) == template and node in ("", vm.get("node"))
    ]
    ours = [vm for vm in kind if not lacking(vm, lab_id) or first_line(vm) == unfinished(lab_id, machine)]
    doubtful = [vm for vm in kind if vm not in ours and some_marks(vm, lab_id)]
    problem = ""
    if len(ours) > 1:
        problem = (
            f"{' and '.join(map(said, ours))} both carry the marks of lab {lab_id}: rename or destroy the one that is "
            "not wanted"
        )
    elif doubtful and not ours:
        vm = doubtful[0]
        problem = (
            f"{said(vm)} carries marks of lab {lab_id}, but lacks {' and '.join(lacking(vm, lab_id))}: it is left "
            "alone; give it back what it lacks when it is the lab's, else rename it"
        )
    return {"vm": ours[0] if len(ours) == 1 else {}, "problem": problem, "foreign": len(kind) - len(ours)}


def ids(vms: list[dict[str, Any]], lab_id: str, hosts: list[str]) -> dict[str, int]:
    """The ids of the lab's guests by their names and tags: enough to know a port by, not to change anything."""
    wanted = {f"{lab_id}-{host}": host for host in hosts}
    return {
        wanted[vm["name"]]: int(vm["vmid"])
        for vm in vms
        if vm.get("name") in wanted and not vm.get("template") and {TAG, f"{TAG}-{lab_id}"} <= tags_of(vm)
    }


def fields(text: str) -> dict[str, str]:
    """A value such as `virtio=02:..,bridge=vmbr1` by its parts; the MAC stands with its model."""
    found = {}
    for part in str(text).split(","):
        key, separator, value = part.partition("=")
        found[key if separator else ""] = value if separator else key
    return found


def same(key: str, now: Any, wanted: Any) -> bool:
    """Whether the API's value says what the inventory says."""
    if now is None:
        return False
    if key == "tags":
        return tags_of({"tags": wanted}) <= tags_of({"tags": now})
    if key == "sshkeys":
        return unquote(str(now)).split() == unquote(str(wanted)).split()
    if key.startswith(("net", "ipconfig")):
        have = {k: v.lower() for k, v in fields(now).items()}
        return all(have.get(k) == v.lower() for k, v in fields(wanted).items())
    if key == "cpu":
        return str(now).removeprefix("cputype=").split(",")[0] == str(wanted)
    return str(now).strip() == str(wanted).strip()


def changes(vm: dict[str, Any], wanted: dict[str, Any], lab_id: str, cloudinit: str) -> dict[str, Any]:
    """What differs: {"parameters": for the API, "said": in words}.

    The notes are written once, for they say what built the machine. A tag of the user's own stays. `cloudinit` is the
    storage on which the drive for cloud-init is made when the template had none.
    """
    config = vm.get("config", {})
    differing = {
        key: value
        for key, value in wanted.items()
        if (
            not first_line(vm).startswith(NOTE) or first_line(vm).endswith("(unfinished)")
            if key == "description"
            else not same(key, config.get(key), value)
        )
    }
    if "tags" in differing:
        differing["tags"] = ";".join(sorted(tags_of(vm) | tags_of({"tags": wanted["tags"]})))
    if not any(DRIVE.fullmatch(key) and "cloudinit" in str(value) for key, value in config.items()):
        differing["ide2"] = f"{cloudinit}:cloudinit"
    words = [
        key if key in ("sshkeys", "description") else f"{key} {config.get(key, 'unset')} -> {value}"
        for key, value in differing.items()
    ]
    return {"parameters": differing, "said": words}


def size(drive: str) -> int:
    """The size in bytes that a drive's value names; 0 when it names none."""
    found = re.search(r"(?:^|,)size=(\d+)([KMGT]?)", str(drive))
    return int(found[1]) * UNITS[found[2]] if found else 0


def grows(vm: dict[str, Any], gigabytes: int) -> bool:
    """Whether the system disk is smaller than wanted. One that is larger is left: disks do not shrink."""
    return 0 < size(vm.get("config", {}).get("scsi0", "")) < int(gigabytes) * UNITS["G"]


def checksum(text: str, image: str) -> str:
    """The SHA-512 of an image from a list as sha512sum writes it, or the value itself; empty when it is in neither."""
    if re.fullmatch(r"[0-9a-fA-F]{128}", text.strip()):
        return text.strip().lower()
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].lstrip("*") == image and re.fullmatch(r"[0-9a-fA-F]{128}", words[0]):
            return words[0].lower()
    return ""


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Any]:
        """The filters by their names in templates."""
        return {
            "glasslab_vm_find": find,
            "glasslab_vm_ids": ids,
            "glasslab_vm_changes": changes,
            "glasslab_vm_grows": grows,
            "glasslab_vm_lacking": lacking,
            "glasslab_vm_unfinished": unfinished,
            "glasslab_image_checksum": checksum,
        }
