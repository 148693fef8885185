"""The look into a finished image: its file system and every byte of it. Needs root, for it mounts one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import inspect_image
from packertools import PACKER, ROOT, installed

CANARIES = ROOT / "roles/template_cleaning/files/canaries.sh"
START = 2048
SECTOR = 512


def image(tmp_path: Path, *, canaries: bool = False, late: str = "") -> Path:
    """A disk with one partition that looks like a template's; `late` is written to where no file is."""
    installed("qemu-utils", "e2fsprogs", "fdisk", programs=("qemu-img", "mkfs.ext4", "sfdisk"))
    root = tmp_path / "tree"
    for name in inspect_image.PRESENT:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n", encoding="ascii")
    (root / "usr/share/glasslab/cleaned").write_text("clean\n", encoding="ascii")
    (root / "etc/machine-id").touch()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n", encoding="ascii")
    if canaries:
        subprocess.run(["sh", str(CANARIES), str(root)], check=True)
    raw = tmp_path / "disk.raw"
    with raw.open("wb") as disk:
        disk.truncate(64 << 20)
    table = f"label: dos\nstart={START}, type=83, bootable\n"
    subprocess.run(["sfdisk", "-q", str(raw)], input=table.encode(), check=True, capture_output=True)
    size = (64 << 20) // 1024 - START * SECTOR // 1024
    make = ["mkfs.ext4", "-q", "-d", str(root), "-E", f"offset={START * SECTOR}", str(raw), f"{size}k"]
    subprocess.run(make, check=True, capture_output=True)
    if late:
        with raw.open("r+b") as disk:
            disk.seek(40 << 20)
            disk.write(late.encode())
    qcow2 = tmp_path / "disk.qcow2"
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(qcow2)], check=True)
    return qcow2


def run(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PACKER / "inspect_image.py"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_clean_image_is_said_to_be_clean(tmp_path: Path) -> None:
    done = run(str(image(tmp_path)))
    assert json.loads(done.stdout) == {"canaries": [], "left": [], "missing": [], "said": ["clean"]}
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk.qcow2", "disk.raw", "tree"]


def test_canaries_are_found_by_their_path_and_by_their_bytes(tmp_path: Path) -> None:
    done = run(str(image(tmp_path, canaries=True)))
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert "etc/glasslab/agent/hec_token" in found["left"]
    assert any(line.endswith(": root/.bash_history") for line in found["canaries"])
    assert len(found["canaries"]) > 40


def test_a_canary_in_no_file_is_found(tmp_path: Path) -> None:
    done = run(str(image(tmp_path, late="GLASSLAB-CANARY of a removed file\n")))
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["left"] == []
    assert found["canaries"] == [f"byte {40 << 20}: of a removed file"]


def test_the_mark_is_found_across_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_image, "BLOCK", 64)
    place = tmp_path / "raw"
    for start in range(40, 70):
        place.write_bytes(b"." * start + b"GLASSLAB-CANARY here\n" + b"." * 50)
        assert [line.split(":")[0] for line in inspect_image.marks(place)] == [f"byte {start}"]


def test_what_is_no_image_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no disk", encoding="ascii")
    for words in ([str(tmp_path / "x")], [str(tmp_path / "none")], []):
        done = run(*words)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith("inspect_image: ")
        assert len(done.stderr.splitlines()) == 1


def test_the_door_carries_a_connection_both_ways_and_ends_with_it() -> None:
    """What QEMU starts for each connection of the machine that is proven."""
    server = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
        "c = s.accept()[0]\ndata = b''\nwhile part := c.recv(100000): data += part\nc.sendall(data[::-1])\nc.close()"
    )
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        argv = [sys.executable, "-S", str(PACKER / "door.py"), other.stdout.readline().strip()]
        began = time.monotonic()
        done = subprocess.run(argv, input=b"0123456789" * 50_000, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"9876543210" * 50_000
    assert time.monotonic() - began < 60
