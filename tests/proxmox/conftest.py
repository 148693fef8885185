"""tests/ and the roles' plugins are no packages: what is shared is found by its folder."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/proxmox", "roles/machine/filter_plugins"):
    sys.path.append(str(ROOT / folder))
