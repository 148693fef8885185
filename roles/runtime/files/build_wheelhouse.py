"""Builds, on the control node, what the machines install offline: locked wheels and glasslab's own, as one tar file.

Prints one JSON line: {"changed": bool, "archive": path, "digest": hex}. The digest names the content, so an unchanged
checkout finds its archive in the cache and nothing is downloaded or built.
"""

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# Debian 13's Python, on the platforms its glibc runs.
TARGET = (
    "--only-binary=:all:",
    "--python-version=3.13",
    "--implementation=cp",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux2014_x86_64",
    "--platform=any",
)

KEPT_ARCHIVES = 4
# Of the archive's own form; another number makes another digest.
FORM = "2"


def source_files(package: Path) -> list[Path]:
    """Every file that decides what the wheel holds."""
    files = [package / "pyproject.toml"]
    files += [p for p in (package / "glasslab").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return sorted(files)


def digest_of(paths: list[Path], base: Path, *extra: str) -> str:
    """SHA-256 over names and contents, in order."""
    total = hashlib.sha256("\0".join(extra).encode())
    for path in paths:
        content = path.read_bytes()
        total.update(f"\0{path.relative_to(base)}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:16]


def run(command: list[str], what: str) -> None:
    """Run quietly; on failure exit with one line and the tool's own last words."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        last = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()][-1:]
        sys.exit(f"wheelhouse: {what} failed: {' '.join(last)}")


def locked_wheels(cache: Path, lock: Path) -> Path:
    """The directory of dependency wheels for this lock, downloaded once; renamed into place only when whole."""
    place = cache / f"wheels-{digest_of([lock], lock.parent, *TARGET)}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".wheels-") as work:
            wheels = Path(work) / "wheels"
            run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
                 "--dest", str(wheels), *TARGET, "-r", str(lock)],
                "downloading the locked wheels (is PyPI, or your mirror of it, reachable?)",
            )  # fmt: skip
            try:
                wheels.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
    return place


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file without owner and time, so that the same content gives the same archive."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    archive.addfile(info, io.BytesIO(content))


def own_requirement(wheel: Path) -> bytes:
    """A line of requirements for a wheel that no lock knows."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n".encode()


def build(package: Path, lock: Path, cache: Path, archive: Path) -> None:
    """Write the archive: wheels, glasslab's own under own/, and the lock with its hash added."""
    wheels = locked_wheels(cache, lock)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".own-") as work:
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", work], "building glasslab's wheel")
        own = next(Path(work).glob("*.whl"))
        part = archive.with_suffix(f".{os.getpid()}.part")
        with tarfile.open(part, mode="w") as tar:
            add(tar, "requirements.txt", lock.read_bytes() + own_requirement(own))
            for wheel in sorted(wheels.glob("*.whl")):
                add(tar, f"wheels/{wheel.name}", wheel.read_bytes())
            add(tar, f"own/{own.name}", own.read_bytes())
        part.rename(archive)


def main() -> None:
    """Command line: where the package, the lock and the cache are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--check", action="store_true", help="change nothing, say what would be done")
    options = parser.parse_args()
    package, lock = options.package.resolve(), options.lock.resolve()
    cache = options.cache.resolve()
    digest = digest_of([*source_files(package), lock], package.parent, *TARGET, FORM)
    archive = cache / f"wheelhouse-{digest}.tar"
    changed = not archive.is_file()
    if changed and not options.check:
        cache.mkdir(parents=True, exist_ok=True)
        os.chdir(package)
        os.umask(0o022)
        build(package, lock, cache, archive)
        # Some are kept: two checkouts that take turns would otherwise build theirs each time.
        by_age = sorted(cache.glob("wheelhouse-*.tar"), key=lambda path: path.stat().st_mtime)
        for old in by_age[:-KEPT_ARCHIVES]:
            old.unlink(missing_ok=True)
    sys.stdout.write(json.dumps({"changed": changed, "archive": str(archive), "digest": digest}) + "\n")


if __name__ == "__main__":
    main()
