"""Installs one version of glasslab's virtual environment from a wheelhouse and makes it the current one.

Usage: install.py PREFIX VERSION, with the wheelhouse as PREFIX/wheelhouse.tar. The version's directory is marked last,
and PREFIX/venv is pointed at it in one step: an interrupted installation is done again, and what runs meanwhile is not
disturbed. The environment holds no pip: Debian's own installs into it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

DEBIANS_WHEELS = Path("/usr/share/python-wheels")


def run(*argv: str | Path) -> None:
    """Run one command; its last line is this program's when it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no message"]
        sys.exit(f"runtime: {' '.join(str(word) for word in argv[:4])} ... failed: {said[-1]}")


def install(prefix: Path, version: str) -> None:
    """Unpack, install by hash, compile, mark, switch."""
    archive, work, place = prefix / "wheelhouse.tar", prefix / "wheelhouse", prefix / version
    for leftover in (work, place):
        shutil.rmtree(leftover, ignore_errors=True)
    pips = sorted(DEBIANS_WHEELS.glob("pip-*.whl"))
    if not pips:
        sys.exit("runtime: Debian's pip is missing: install the package python3-venv")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin/python"
    # From the wheel, which Python reads as it is. Its compiling would be one file after the other.
    pip = [sys.executable, pips[-1] / "pip", "--isolated", "--disable-pip-version-check", "--python", python]
    sources = ["--no-index", f"--find-links={work / 'wheels'}", f"--find-links={work / 'own'}"]
    wanted = ["--require-hashes", "--no-compile", "--quiet", f"--requirement={work / 'requirements.txt'}"]
    run(*pip, "install", *sources, *wanted)
    # Now, for the services may not write there.
    run(python, "-m", "compileall", "-q", "-j0", place / "lib")
    shutil.rmtree(work)
    archive.unlink()
    (place / ".complete").write_text(f"{version}\n", encoding="ascii")
    link = prefix / "venv.new"
    link.unlink(missing_ok=True)
    link.symlink_to(version)
    link.replace(prefix / "venv")


if __name__ == "__main__":
    os.umask(0o022)
    install(Path(sys.argv[1]), sys.argv[2])
