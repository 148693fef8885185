"""The machine's own tools and settings: commands that end or fail with a clear line, and sysctls."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from collections.abc import Sequence

SYSCTL = pathlib.Path("/proc/sys")
# Seconds a tool may take. The watcher takes fewer, for it has to answer systemd's watchdog meanwhile.
patience = 20.0


class Failure(Exception):
    """A rule, tool or setting that stopped us; the text names it and the remedy."""


def run(*command: str, text: str | None = None) -> str:
    """Output of a command; Failure with its own words when it fails or cannot be run."""
    return run_together([(command, text)])[0]


def run_together(jobs: Sequence[tuple[Sequence[str], str | None]]) -> list[str]:
    """Outputs of commands that run side by side, each with its text on standard input; Failure names what failed."""
    until = time.monotonic() + patience
    started: list[subprocess.Popen[str] | str] = [_start(command, text) for command, text in jobs]
    outputs, failures = [], []
    for (command, _), process in zip(jobs, started, strict=True):
        if isinstance(process, str):
            failures.append(process)
            continue
        try:
            out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            failures.append(
                f"{command[0]} did not end within {patience:.0f} s: is another program holding the xtables lock?"
            )
            continue
        if process.returncode:
            said = " ".join((err or out).split())[:300] or f"exit {process.returncode}"
            failures.append(f"`{' '.join(command)}` failed: {said}")
        outputs.append(out)
    if failures:
        raise Failure("; ".join(failures))
    return outputs


def _start(command: Sequence[str], text: str | None) -> subprocess.Popen[str] | str:
    """The started process, or what stopped it from starting."""
    # A file in memory, not a pipe: nobody has to feed several processes at once. Other people's rules may be in any
    # encoding; what they say is none of our business.
    about = {"encoding": "utf-8", "errors": "surrogateescape"}
    with open(os.memfd_create("input"), "w+", **about) as source:  # noqa: PTH123 (a descriptor, no path)
        source.write(text or "")
        source.flush()
        source.seek(0)
        try:
            return subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **about)
        except OSError as error:
            return f"{command[0]} cannot be run ({error.strerror}): install or repair it"


def sysctl(path: str) -> str | None:
    """Value of a setting named by its path below /proc/sys; None when there is none."""
    try:
        return (SYSCTL / path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def set_sysctl(path: str, value: str) -> None:
    """Write only what differs: writing ip_forward resets the forwarding and accept_redirects of every interface."""
    if sysctl(path) == value:
        return
    try:
        (SYSCTL / path).write_text(value, encoding="ascii")
    except OSError as error:
        raise Failure(f"sysctl {path.replace('/', '.')}={value} refused ({error.strerror})") from error
