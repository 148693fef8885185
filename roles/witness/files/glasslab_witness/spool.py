"""Receipts on their way into the log: a file dropped into the spool becomes one frame; its answer lies in `done`.

A dropper writes NAME.part and renames it to NAME.json. Once the log has acknowledged the frame, done/NAME.json says
where it is; for a file that cannot be recorded it says why. Answers are removed after an hour. Whatever else lies here
(a link, a pipe, a folder, more than there is memory for), the hypervisor's other frames do not wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPOOL = Path("/var/spool/glasslab")
LARGEST = 512 * 1024
MOST = 8  # at a time: they are in memory together
KEPT_SECONDS = 3600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.json")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A receipt out of the spool; `tag` tells this file from another one of the same name."""

    path: Path
    tag: str
    sha256: str
    receipt: dict[str, Any]


class Spool:
    """The directory, as the forwarder sees it."""

    def __init__(self, place: Path) -> None:
        """`place` holds the dropped files, `place/done` the answers."""
        self.place, self.done = place, place / "done"
        self._swept = 0.0
        self._stuck: set[str] = set()  # refused, and nobody here can remove them

    def waiting(self) -> Iterator[Dropped]:
        """Yield what was dropped, by name; what cannot be recorded is answered and removed."""
        try:
            names = sorted(path for path in self.place.iterdir() if _NAME.fullmatch(path.name))
        except OSError:
            return
        most = MOST
        for path in names:
            try:
                about, data = _read(path)
                receipt = json.loads(data)
                if not isinstance(receipt, dict):
                    raise ValueError("is no JSON object")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.refuse(path, f"cannot be read ({error.strerror}); give it to the directory's group, mode 0640")
            except (ValueError, RecursionError) as error:
                self.refuse(path, f"is no receipt: {error}")
            else:
                yield Dropped(path, f"{about.st_ino}.{about.st_mtime_ns}", hashlib.sha256(data).hexdigest(), receipt)
                most -= 1
                if not most:
                    return

    def refuse(self, path: Path, why: str) -> None:
        """Answer that a file is not recorded, and remove it; once, also where it cannot be removed."""
        if path.name in self._stuck:
            return
        self._stuck.add(path.name)
        with contextlib.suppress(OSError):  # who waits for the answer hears in time that there is none
            self.answer(path.name, {"refused": f"{path.name} {why}"})
        if self.remove(path):
            self._stuck.discard(path.name)

    @staticmethod
    def remove(path: Path) -> bool:
        """Remove a dropped file; return whether it is gone."""
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def answer(self, name: str, said: dict[str, Any]) -> None:
        """Write the answer for a dropped file. Raises OSError."""
        part = self.done / f".{name}.part"
        part.unlink(missing_ok=True)  # never through a link that somebody left there
        with part.open("x", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
        part.replace(self.done / name)

    def sweep(self) -> None:
        """Remove old answers, once in a while."""
        now = time.time()
        if abs(now - self._swept) < 60:
            return
        self._swept = now
        with contextlib.suppress(OSError):
            for path in self.done.iterdir():
                if now - path.lstat().st_mtime > KEPT_SECONDS:
                    path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[os.stat_result, bytes]:
    """Read a plain file that is not too large. Raises OSError and, for anything else, ValueError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError("it is no plain file")
    # Not through a link, and without waiting for a pipe's other end, whatever took its place since.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is no plain file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes")
    return about, data
