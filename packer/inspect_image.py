"""Looks into a finished disk image for what a template must not carry: inspect_image.py IMAGE [BUILD_USER]

Two looks, neither of which trusts the other: every allocated byte of the image is searched for the canaries' mark (also
blocks of removed files), and the file system, mounted read-only by its offset, is checked for paths that must be empty.
Prints one JSON object; exit code 1 when something was found, 2 when the image cannot be read.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = b"GLASSLAB-CANARY "
CLEAN = Path(__file__).resolve().parent.parent / "roles/template_cleaning/files/clean.sh"
BLOCK = 1 << 22
AROUND = 60
# What the first boot of a machine makes, and what the template has for it.
MADE_AT_FIRST_BOOT = ("etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_ecdsa_key")
PRESENT = (
    "etc/systemd/system/ssh-host-keys.service",
    "opt/glasslab/venv/bin/glasslab",
    "usr/share/glasslab/sbom.cdx.json",
    "usr/share/glasslab/cleaned",
)


class ImageError(Exception):
    """The image cannot be read; the message is one line."""


def run(*argv: str | Path) -> str:
    """Run a command and return what it prints. Raises ImageError with its last line."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{argv[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def marks(raw: Path) -> list[str]:
    """Where the mark is in a disk, with what stands after it. Holes are skipped by the file system."""
    found, before, position = [], b"", 0
    with raw.open("rb") as disk:
        while block := disk.read(BLOCK):
            text = before + block
            start = text.find(MARK)
            while start >= 0:
                name = text[start + len(MARK) : start + len(MARK) + AROUND].split(b"\n")[0]
                found.append(f"byte {position - len(before) + start}: {name.decode(errors='replace')}")
                start = text.find(MARK, start + 1)
            position += len(block)
            before = block[-(len(MARK) - 1) :]
    return found


@contextlib.contextmanager
def mounted(raw: Path, place: Path) -> Iterator[Path]:
    """The disk's largest partition, mounted by its offset: not every kernel makes devices of partitions."""
    table = json.loads(run("sfdisk", "--json", raw))["partitiontable"]
    partition = max(table["partitions"], key=lambda entry: int(entry["size"]))
    unit = int(table.get("sectorsize", 512))
    offset, size = int(partition["start"]) * unit, int(partition["size"]) * unit
    # noload: the journal of a file system that was shut down is empty, and nothing may be written here.
    run("mount", "-o", f"loop,ro,noload,offset={offset},sizelimit={size}", raw, place)
    try:
        yield place
    finally:
        run("umount", place)


def look(image: Path, user: str = "root") -> dict[str, Any]:
    """Everything found in an image. Raises ImageError."""
    with tempfile.TemporaryDirectory(prefix="glasslab-image-", dir=image.resolve().parent) as work:
        raw, place = Path(work) / "disk.raw", Path(work) / "root"
        run("qemu-img", "convert", "-O", "raw", image, raw)
        place.mkdir()
        with mounted(raw, place) as root:
            check = ["sh", str(CLEAN), "check", str(root), user]
            left = subprocess.run(check, capture_output=True, text=True, check=False).stdout.splitlines()
            left += [path for path in MADE_AT_FIRST_BOOT if (root / path).exists()]
            missing = [path for path in PRESENT if not (root / path).exists() and not (root / path).is_symlink()]
            said = (root / "usr/share/glasslab/cleaned").read_text() if not missing else ""
        return {"canaries": marks(raw), "left": sorted(set(left)), "missing": missing, "said": said.splitlines()}


def main() -> None:
    """Command line."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("inspect_image: name an image: inspect_image.py IMAGE [BUILD_USER]")
    try:
        found = look(Path(sys.argv[1]), *sys.argv[2:3])
    except (ImageError, OSError) as error:
        print(f"inspect_image: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(found, indent=1))
    sys.exit(found["said"] != ["clean"] or any(found[key] for key in ("canaries", "left", "missing")))


if __name__ == "__main__":
    main()
