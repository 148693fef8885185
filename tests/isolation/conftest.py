"""What the isolation tests share with the lab's and the backend's tests lies in those tests' folders."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("scripts", "tests/lab", "tests/nspawn"):
    sys.path.append(str(ROOT / folder))
