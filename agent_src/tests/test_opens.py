"""What the tests take as the record of opened files: their own programs' openings, and nobody else's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opens import AnybodysOpens, Opens, OwnOpens, opens_in

READS = "import sys; open(sys.argv[1]).close()"
# Its parent is gone when it reads, and it lives until its stdin ends.
ORPHAN = """
import os, sys, time
if os.fork():
    sys.exit()
while os.getppid() == int(sys.argv[2]):
    time.sleep(0.01)
open(sys.argv[1]).close()
print("read", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.md", "b.md"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def opens(folder: Path) -> Iterator[Opens]:
    found = opens_in(folder)
    yield found
    found.close()


def orphan_reads(file: Path, opens: Opens, environment: dict[str, str]) -> list[str]:
    code = f"import os, sys; sys.argv.append(str(os.getpid())); exec({ORPHAN!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"read\n"
        return opens.names()


def test_an_opening_of_this_process_and_of_its_programs_is_told(folder: Path, opens: Opens) -> None:
    (folder / "b.md").read_bytes()
    subprocess.run([sys.executable, "-c", READS, folder / "a.md"], check=True)
    assert opens.names() == ["b.md", "a.md"]
    assert opens.names() == []


def test_so_is_one_of_a_program_whose_parent_is_gone(folder: Path, opens: Opens) -> None:
    assert orphan_reads(folder / "a.md", opens, {**os.environ, "LAB_DOCUMENTS": str(folder)}) == ["a.md"]


def test_one_of_somebody_else_is_left_out_where_the_kernel_says_whose_it_is(folder: Path, opens: Opens) -> None:
    told = orphan_reads(folder / "a.md", opens, {})
    assert (type(opens), told) in ((OwnOpens, []), (AnybodysOpens, ["a.md"]))


def test_whoever_opens_the_kernel_without_whose_it_is_tells_of_it(folder: Path) -> None:
    opens = AnybodysOpens(folder)
    assert orphan_reads(folder / "a.md", opens, {}) == ["a.md"]
    (folder / "b.md").read_bytes()
    assert [*opens.names(), *opens.names()] == ["b.md"]
    opens.close()
