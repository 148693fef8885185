"""make verify-proxmox: it says what it is going to make and remove, and makes nothing unless somebody says yes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import place
import plays
import pvehost

PROGRAM = plays.ROOT / "scripts" / "verify_proxmox.py"
Standing = tuple[pvehost.Double, place.Place]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A host that stands for a live one."""
    with place.own_place(tmp_path_factory.mktemp("live") / "double") as found:
        yield found


def run(where: place.Place, tmp_path: Path, **own: str) -> subprocess.CompletedProcess[str]:
    """The program for that host, with nobody at a terminal; an empty value takes a variable away."""
    secret = tmp_path / "secret"
    secret.write_text(f"{where.lab.token.secret}\n", encoding="utf-8")
    given = {"PROXMOX_HOST": where.lab.address, "PROXMOX_PORT": str(where.lab.port), "PROXMOX_CA": where.lab.ca}
    given |= {"PROXMOX_TOKEN_SECRET_FILE": str(secret), "PROXMOX_USER": where.lab.token.user}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROXMOX_") and name != "CONFIRM"}
    return subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=clean | given | own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_says_what_it_will_make_and_does_nothing_unasked(host: Standing, tmp_path: Path) -> None:
    one, where = host
    since, before = one.count(), pvehost.states(one.state)
    done = run(where, tmp_path)
    assert done.returncode == 2
    for words in (
        f"On node {where.lab.node} of {where.lab.address}, as glasslab@pve!lab, this makes and then removes:",
        "virtual machine glverify-agent: 1 core, 1 GiB of memory, a disk of 4 GiB on local-lvm, running",
        "virtual machine glverify-logs",
        "template glverify-debian13 on local-lvm",
        "fetch that image to local, and leaves it there (pvesm free removes it)",
    ):
        assert words in done.stdout
    assert "nothing was done" in done.stderr
    assert pvehost.writing(one.requests(since)) == []
    assert pvehost.states(one.state) == before


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"PROXMOX_HOST": ""}, "no host: make verify-proxmox PROXMOX_HOST="),
        ({"PROXMOX_PORT": "https"}, "PROXMOX_PORT='https': give a port, 1 to 65535"),
        ({"PROXMOX_CA": "/nowhere.pem"}, "PROXMOX_CA=/nowhere.pem is no file"),
        ({"PROXMOX_TOKEN_SECRET_FILE": ""}, "no token: give PROXMOX_TOKEN_SECRET_FILE"),
        ({"PROXMOX_USER": "nobody@pve"}, "cannot be asked"),
        ({"PROXMOX_NODE": "pve9"}, "PROXMOX_NODE='pve9': name one of pve"),
    ],
)
def test_what_it_cannot_use_is_one_line(host: Standing, tmp_path: Path, own: dict[str, str], told: str) -> None:
    done = run(host[1], tmp_path, **own)
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
