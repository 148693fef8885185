"""The embedded lab's program is no package: it is found by its folder, after everything else that is called alike."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "roles/machine/files/nspawn"))
sys.path.append(str(Path(__file__).resolve().parent))
