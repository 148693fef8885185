"""scripts/ is no package: its module `lab` is found from here, as is what the tests in tests/nspawn share."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.append(str(ROOT / "tests" / "nspawn"))
