"""The cleaning of a template, on a directory that looks like a machine: canaries go, what a machine needs stays."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from packertools import ROOT

FILES = ROOT / "roles/template_cleaning/files"
STANDIN = ROOT / "molecule/splunk/standin"
KEPT = {
    "etc/passwd": "root:x:0:0::/root:/bin/bash\nbuilder:x:1000:1000::/home/builder:/bin/bash\n",
    "etc/shadow": "root:*:1::::::\n",
    "etc/glasslab-release": "x",
    "etc/systemd/system/glasslab-agent.service": "[Unit]",
    "etc/ssh/sshd_config": "PermitRootLogin prohibit-password",
    "opt/glasslab/venv/.complete": "venv-1",
    "opt/splunk/etc/apps/glasslab/default/app.conf": "[install]",
    "opt/splunk/etc/system/default/server.conf": "[general]",
    "opt/splunk/etc/splunk.version": "VERSION=10.4.4",
    "opt/splunk/bin/splunk": "#!/bin/sh",
    "root/.bashrc": "PS1=x",
    "usr/share/glasslab/sbom.cdx.json": "{}",
    "var/lib/dpkg/status": "Package: x",
}


def clean(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(FILES / "clean.sh"), *words], capture_output=True, text=True, check=False)


def contents(root: Path) -> dict[str, str]:
    """Every file below a directory."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace") for path in files}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine's files, canaries among them."""
    root = tmp_path / "root"
    for name, content in KEPT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n", encoding="ascii")
    (root / "var/lib/dbus").mkdir(parents=True)
    (root / "var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    (root / "etc/network").mkdir()
    (root / "etc/network/interfaces").write_text("iface ens18 inet static\n address 192.0.2.7/24\n", encoding="ascii")
    (root / "var/log").mkdir(parents=True)
    (root / "var/log/wtmp").write_text("GLASSLAB-CANARY login", encoding="ascii")
    subprocess.run(["sh", str(FILES / "canaries.sh"), str(root)], check=True)
    return root


def canaries(root: Path) -> set[str]:
    return {name for name, content in contents(root).items() if "GLASSLAB-CANARY" in content}


def test_the_canaries_are_in_every_class_of_what_goes(machine: Path) -> None:
    """Each pattern of the program has a canary, or is one of the few that only a real machine fills."""
    text = (FILES / "clean.sh").read_text(encoding="utf-8")
    lists = re.findall(r'^(?:secrets|access|build)="\n(.*?)^"', text, re.MULTILINE | re.DOTALL)
    patterns = {word for block in lists for word in block.split()}
    there = canaries(machine)
    without = {word for word in patterns if not any(_beneath(name, word) for name in there)}
    # Nothing of a pattern without a canary may hold a secret of the lab's.
    assert len(patterns) - len(without) > 35
    assert not any("glasslab" in word and word not in ("root/.glasslab", "home/*/.glasslab") for word in without)
    assert len(there) > 40


def _beneath(name: str, pattern: str) -> bool:
    return any(parent.full_match(pattern) for parent in [Path(name), *Path(name).parents])


def test_check_names_every_canary(machine: Path) -> None:
    found = clean("check", str(machine), "builder")
    assert found.returncode == 1
    named = set(found.stdout.splitlines())
    missed = {n for n in canaries(machine) if not any(n == line or n.startswith(f"{line}/") for line in named)}
    assert missed == set()
    assert {"etc/machine-id", "etc/passwd: builder"} <= named


def test_the_last_cleaning_leaves_no_canary_and_no_identity(machine: Path) -> None:
    done = clean("last", str(machine))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert canaries(machine) == set()
    left = contents(machine)
    assert {name: left[name] for name in KEPT} == KEPT
    assert left["etc/machine-id"] == ""
    assert left["usr/share/glasslab/cleaned"] == "clean\n"
    assert left["var/log/wtmp"] == ""
    assert "192.0.2.7" not in left["etc/network/interfaces"]
    assert (machine / "var/lib/dbus/machine-id").is_symlink()
    assert clean("check", str(machine)).returncode == 0


def test_the_first_cleaning_leaves_the_build_its_access(machine: Path) -> None:
    assert clean("now", str(machine)).returncode == 0
    access = {"etc/ssh/ssh_host_canary_key", "root/.ssh/id_canary", "home/canary/.ssh/authorized_keys", "etc/shadow-"}
    access |= {"tmp/canary", "var/tmp/canary", "root/.ansible/tmp/canary"}
    assert canaries(machine) == access
    assert contents(machine)["etc/machine-id"] != ""


def test_what_cannot_be_removed_is_said_in_the_template(machine: Path) -> None:
    """The build's user is removed by a command of the machine: without it, the template is not called clean."""
    done = clean("last", str(machine), "builder")
    assert done.returncode == 1
    assert contents(machine)["usr/share/glasslab/cleaned"] == "etc/passwd: builder\n"


def test_secrets_are_overwritten_before_they_are_removed(machine: Path) -> None:
    """A hard link keeps the blocks: what is in them afterwards is what a disk image would hold."""
    kept = machine.parent / "blocks"
    kept.hardlink_to(machine / "etc/glasslab/agent/hec_token")
    assert b"CANARY" in kept.read_bytes()
    clean("last", str(machine))
    assert b"CANARY" not in kept.read_bytes()


def test_of_a_splunk_that_was_started_its_package_alone_is_left(tmp_path: Path) -> None:
    """The stand-in's package, unpacked as dpkg does and started once: users, GUID, secret, certificates."""
    build = [sys.executable, "-B", str(STANDIN / "build.py"), str(tmp_path), "10.4.4"]
    package = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "-x", package, str(root)], check=True)
    for name in ("etc/machine-id", "etc/passwd"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    before = contents(root)
    home = root / "opt/splunk"
    splunkd = ModuleType("splunkd")
    splunkd.__file__ = str(home / "bin/splunkd")
    exec(compile((home / "bin/splunkd").read_text(), splunkd.__file__, "exec"), vars(splunkd))
    (home / "etc/system/local/user-seed.conf").write_text("[user_info]\nUSERNAME = admin\nHASHED_PASSWORD = $6$x$y\n")
    splunkd.seed()
    splunkd.identity()
    made = set(contents(root)) - set(before)
    assert {"opt/splunk/etc/instance.cfg", "opt/splunk/etc/auth/splunk.secret", "opt/splunk/etc/passwd"} <= made
    named = set(clean("check", str(root)).stdout.splitlines())
    assert {name for name in made if not any(name == line or name.startswith(f"{line}/") for line in named)} == set()
    assert clean("last", str(root)).returncode == 0
    left = contents(root)
    assert left.pop("usr/share/glasslab/cleaned") == "clean\n"
    assert left == before


@pytest.mark.parametrize("words", [(), ("all",), ("last", "/nonexistent/root")])
def test_a_wrong_call_changes_nothing(words: tuple[str, ...]) -> None:
    assert clean(*words).returncode == 2
