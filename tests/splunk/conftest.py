"""scripts/ is no package: its module `lab` is found from here, as is what the tests of the lab share."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests" / "lab")]
