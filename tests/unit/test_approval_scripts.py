"""make approvals, approve, deny, and that make ask shows at once what waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_scripts import SCRIPTS, one_line, run

# In the place of SSH: like it, it hands the words to a shell as one text.
FAKE = "import lab, sys; lab.need_lab = lambda: None; lab.agents_glasslab = lambda *words: ['sh', '-c', {shell}]; "


def script(shell: str, name: str, *words: str) -> str:
    return FAKE.format(shell=shell) + f"import {name}; sys.argv[1:] = {list(words)!r}; lab.run({name}.main)"


@pytest.mark.parametrize("id_", ["", "x", "0123456789ab; id", "0123456789AB", "-x"])
@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_an_id_that_is_none_is_one_clear_line(verb: str, id_: str, tmp_path: Path) -> None:
    line = one_line(run(script("'echo'", "approvals", verb), tmp_path, ID=id_))
    assert "`make approvals` lists them" in line


def test_what_the_machine_says_is_shown_and_its_exit_is_the_scripts(tmp_path: Path) -> None:
    done = run(script(r"'printf \"a\\033[2Jb\\n\"; echo no >&2; exit 1'", "approvals", "approvals"), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "a\\x1b[2Jb\n", "no\n")


def test_a_reason_arrives_as_it_was_typed(tmp_path: Path) -> None:
    why = f"not to them; touch {tmp_path}/never; $(touch {tmp_path}/never) 'x' \"y\""
    shell = "'printf \"%s\\\\n\" ' + ' '.join(words)"
    done = run(script(shell, "approvals", "deny"), tmp_path, ID="0123456789ab", WHY=why)
    assert done.stdout.splitlines() == ["deny", "0123456789ab", "--why", why]
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_waits_is_shown_while_it_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "decided")
    shell = f"'cat > /dev/null; echo it waits >&2; cat {tmp_path}/decided; echo later >&2'"
    asking = subprocess.Popen(
        [sys.executable, "-c", script(shell, "ask")],
        cwd=SCRIPTS, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "QUESTION": "x", "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert asking.stderr is not None
    assert asking.stderr.readline() == "it waits\n", "before anything was decided"
    (tmp_path / "decided").write_text("The answer.\n")
    out, err = asking.communicate(timeout=30)
    assert (asking.returncode, out, err) == (0, "The answer.\n", "later\n")
