"""What rotates from run to run: GLASSLAB_FAULT_SEED, by default the time. It is printed, and given it repeats a run."""

from __future__ import annotations

import os
import time

SEED = int(os.environ.get("GLASSLAB_FAULT_SEED", "") or int(time.time()) % 10000)
# The long form of these tests.
SOAK = bool(os.environ.get("GLASSLAB_SOAK"))
