"""The base image that all machines of all labs share read-only: built once by mmdebstrap, named by what is in it."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from errors import LabError, attempt, run

CACHE = Path("/var/cache/glasslab")
SUITE = "trixie"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "ifupdown2",
    "iptables",
    "nftables",
    "ebtables",
    "bridge-utils",
    "iproute2",
    "iputils-ping",
    "openssh-server",
    "python3",
    "python3-venv",
    "python3-apt",
    "sudo",
    "procps",
    "netbase",
    "ca-certificates",
    "tcpdump",
    "conntrack",
    "dnsmasq-base",
    "haproxy",
    "ulogd2",
    "ulogd2-json",
    "iperf3",
    "ethtool",
    "python3-requests",
    "python3-cryptography",
)
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
HOOKS = (
    # host keys and machine id belong to a machine, not to the image
    'rm -f "$1"/etc/ssh/ssh_host_*; : >"$1"/etc/machine-id',
    # ifupdown2 answers with an error where this directory is missing, as it is in Debian's iproute2
    'mkdir -p "$1"/etc/iproute2/rt_tables.d "$1"/etc/network/interfaces.d',
    # no package index is reachable from the lab, and nobody looks at its consoles
    "for unit in apt-daily.timer apt-daily-upgrade.timer console-getty.service; do"
    ' ln -sf /dev/null "$1"/etc/systemd/system/$unit; done',
    # installed for what the lab's roles run by units of their own; Debian's own services are nobody's here
    'systemctl --root="$1" disable haproxy.service ulogd2.service',
)


def path() -> Path:
    """Where the image of exactly these packages and hooks is."""
    recipe = json.dumps([SUITE, PACKAGES, EXCLUDED, HOOKS]).encode()
    return CACHE / f"image-{hashlib.sha256(recipe).hexdigest()[:12]}"


def identity() -> str:
    """Tells two builds of one recipe apart: a disk fits only the build it was begun on."""
    return f"{path().name} {(path() / 'etc/machine-id').stat().st_mtime_ns}"


def ready() -> bool:
    """True when the image is there, whole (it gets its name only once it is)."""
    return path().is_dir()


def ensure() -> bool:
    """Build the image unless it is there; True when it was built. Progress goes to standard error.

    Two builds at once wait for each other. Raises LabError when mmdebstrap fails.
    """
    if ready():
        return False
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "image.lock").open("w") as lock:
        _wait_for(lock.fileno())
        if ready():
            return False
        for leftover in CACHE.glob("building-*"):
            discard(leftover)
        _build(lock.fileno())
    return True


def _wait_for(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("base image: another build is running, waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _build(lock: int) -> None:
    began = time.monotonic()
    place = CACHE / f"building-{os.getpid()}"
    argv = ["mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}"]
    argv += ["--aptopt=Acquire::Languages none"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    argv += [f"--customize-hook={hook}" for hook in HOOKS]
    argv += [SUITE, str(place)]
    print(f"base image: Debian {SUITE} with {len(PACKAGES)} packages, about half a minute", file=sys.stderr, flush=True)
    last = ""
    # If this program is killed, mmdebstrap is told to end, and until it has, the lock it inherited keeps others out.
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=[lock],
        preexec_fn=_die_with_parent,  # one thread only, and it makes one system call
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            line = line.rstrip()
            if line.startswith("I: "):
                print(f"base image: {time.monotonic() - began:4.0f} s {line[3:]}", file=sys.stderr, flush=True)
            elif line.startswith(("E: ", "W: ")):
                last = line
    if child.returncode != 0:
        discard(place)
        raise LabError(
            f"base image: mmdebstrap ended with {child.returncode}: {last or 'no message'}: is the network up?"
        )
    place.chmod(0o755)
    place.replace(path())


def discard(place: Path) -> None:
    """Remove an image folder, without ever following a mount that was left inside it."""
    real = place.resolve()
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        mounted = line.split()[4]
        if mounted.startswith(f"{real}/"):
            attempt(["umount", "-l", mounted])
    run(["rm", "-rf", "--one-file-system", str(place)])


def remove_cache() -> bool:
    """Remove what is cached: every image of every recipe, and the wheels; True when there was something."""
    found = [*CACHE.glob("image-*"), *CACHE.glob("building-*"), *CACHE.glob("wheel*")]
    for place in found:
        discard(place)
    (CACHE / "image.lock").unlink(missing_ok=True)
    return bool(found)
