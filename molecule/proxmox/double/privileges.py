"""The privileges and built-in roles of each Proxmox VE version; the privilege that a key of a VM's config needs."""

from __future__ import annotations

import re

from fakepve.shapes import PRIVILEGES as NEWEST

Version = tuple[int, int]

#: The agent's calls stood under this one until Proxmox VE 9 split it.
MONITOR = "VM.Monitor"
ONLY_NINE = frozenset(name for name in NEWEST if name.startswith("VM.GuestAgent.")) | {"VM.Replicate"}

#: Privileges that Proxmox keeps out of PVEAdmin.
ADMINISTRATORS = frozenset(
    ("Sys.Modify", "Sys.PowerMgmt", "Sys.Incoming", "Sys.AccessNetwork", "Realm.Allocate", "Permissions.Modify")
)


def privileges(version: Version) -> frozenset[str]:
    """Every privilege that this version knows."""
    if version >= (9, 0):
        return frozenset(NEWEST)
    return frozenset(NEWEST) - ONLY_NINE | {MONITOR}


def built_in_roles(version: Version) -> dict[str, frozenset[str]]:
    """The roles that exist on a fresh host and cannot be changed."""
    known = privileges(version)

    def area(*prefixes: str) -> frozenset[str]:
        return frozenset(name for name in known if name.startswith(prefixes))

    audit = frozenset(name for name in known if name.endswith(".Audit"))
    user_of_vm = {"VM.Audit", "VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.PowerMgmt"}
    return {
        "Administrator": known,
        "NoAccess": frozenset(),
        "PVEAdmin": known - ADMINISTRATORS,
        "PVEAuditor": audit,
        "PVEDatastoreAdmin": area("Datastore."),
        "PVEDatastoreUser": frozenset(("Datastore.Audit", "Datastore.AllocateSpace")),
        "PVEMappingAdmin": area("Mapping."),
        "PVEMappingAuditor": frozenset(("Mapping.Audit",)),
        "PVEMappingUser": frozenset(("Mapping.Audit", "Mapping.Use")),
        "PVEPoolAdmin": area("Pool."),
        "PVEPoolUser": frozenset(("Pool.Audit",)),
        "PVESDNAdmin": area("SDN."),
        "PVESDNUser": frozenset(("SDN.Audit", "SDN.Use")),
        "PVESysAdmin": frozenset(("Sys.Audit", "Sys.Console", "Sys.Syslog")),
        "PVETemplateUser": frozenset(("VM.Audit", "VM.Clone")),
        "PVEUserAdmin": frozenset(("Group.Allocate", "Realm.AllocateUser", "User.Modify")),
        "PVEVMAdmin": area("VM."),
        "PVEVMUser": frozenset(user_of_vm) | (frozenset(("VM.GuestAgent.Audit",)) & known),
    }


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DRIVE = re.compile(r"(?:ide|sata|scsi|virtio)\d+|efidisk0|tpmstate0")
CPU = frozenset(("cores", "cpu", "cpulimit", "cpuunits", "numa", "sockets", "smp", "vcpus"))
MEMORY = frozenset(("memory", "balloon", "shares"))
DISK = frozenset(("boot", "bootdisk", "vmstatestorage"))
CLOUD_INIT = frozenset(
    ("cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys")
)
HARDWARE = _words(
    "acpi allow-ksm audio0 hotplug kvm machine rng0 scsihw smbios1 tablet vga vmgenid watchdog amd-sev "
    "intel-tdx ivshmem arch"
)
GENERAL = _words(
    "agent autostart bios description keyboard localtime migrate_downtime migrate_speed name onboot "
    "ostype protection reboot startdate startup tags tdf template"
)
#: Parameters of a create or update call that are no keys of the configuration.
NOT_CONFIG = _words(
    "node vmid archive storage force unique live-restore pool bwlimit start digest ha-managed "
    "import-working-storage delete revert skiplock background_delay"
)


def privileges_for(key: str, value: str) -> tuple[str, ...]:
    """Any one of these lets a user set this key to this value; nothing at all: only root@pam may."""
    if DRIVE.fullmatch(key):
        return ("VM.Config.CDROM",) if "media=cdrom" in value else ("VM.Config.Disk",)
    if key == "cdrom":
        return ("VM.Config.CDROM",)
    if re.fullmatch(r"unused\d+", key) or key in DISK:
        return ("VM.Config.Disk",)
    if key in CPU or re.fullmatch(r"numa\d+", key):
        return ("VM.Config.CPU",)
    if key in MEMORY:
        return ("VM.Config.Memory",)
    if re.fullmatch(r"net\d+", key):
        return ("VM.Config.Network",)
    if key in CLOUD_INIT or re.fullmatch(r"ipconfig\d+", key):
        return ("VM.Config.Cloudinit", "VM.Config.Network")
    if re.fullmatch(r"serial\d+", key):
        return ("VM.Config.HWType",) if value in ("socket", "") else ()
    if re.fullmatch(r"usb\d+", key):
        return ("VM.Config.HWType",) if value.startswith("spice") or not value else ()
    if key in HARDWARE:
        return ("VM.Config.HWType",)
    if key in GENERAL:
        return ("VM.Config.Options",)
    if key == "freeze":
        return ("VM.PowerMgmt",)
    return ()
