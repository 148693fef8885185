"""Somebody swaps files and folders for links to a secret, as fast as it goes, while documents are read."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glasslab.servers.sandbox import RefusedError, Sandbox
from tool_servers import eventually

SECRET = "the secret beside the documents"
READS = 50_000 if os.environ.get("GLASSLAB_SOAK") == "1" else 3_000  # in all of the attacks together
# What is swapped for what: `parked` is free, `there` is what a reader asks for, `evil` leads to the secret.
SWAPS = {
    "a folder for a link": ("docs/parked", "docs/sub", "docs/evil-folder"),
    "a file for a link": ("docs/sub/parked", "docs/sub/deep.md", "docs/sub/evil-file"),
    "a file for the secret's other name": ("docs/sub/parked", "docs/sub/deep.md", "docs/sub/evil-name"),
    "the folder of documents itself": ("parked", "docs", "evil-docs"),
}
# A process of its own: a thread would only swap where the reader lets go of the interpreter.
ATTACKER = """
import os, sys
parked, there, evil = sys.argv[1:]
os.write(1, b"ready\\n")
while True:
    os.rename(there, parked); os.rename(evil, there); os.rename(there, evil); os.rename(parked, there)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`docs/sub/deep.md`, a secret that is called the same beside it, and links to it from within."""
    secret = tmp_path / "secret" / "sub"
    secret.mkdir(parents=True)
    (secret / "deep.md").write_text(SECRET)
    docs = tmp_path / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "sub" / "deep.md").write_text("deeper")
    (docs / "evil-folder").symlink_to(secret)
    (docs / "sub" / "evil-file").symlink_to(secret / "deep.md")
    (tmp_path / "another.md").write_text(SECRET)  # one of its own: two names alone would have the other attacks refused
    os.link(tmp_path / "another.md", docs / "sub" / "evil-name")
    (tmp_path / "evil-docs").symlink_to(tmp_path / "secret")
    return tmp_path


@contextmanager
def under_attack(place: Path, swap: str) -> Iterator[None]:
    paths = [str(place / path) for path in SWAPS[swap]]
    attacker = subprocess.Popen([sys.executable, "-c", ATTACKER, *paths], stdout=subprocess.PIPE)
    try:
        assert attacker.stdout
        assert attacker.stdout.readline() == b"ready\n"
        yield
        assert attacker.poll() is None, "the attacker has to run to the end for the test to mean anything"
    finally:
        attacker.kill()
        attacker.communicate()


def outcomes(read: Callable[[], str], times: int) -> Counter[str]:
    texts: Counter[str] = Counter()
    for _ in range(times):
        try:
            texts[read()] += 1
        except (RefusedError, OSError) as error:
            texts[getattr(error, "reason", "") or "missing"] += 1
    return texts


@pytest.mark.parametrize("swap", SWAPS)
def test_no_swap_ever_leaks(place: Path, swap: str) -> None:
    box = Sandbox(place / "docs")

    def read() -> str:
        box.check("sub/deep.md")  # as the server does: it is for the record, and the opening never uses it
        return box.read("sub/deep.md").text

    texts: Counter[str] = Counter()
    # The open folder stays the documents, whatever its name leads to; everywhere else a swap is met and refused.
    kinds = 1 if swap == "the folder of documents itself" else 2

    def met() -> bool:
        texts.update(outcomes(read, READS // len(SWAPS)))
        return texts["deeper"] > 0 and len(texts) >= kinds

    with under_attack(place, swap):
        assert eventually(met, seconds=60), "the reader has to meet both for the test to mean anything"
    box.close()
    assert SECRET not in texts


@pytest.mark.parametrize("swap", [swap for swap in SWAPS if "name" not in swap])
def test_whoever_resolves_first_and_opens_then_leaks(place: Path, swap: str) -> None:
    """The control: the same attacks get through to a reader that looks where a path leads and then opens it."""
    root = place / "docs"

    def read() -> str:
        if os.path.realpath(root / "sub/deep.md") != str(root / "sub/deep.md"):
            return "refused"
        return (root / "sub/deep.md").read_text()

    texts: Counter[str] = Counter()

    def leaked() -> bool:
        texts.update(outcomes(read, 200))
        return texts[SECRET] > 0

    with under_attack(place, swap):
        assert eventually(leaked, seconds=30)


def test_a_listing_never_shows_what_lies_elsewhere(place: Path) -> None:
    (place / "secret" / "sub" / "only-in-the-secret.md").write_text(SECRET)
    box = Sandbox(place / "docs")
    seen: Counter[str] = Counter()

    def met() -> bool:
        for _ in range(READS // 10):
            seen.update(box.list_files().files)
        return seen["sub/deep.md"] > 0

    with under_attack(place, "a folder for a link"):
        assert eventually(met, seconds=60)
    box.close()
    assert not [name for name in seen if "only-in-the-secret" in name]
