"""The one error a user sees, and how commands are run so that a failure becomes one."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


class LabError(Exception):
    """Something the user can act on: the message is one line naming the thing, its value and the remedy."""


def run(
    argv: Sequence[str], *, stdin: str | None = None, env: Mapping[str, str] | None = None, timeout: float = 60.0
) -> str:
    """Run a command to its end and return its standard output.

    Raises LabError with the command and the last line of its standard error when it fails or does not exist.
    """
    try:
        done = subprocess.run(argv, input=stdin, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    except FileNotFoundError:
        raise LabError(f"command not found: {argv[0]}: install the Debian package that holds it") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"command did not end within {timeout:.0f} seconds: {' '.join(argv)}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LabError(f"command failed: {' '.join(argv)}: {lines[-1]}")
    return done.stdout


def attempt(argv: Sequence[str], timeout: float = 30.0) -> bool:
    """Run a command whose failure is an answer and not an error (removing what may be gone already)."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
