"""The files behind the volumes of guests that really run: qcow2, one a volume, copies made as overlays."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

from fakepve.model import TaskError


def _qemu_img(*argv: str | Path) -> None:
    words = ["qemu-img", *(str(word) for word in argv)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise TaskError(f"qemu-img {argv[0]} failed: {said[-1]}")


def format_of(image: Path) -> str:
    """qcow2, by what the file begins with, or raw."""
    with image.open("rb") as file:
        return "qcow2" if file.read(4) == b"QFI\xfb" else "raw"


class Disks:
    """A folder of images. A copy of something that no longer changes is an overlay on it and takes no time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parents: dict[Path, Path] = {}
        self._kept: set[Path] = set()
        self._numbers = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)

    def _place(self, name: str) -> Path:
        # Never the same file twice: a freed one may still be under somebody's overlay.
        return self._folder / f"{next(self._numbers):04d}-{name.replace('/', '_')}.qcow2"

    def new(self, name: str, size: int) -> Path:
        """An empty disk."""
        place = self._place(name)
        _qemu_img("create", "-q", "-f", "qcow2", place, str(size))
        return place

    def overlay(self, name: str, source: Path, size: int) -> Path:
        """A disk that begins as `source` is, which must not change any more."""
        place = self._place(name)
        _qemu_img("create", "-q", "-f", "qcow2", "-F", format_of(source), "-b", source.resolve(), place)
        self._parents[place] = source
        if size:
            _qemu_img("resize", "-q", place, str(size))
        return place

    def copy(self, name: str, source: Path) -> Path:
        """A disk of its own that begins as `source` is now."""
        place = self._place(name)
        _qemu_img("convert", "-q", "-O", "qcow2", source, place)
        return place

    @staticmethod
    def resize(image: Path, size: int) -> None:
        """Make a disk that is not in use larger. Its snapshots would stand in the way, as they do not on LVM-thin."""
        _qemu_img("resize", "-q", image, str(size))

    @staticmethod
    def snapshot(image: Path, name: str) -> None:
        """Remember how a disk that is not in use is now."""
        _qemu_img("snapshot", "-q", "-c", name, image)

    @staticmethod
    def revert(image: Path, name: str) -> None:
        """Put a disk that is not in use back to how it was."""
        _qemu_img("snapshot", "-q", "-a", name, image)

    @staticmethod
    def forget(image: Path, name: str) -> None:
        """Remove a snapshot of a disk that is not in use."""
        _qemu_img("snapshot", "-q", "-d", name, image)

    def drop(self, image: Path) -> None:
        """Remove a disk: at once, or when the last overlay on it has gone."""
        if image in self._parents.values():
            self._kept.add(image)
            return
        if image.parent == self._folder:
            image.unlink(missing_ok=True)
        self._kept.discard(image)
        parent = self._parents.pop(image, None)
        if parent in self._kept:
            self.drop(parent)
