"""scripts/ and tests/lab are no packages: what is shared is found by its folder."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))
