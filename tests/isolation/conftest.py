"""What the isolation tests share with the lab's and the backend's tests lies in those tests' folders."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("scripts", "tests/lab", "tests/nspawn"):
    sys.path.append(str(ROOT / folder))


@pytest.fixture(autouse=True, scope="module")
def _nobody_left_behind() -> Iterator[None]:
    """A process that observes from inside a machine would hold up the machine's reboot in the next room."""
    yield
    if "observing" in sys.modules:
        sys.modules["observing"].close()
