"""Writes a software bill of materials (CycloneDX 1.5, JSON): Debian packages from dpkg, wheels from a wheelhouse.

Standard input is what dpkg-query prints: status, package, version, architecture, source package and its version, a line
each, with bars between. The same input gives the same bytes: no time is in it, and its serial number is its content's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote


def debian_components(listing: str) -> list[dict[str, Any]]:
    """The installed packages of a listing. Raises ValueError for a line that is not of its form."""
    components = []
    for line in listing.splitlines():
        fields = line.split("|")
        if len(fields) != 6:
            raise ValueError(f"not a line of dpkg-query: {line!r}")
        status, package, version, architecture, source, source_version = fields
        if status != "installed":
            continue
        # https://github.com/package-url/purl-spec: a colon of an epoch and a plus sign are percent-encoded
        purl = f"pkg:deb/debian/{package}@{quote(version, safe='.-~')}?arch={architecture}&distro=debian-13"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": package,
                "version": version,
                "purl": purl,
                "properties": [{"name": "debian:source", "value": f"{source} {source_version}"}],
            }
        )
    return sorted(components, key=lambda component: str(component["bom-ref"]))


def wheel_components(archive: Path) -> list[dict[str, Any]]:
    """The wheels of a wheelhouse archive with their SHA-256, those of the lock and glasslab's own."""
    components = []
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            content = tar.extractfile(member)
            if path.suffix != ".whl" or content is None:
                continue
            name, version = path.name.split("-")[:2]
            name = name.lower().replace("_", "-")
            purl = f"pkg:pypi/{name}@{quote(version, safe='.-~')}"
            components.append(
                {
                    "type": "library",
                    "bom-ref": purl,
                    "name": name,
                    "version": version,
                    "purl": purl,
                    "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content.read()).hexdigest()}],
                }
            )
    return sorted(components, key=lambda component: str(component["bom-ref"]))


def bill(name: str, release: str, components: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole document."""
    digest = hashlib.sha256(json.dumps([name, release, components]).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": {"type": "operating-system", "bom-ref": name, "name": name, "version": release}},
        "components": components,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--wheelhouse", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    try:
        debian = debian_components(sys.stdin.read())
        wheels = wheel_components(options.wheelhouse)
        if not debian or not wheels:
            raise ValueError("no Debian package" if not debian else f"no wheel in {options.wheelhouse}")
        options.output.parent.mkdir(parents=True, exist_ok=True)
        document = bill(options.name, options.release, debian + wheels)
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except (OSError, ValueError, tarfile.TarError) as error:
        sys.exit(f"sbom: {error}")


if __name__ == "__main__":
    main()
