"""Keeping a process's memory from its neighbours. Used by every program of the package."""

import ctypes
import resource
from typing import Final

PR_SET_DUMPABLE: Final = 4


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def protect() -> None:
    """Keep the process's memory and environment, with the secrets in it, from others of the same user.

    Among those are the tool servers that a checkout's ask, pin and doctor start: call it before any is started. Nor is
    a core dumped when the process, or one that it starts, crashes. Root's processes can read everything all the same.
    """
    prctl(PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
