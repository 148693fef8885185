"""What the tests of the templates share: the templates read, and Debian's Packer, installed when it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKER = ROOT / "packer"
ENVIRONMENT = os.environ | {"CHECKPOINT_DISABLE": "1", "PACKER_NO_COLOR": "1", "PROXMOX_PASSWORD": "of-a-test"}


def installed(*packages: str, programs: tuple[str, ...]) -> None:
    """Have these programs on PATH; says so when it installs their Debian packages for it."""
    if all(shutil.which(program) for program in programs):
        return
    print(f"installing distribution packages: {' '.join(packages)} (make destroy leaves them)")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (install, ["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 0 and command is install:
            break
    assert all(shutil.which(program) for program in programs), f"have root run: {' '.join(install)}"


def packer(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Debian's Packer, with more in its environment."""
    installed("packer", programs=("packer",))
    return subprocess.run(["packer", *words], capture_output=True, text=True, check=False, env=ENVIRONMENT | more)


def attributes(text: str) -> dict[str, set[str]]:
    """What each source of a template uses, by its kind: attributes, blocks as `name{}`, and in them name.attribute."""
    found: dict[str, set[str]] = {}
    path: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].strip()
        # Values that go over several lines open what is no block.
        if opened := re.match(r'source "([\w-]+)" "\w+" \{$', words):
            path = [opened[1]]
            found[opened[1]] = set()
        elif path and (opened := re.match(r"(\w+) \{$", words)):
            path.append(opened[1])
            found[path[0]].add(f"{opened[1]}{{}}")
        elif path and (given := re.match(r"(\w+)\s*=", words)):
            found[path[0]].add(".".join([*path[1:], given[1]]))
            path += ["["] if words.endswith(("[", "{")) else []
        elif path and words in ("}", "]"):
            path.pop()
    return found
