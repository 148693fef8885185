"""What a newcomer without the right to or the means for a lab is told: one line, with the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def shim(folder: Path, name: str, text: str) -> None:
    """A program of that name, found first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(command: list[str], cwd: Path, path: str, **options: int) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(cwd), "PYENV_ROOT": str(cwd / "none"), "UV_OFFLINE": "1", "LC_ALL": "C"}
    passed = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_CERT_FILE")}
    return subprocess.run(
        command,
        cwd=cwd,
        env=passed | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def copy_of_the_makefile(tmp_path: Path) -> Path:
    place = tmp_path / "checkout"
    place.mkdir()
    shutil.copy(ROOT / "Makefile", place)
    for folder in (place, *list(tmp_path.parents)[:3], tmp_path):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    return place


def test_neither_root_nor_sudo(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("id", "bash", "sh", "make", "python3"):
        (tools / name).symlink_to(shutil.which(name) or "")
    done = run(["make", "demo"], place, str(tools), user=NOBODY, group=NOBODY)
    lines = [line for line in done.stderr.splitlines() if "***" not in line]
    assert done.returncode != 0
    assert lines == ["make: the lab needs root, and sudo is not installed; run this as root"]


def test_sudo_that_does_not_let_us(tmp_path: Path) -> None:
    place = copy_of_the_makefile(tmp_path)
    shim(tmp_path / "tools", "sudo", "exit 1")
    done = run(["make", "demo"], place, f"{tmp_path / 'tools'}:/usr/bin:/bin", user=NOBODY, group=NOBODY)
    lines = [line for line in done.stderr.splitlines() if "***" not in line]
    assert done.returncode != 0
    assert len(lines) == 1
    assert "may not use sudo here" in lines[0]
    assert lines[0].endswith("run this as root")


def test_no_python_to_be_had(tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    place.mkdir()
    for name in ("scripts/setup.sh", "requirements", ".python-version", "agent_src/pyproject.toml"):
        source, target = ROOT / name, place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    real = shutil.which("python3", path="/usr/bin:/bin") or shutil.which("python3") or "python3"
    old = f'case "$*" in *version_info*) exit 1;; esac\nexec {real} "$@"'
    for name in ("python3", "python3.12", "python3.13", "python3.14"):
        shim(tmp_path / "tools", name, old)
    done = run(["sh", "scripts/setup.sh"], place, f"{tmp_path / 'tools'}:/usr/bin:/bin")
    assert done.returncode == 2, done.stdout + done.stderr
    (last,) = done.stderr.strip().splitlines()
    assert last.startswith("setup: no Python 3.12 or later is on this machine")
    assert "Debian 12" in last
    assert not (place / ".venv" / ".complete").exists()
