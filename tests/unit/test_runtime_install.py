"""What roles/runtime runs on a machine: a wheelhouse becomes an environment, by hash; the old one stays until then."""

from __future__ import annotations

import ensurepip
import hashlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

FILES = Path(__file__).resolve().parents[2] / "roles/runtime/files"


def program(name: str) -> ModuleType:
    """A program of the role, by its file: `install` is no name for a folder on sys.path."""
    spec = importlib.util.spec_from_file_location(f"runtime_{name}", FILES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(name: str, text: str) -> bytes:
    """A wheel with one module and a command that prints."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as files:
        files.writestr(f"{name}.py", f"def main():\n    print({text!r})\n")
        files.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        files.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr(f"{name}-1.0.dist-info/entry_points.txt", f"[console_scripts]\n{name}={name}:main\n")
        files.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


def wheelhouse(prefix: Path, text: str, *, right: bool = True) -> None:
    """An archive as build_wheelhouse.py writes it."""
    builder = program("build_wheelhouse")
    lock, own = wheel("locked", "locked"), wheel("owned", text)
    place = prefix.parent / "owned-1.0-py3-none-any.whl"
    place.write_bytes(own)
    digest = hashlib.sha256(lock if right else b"another").hexdigest()
    requirements = f"locked==1.0 \\\n    --hash=sha256:{digest}\n".encode() + builder.own_requirement(place)
    with tarfile.open(prefix / "wheelhouse.tar", "w") as tar:
        builder.add(tar, "requirements.txt", requirements)
        builder.add(tar, "wheels/locked-1.0-py3-none-any.whl", lock)
        builder.add(tar, f"own/{place.name}", own)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with the pip that comes with this Python in the place of Debian's."""
    module = program("install")
    monkeypatch.setattr(module, "DEBIANS_WHEELS", Path(ensurepip.__file__).parent / "_bundled")
    monkeypatch.setattr(module.sys, "executable", sys._base_executable)
    return module


def says(prefix: Path) -> str:
    done = subprocess.run([prefix / "venv/bin/owned"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_versions_follow_each_other_and_leave_nothing_between(install: ModuleType, tmp_path: Path) -> None:
    prefix = tmp_path / "glasslab"
    prefix.mkdir()
    for version in ("venv-1", "venv-2"):
        wheelhouse(prefix, version)
        install.install(prefix, version)
        assert says(prefix) == version
        assert (prefix / "venv").readlink() == Path(version)
        assert (prefix / "venv/.complete").read_text(encoding="ascii") == f"{version}\n"
    assert sorted(path.name for path in prefix.iterdir()) == ["venv", "venv-1", "venv-2"]
    # The services may not write there, so everything is compiled; and nothing in it can install more.
    assert list((prefix / "venv/lib").rglob("__pycache__/owned.*.pyc"))
    assert not list((prefix / "venv/bin").glob("pip*"))


def test_a_wheel_of_another_hash_is_refused_and_the_old_version_stays(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "glasslab"
    prefix.mkdir()
    wheelhouse(prefix, "venv-1")
    install.install(prefix, "venv-1")
    wheelhouse(prefix, "venv-2", right=False)
    with pytest.raises(SystemExit, match=r"^runtime: .* failed: .*"):
        install.install(prefix, "venv-2")
    assert says(prefix) == "venv-1"
    assert not (prefix / "venv-2/.complete").exists()
    assert capsys.readouterr().out == ""


def test_without_debians_pip_the_package_is_named(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "DEBIANS_WHEELS", tmp_path)
    with pytest.raises(SystemExit, match="install the package python3-venv"):
        install.install(tmp_path, "venv-1")
