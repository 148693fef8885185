"""Receipts on their way into the log: a file dropped into the spool becomes one frame; its answer lies in `done`.

A dropper writes NAME.part and renames it to NAME.json. Once the log has acknowledged the frame, done/NAME.json says
where it is; for a file that cannot be recorded it says why. Answers are removed after an hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPOOL = Path("/var/spool/glasslab")
LARGEST = 512 * 1024
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

    def waiting(self) -> Iterator[Dropped]:
        """Yield what was dropped, by name; what cannot be recorded is answered and removed."""
        try:
            names = sorted(path for path in self.place.iterdir() if _NAME.fullmatch(path.name))
        except OSError:
            return
        for path in names:
            try:
                about = path.lstat()
                if about.st_size > LARGEST:
                    raise ValueError(f"is larger than {LARGEST} bytes")
                data = path.read_bytes()
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
                tag = f"{about.st_ino}.{about.st_mtime_ns}"
                yield Dropped(path, tag, hashlib.sha256(data).hexdigest(), receipt)

    def refuse(self, path: Path, why: str) -> None:
        """Answer that a file is not recorded, and remove it."""
        self.answer(path.name, {"refused": f"{path.name} {why}"})
        path.unlink(missing_ok=True)

    def answer(self, name: str, said: dict[str, Any]) -> None:
        """Write the answer for a dropped file."""
        part = self.done / f".{name}.part"
        part.write_text(json.dumps(said) + "\n", encoding="utf-8")
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
