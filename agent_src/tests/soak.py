"""How many examples a property is tried with: few in every run, many with GLASSLAB_SOAK=1."""

import os
from typing import Final

from hypothesis import settings

SOAK: Final = os.environ.get("GLASSLAB_SOAK") == "1"
MORE: Final = 50


def examples(number: int) -> settings:
    """The settings of a property that takes this many examples, and MORE times as many in a soak."""
    return settings(max_examples=number * (MORE if SOAK else 1), deadline=None)
