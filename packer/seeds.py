"""What a build's machine is given at its first boot: cloud-init data, or an installer image with the answers in it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

SEED = Path(__file__).resolve().parent / "seed"
BLOCK = 1 << 20


class SeedError(Exception):
    """Something of the seed could not be made; the message is one line with its remedy."""


def key_pair(place: Path) -> str:
    """Make this build's SSH key, id_ed25519 in that directory, and return its public half."""
    key = place / "id_ed25519"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "glasslab-template-build", "-f", str(key)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return key.with_suffix(".pub").read_text(encoding="ascii").strip()


def cloud_init(place: Path, name: str, user: str, public_key: str) -> None:
    """Write user-data and meta-data for a machine that lets that user in with that key."""
    place.mkdir()
    data: dict[str, object] = {"disable_root": user != "root", "ssh_pwauth": False, "package_update": False}
    if user == "root":
        data |= {"users": [], "ssh_authorized_keys": [public_key]}
    else:
        rights = {"sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash", "lock_passwd": True}
        data["users"] = [{"name": user, "ssh_authorized_keys": [public_key]} | rights]
    # JSON is YAML too.
    (place / "user-data").write_text("#cloud-config\n" + json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (place / "meta-data").write_text(json.dumps({"instance-id": name, "local-hostname": name}) + "\n", encoding="utf-8")


def preseed(name: str, public_key: str, proxy: str = "") -> str:
    """The installer's answers. Raises SeedError when a value cannot stand in them."""
    for what, value in (("public key", public_key), ("name", name), ("proxy", proxy)):
        if "'" in value or "\n" in value:
            raise SeedError(f"the {what} {value!r} holds a quote or a line break: leave it out")
    text = (SEED / "preseed.cfg").read_text(encoding="utf-8")
    for mark, value in {"@NAME@": name, "@KEY@": public_key, "@PROXY@": proxy}.items():
        text = text.replace(mark, value)
    return text


def installer(place: Path, netinst: Path, answers: str) -> Path:
    """Make seed.iso of Debian's netinst image and the answers, with its SHA-512 beside it. Raises SeedError."""
    if not netinst.is_file():
        raise SeedError(f"no Debian netinst image at {str(netinst)!r}: download one and name it with --netinst")
    seed = place / "seed.iso"
    (place / "preseed.cfg").write_text(answers, encoding="utf-8")
    argv = ["xorriso", "-indev", str(netinst), "-outdev", str(seed), "-boot_image", "any", "replay"]
    maps = {
        place / "preseed.cfg": "/preseed.cfg",
        SEED / "isolinux.cfg": "/isolinux/isolinux.cfg",
        SEED / "grub.cfg": "/boot/grub/grub.cfg",
    }
    for source, target in maps.items():
        argv += ["-map", str(source), target]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if "FAILURE" in line or "FATAL" in line][-1:]
        raise SeedError(f"xorriso could not make the installer image of {netinst}: {' '.join(why) or 'no message'}")
    digest = hashlib.sha512()
    with seed.open("rb") as content:
        while block := content.read(BLOCK):
            digest.update(block)
    (place / "seed.iso.sha512").write_text(f"{digest.hexdigest()}  seed.iso\n", encoding="ascii")
    return seed
