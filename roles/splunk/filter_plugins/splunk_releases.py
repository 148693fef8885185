"""What is to be done with a Splunk package: may it be installed, and is it the first, the same, or an upgrade?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Version = tuple[int, ...]


def _numbers(version: str) -> Version | None:
    """The numbers of a version; what Debian puts behind a dash or a plus is the package's, not Splunk's."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.\d+)*(?:[-+~].*)?", version)
    return tuple(int(number) for number in found.groups()) if found else None


def unsupported(version: str, supported: Sequence[str]) -> str:
    """Return why a version is not to be installed, or nothing. `supported`: the lowest release of each line."""
    numbers = _numbers(version)
    if numbers is None:
        return f"version {version!r} is not MAJOR.MINOR.PATCH"
    lowest = sorted(known for text in supported if (known := _numbers(text)))
    of_line = [known for known in lowest if known[:2] == numbers[:2]]
    wanted = of_line[0] if of_line else lowest[-1]
    if numbers >= wanted:
        return ""
    return (
        f"version {version} is older than {'.'.join(map(str, wanted))}; supported are {', '.join(supported)} or later"
    )


def package_fault(fields: str, machine: str, supported: Sequence[str]) -> str:
    """Return why a package is not to be installed, or nothing.

    `fields` is what `dpkg-deb -f FILE Package Version Architecture` prints, `machine` what
    `dpkg --print-architecture` does.
    """
    found: Mapping[str, str] = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in fields.splitlines())
    }
    if found.get("Package") != "splunk":
        return f"it is the package {found.get('Package', 'of no name')!r}, not splunk"
    if found.get("Architecture") != machine:
        return f"it is for {found.get('Architecture', 'no architecture')}, and this machine is {machine}"
    return unsupported(found.get("Version", ""), supported)


def step(installed: str, version: str) -> str:
    """Return what a package is to what is installed: `install`, `same`, `upgrade` or `downgrade`.

    `installed` is what `dpkg-query -W -f '${db:Status-Status} ${Version}'` prints; nothing when it knows none.
    One whose installation was interrupted is installed again.
    """
    status, _, there = installed.strip().partition(" ")
    before, now = _numbers(there), _numbers(version)
    if not before or not now or status in ("not-installed", "config-files"):
        return "install"
    if now < before:
        return "downgrade"
    if now > before:
        return "upgrade"
    return "same" if status == "installed" else "install"


class FilterModule:
    """The filters, for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Their names."""
        return {"splunk_package_fault": package_fault, "splunk_step": step}
