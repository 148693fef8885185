"""A package mirror with one package in it, made in memory: what apt needs to see that it reaches a mirror."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

PACKAGE = "glasslab-sample"
VERSION = "1.0"
CONTROL = f"""\
Package: {PACKAGE}
Version: {VERSION}
Architecture: all
Maintainer: Glasslab <root@packages.glasslab.test>
Description: one file, to see that packages can be had
"""


def files() -> dict[str, bytes]:
    """Path on the mirror -> content: a flat repository (`deb [trusted=yes] http://packages.glasslab.test ./`)."""
    deb = _package()
    name = f"{PACKAGE}_{VERSION}_all.deb"
    packages = f"{CONTROL}Filename: ./{name}\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n\n".encode()
    index = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    release = f"Origin: Glasslab\nSuite: stable\nArchitectures: all\nSHA256:\n{index}".encode()
    return {f"/{name}": deb, "/Packages": packages, "/Release": release}


def _package() -> bytes:
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _archive("./control", CONTROL.encode()),
        "data.tar.gz": _archive(f"./usr/share/{PACKAGE}/here", b"from the mirror\n"),
    }
    made = b"!<arch>\n"
    for name, content in parts.items():
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        made += content + b"\n" * (len(content) % 2)
    return made


def _archive(name: str, content: bytes) -> bytes:
    """A compressed archive of one file with the folders above it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        steps = name.split("/")
        for depth in range(1, len(steps)):
            folder = tarfile.TarInfo("/".join(steps[:depth]) + "/")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        file = tarfile.TarInfo(name)
        file.size = len(content)
        archive.addfile(file, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)
