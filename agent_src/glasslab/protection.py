"""Keeping a process's memory from its neighbours. Used by all that hold a secret: ask, serve and the tool servers."""

import ctypes
from typing import Final

PR_SET_DUMPABLE: Final = 4


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def protect() -> None:
    """Keep the process's memory and environment, with the secrets in it, from others of the same user.

    Among those is the tool server that a checkout's ask starts. Also no core is dumped when the process crashes.
    """
    prctl(PR_SET_DUMPABLE, 0)
