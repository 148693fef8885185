"""The disk image that emulated guests start from: Debian with cloud-init, built once and kept in the lab's cache.

`python -m double.image` builds it when it is missing and prints its place. It needs root, mmdebstrap, e2fsprogs and
qemu-utils; no loop device and no mount: the file system is made from a folder, and GRUB stands before the partition.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

#: `make destroy CACHE=1` removes what begins with `image-` there.
CACHE = Path("/var/cache/glasslab")
SUITE = "trixie"
SIZE = "3G"
FIRST_SECTOR = 2048
SECTOR = 512
PACKAGES = (
    "linux-image-cloud-amd64",
    "grub-pc-bin",
    "grub2-common",
    "systemd",
    "systemd-sysv",
    "systemd-resolved",
    "dbus",
    "udev",
    "netplan.io",
    "cloud-init",
    "cloud-guest-utils",
    "fdisk",
    "e2fsprogs",
    "qemu-guest-agent",
    "openssh-server",
    "sudo",
    "python3",
    "python3-apt",
    "python3-venv",
    "python3-cryptography",
    "python3-requests",
    "ca-certificates",
    "iproute2",
    "iputils-ping",
    "netbase",
    "procps",
    "tcpdump",
    "nftables",
    "ethtool",
)
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/lib/firmware/*", "/usr/lib/firmware/*")
# what an emulated processor spends seconds of each boot on, and no guest of a test needs
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer"
    " grub-common.service systemd-binfmt.service systemd-networkd-wait-online.service"
)
CLOUD_CONFIG = (
    "datasource_list: [ NoCloud, None ]",
    "ssh_genkeytypes: [ ed25519 ]",
    "locale: false",
    "apt: { preserve_sources_list: true }",
    "ssh: { emit_keys_to_console: false }",
    "no_ssh_fingerprints: true",
)
INITRD = "virtio_pci virtio_blk virtio_scsi sd_mod sr_mod ata_piix ahci ext4"
# each letter on an emulated serial port costs; mitigations protect nobody from anybody here
KERNEL_LINE = "root=LABEL=rootfs ro console=ttyS0,115200 quiet systemd.show_status=0 mitigations=off nowatchdog"
# before the kernel is installed: the whole set of modules takes an emulated processor long to unpack
EARLY = (
    'mkdir -p "$1"/etc/initramfs-tools/conf.d "$1"/usr/share/initramfs-tools/modules.d'
    ' && echo MODULES=list >"$1"/etc/initramfs-tools/conf.d/lab'
    f' && printf "%s\\n" {INITRD} >"$1"/usr/share/initramfs-tools/modules.d/lab',
)
HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*; : >"$1"/etc/machine-id; rm -f "$1"/var/lib/dbus/machine-id',
    'echo "LABEL=rootfs / ext4 defaults,noatime 0 1" >"$1"/etc/fstab; echo localhost >"$1"/etc/hostname',
    'ln -sf /run/systemd/resolve/stub-resolv.conf "$1"/etc/resolv.conf',
    'systemctl --root="$1" enable systemd-networkd systemd-resolved ssh',
    f'systemctl --root="$1" mask {MASKED}',
    # as in Debian's own cloud image; the seed is a drive of the machine, never a server
    f"printf '%s\\n' {shlex.join(CLOUD_CONFIG)} >\"$1\"/etc/cloud/cloud.cfg.d/90_lab.cfg",
    'mkdir -p "$1"/boot/grub/i386-pc'
    ' && cp "$1"/usr/lib/grub/i386-pc/*.mod "$1"/usr/lib/grub/i386-pc/*.lst "$1"/boot/grub/i386-pc/'
    ' && chroot "$1" grub-mkimage -O i386-pc -p "(hd0,msdos1)/boot/grub" -o /boot/grub/core.img'
    " biosdisk part_msdos ext2 normal linux serial terminal configfile search search_label echo",
    'printf "%s\\n" "serial --unit=0 --speed=115200" "terminal_output serial console" "set timeout=0"'
    f' "search --no-floppy --label rootfs --set=root" "linux /vmlinuz {KERNEL_LINE}" "initrd /initrd.img" boot'
    ' >"$1"/boot/grub/grub.cfg',
)


class ImageError(Exception):
    """The image cannot be built; the message is one line that says what to do."""


def path() -> Path:
    """Where the image of exactly these packages and hooks is."""
    recipe = json.dumps([SUITE, SIZE, PACKAGES, EXCLUDED, EARLY, HOOKS]).encode()
    return CACHE / f"image-vm-{hashlib.sha256(recipe).hexdigest()[:12]}.qcow2"


def ensure() -> Path:
    """The image, built if it is not there; two builds at once wait for each other."""
    if path().exists():
        return path()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "image-vm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path().exists():
            for leftover in CACHE.glob("image-vm-building-*"):
                shutil.rmtree(leftover)
            place = CACHE / f"image-vm-building-{os.getpid()}"
            try:
                _build(place)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    return path()


def _run(*argv: str | Path) -> None:
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ImageError(f"vm image: {words[0]} is missing: install the Debian package that holds it") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        worst = [line for line in said if line.startswith("E: ")] or said
        raise ImageError(
            f"vm image: {words[0]} ended with {done.returncode}: {worst[-1]}: are you root, is there network?"
        )


def _build(place: Path) -> None:
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"vm image: {time.monotonic() - began:4.0f} s {what}", file=sys.stderr, flush=True)

    place.mkdir()
    root, raw = place / "root", place / "disk.raw"
    say(f"Debian {SUITE} with {len(PACKAGES)} packages, one to three minutes")
    argv = ["mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}"]
    argv += ["--aptopt=Acquire::Languages none", '--aptopt=Apt::Install-Recommends "false"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    argv += [f"--essential-hook={hook}" for hook in EARLY]
    argv += [f"--customize-hook={hook}" for hook in HOOKS]
    _run(*argv, SUITE, root)
    root.chmod(0o755)
    say("file system")
    _disk(root, raw)
    say("qcow2")
    finished = place / "disk.qcow2"
    _run("qemu-img", "convert", "-q", "-O", "qcow2", raw, finished)
    finished.chmod(0o444)
    finished.replace(path())
    say(f"{path().name}, {path().stat().st_size // 1024**2} MB")


def _disk(root: Path, raw: Path) -> None:
    """One partition with an ext4 made from the folder, GRUB in the gap before it."""
    _run("truncate", "-s", SIZE, raw)
    offset = FIRST_SECTOR * SECTOR
    blocks = (raw.stat().st_size - offset) // 4096
    # GRUB 2.06 and 2.12 read no metadata checksum seed and no orphan file
    features = "^metadata_csum_seed,^orphan_file"
    options = ["-q", "-F", "-O", features, "-L", "rootfs", "-E", f"offset={offset}", "-d", str(root)]
    _run("mkfs.ext4", *options, "-b", "4096", raw, str(blocks))
    boot = (root / "usr/lib/grub/i386-pc/boot.img").read_bytes()
    core = (root / "boot/grub/core.img").read_bytes()
    if len(core) > offset - SECTOR:
        raise ImageError(f"vm image: GRUB's core has {len(core)} bytes and does not fit before the partition")
    with raw.open("r+b") as disk:
        disk.write(boot[:440] + b"glas\0\0" + _partition(raw.stat().st_size // SECTOR))
        disk.seek(SECTOR)
        disk.write(core)


def _partition(sectors: int) -> bytes:
    """The table of a disk with one bootable Linux partition, to the end of the first sector."""
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", FIRST_SECTOR, sectors - FIRST_SECTOR)
    return entry + bytes(48) + b"\x55\xaa"


def main() -> int:
    """Build when missing; the place on standard output."""
    try:
        print(ensure())
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
