"""What a machine's disk holds before its first boot: name, network, keys, and on the hypervisor what Proxmox VE has."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import keys
from topology import RESOLVER, Lab, Machine

HERE = Path(__file__).resolve().parent

GUEST_INTERFACES = """\
auto lo
iface lo inet loopback

auto eth0
iface eth0 inet static
\taddress {address}/24
\tgateway 10.10.10.1
"""

# Like the file that the Proxmox VE installer writes, with IPv6 beside. vmbr1 is roles/network's.
HYPERVISOR_INTERFACES = """\
auto lo
iface lo inet loopback

iface eno1 inet manual

auto vmbr0
iface vmbr0 inet static
\taddress 192.168.50.2/24
\tgateway 192.168.50.1
\tbridge-ports eno1
\tbridge-stp off
\tbridge-fd 0

iface vmbr0 inet6 static
\taddress fd50::2/64

auto vmbr2
iface vmbr2 inet static
\taddress 10.20.20.1/24
\tbridge-ports none
\tbridge-ports-condone-regex ^tap
\tbridge-stp off
\tbridge-fd 0

iface vmbr2 inet6 static
\taddress fd20::1/64

source /etc/network/interfaces.d/*
"""

# What the package pve-cluster installs as /etc/sysctl.d/pve.conf
HYPERVISOR_SYSCTLS = """\
net.bridge.bridge-nf-call-ip6tables = 0
net.bridge.bridge-nf-call-iptables = 0
net.bridge.bridge-nf-call-arptables = 0
net.bridge.bridge-nf-filter-vlan-tagged = 0
net.ipv4.igmp_link_local_mcast_reports = 0
"""

# What its owner set for the other bridge: it routes both families, and takes addresses from router advertisements
# although it routes.
OWNER_SYSCTLS = """\
net.ipv4.ip_forward = 1
net.ipv6.conf.all.forwarding = 1
net.ipv6.conf.default.accept_ra = 2
"""

SSHD = """\
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""

# systemd-nspawn leaves sysfs read-only; ifupdown2 sets some bridge attributes there. What lies in this folder belongs
# to the machine's own network namespace.
WRITABLE_INTERFACES = """\
[Unit]
Description=Make the attributes of network interfaces in sysfs writable
DefaultDependencies=no
Before=networking.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/mount --bind /sys/devices/virtual/net /sys/devices/virtual/net
ExecStart=/usr/bin/mount -o remount,bind,rw /sys/devices/virtual/net

[Install]
WantedBy=networking.service
"""

WEB_INTERFACE = """\
[Unit]
Description=Stand-in for the hypervisor's web interface on port 8006
After=network.target

[Service]
ExecStart=/usr/bin/python3 -S /usr/local/lib/glasslab/listeners.py pve 0.0.0.0:8006 [::]:8006
DynamicUser=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def write(lab: Lab, machine: Machine, root: Path) -> None:
    """Fill a fresh disk. Raises LabError when a host key cannot be made."""
    etc = root / "etc"
    _file(etc / "hostname", f"{machine.name}\n")
    own = (
        "" if machine.name in ("agent", "logs") else f"{machine.address} {machine.name}.glasslab.test {machine.name}\n"
    )
    _file(
        etc / "hosts", f"127.0.0.1 localhost\n{own}10.10.10.10 agent\n10.10.10.20 logs\n::1 localhost ip6-localhost\n"
    )
    # a symlink to a resolver that does not run here would be followed
    (etc / "resolv.conf").unlink(missing_ok=True)
    _file(etc / "resolv.conf", f"nameserver {RESOLVER}\noptions timeout:2 attempts:2\n")
    _file(etc / "machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    _file(etc / "ssh/sshd_config.d/glasslab.conf", SSHD)
    private, public = keys.host_key(lab, machine.name)
    _file(etc / "ssh/ssh_host_ed25519_key", private, 0o600)
    _file(etc / "ssh/ssh_host_ed25519_key.pub", public)
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    _file(root / "root/.ssh/authorized_keys", keys.public_key(lab), 0o600)
    if machine.name == "pve":
        _hypervisor(root)
    else:
        _file(etc / "network/interfaces", GUEST_INTERFACES.format(address=machine.address))


def _hypervisor(root: Path) -> None:
    etc = root / "etc"
    _file(etc / "network/interfaces", HYPERVISOR_INTERFACES)
    _file(etc / "sysctl.d/pve.conf", HYPERVISOR_SYSCTLS)
    _file(etc / "sysctl.d/90-routing.conf", OWNER_SYSCTLS)
    program = root / "usr/local/lib/glasslab/listeners.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "listeners.py", program)
    _unit(etc, "network-sysfs-writable.service", WRITABLE_INTERFACES, "networking.service")
    _unit(etc, "pve-web-stand-in.service", WEB_INTERFACE, "multi-user.target")


def _unit(etc: Path, name: str, content: str, wanted_by: str) -> None:
    _file(etc / "systemd/system" / name, content)
    wants = etc / f"systemd/system/{wanted_by}.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / name).symlink_to(f"../{name}")


def _file(where: Path, content: str, mode: int = 0o644) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(content)
    where.chmod(mode)
