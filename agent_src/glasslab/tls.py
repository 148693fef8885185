"""The TLS side of the connections that are opened: verified, and the CAs read once."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path


def client_context(ca: Path | None) -> ssl.SSLContext:
    """Return what verifies servers against a CA file, or the machine's public CAs (None). Raises OSError, SSLError.

    Reading the machine's CAs takes longer than a handshake, so contexts are shared; a file that was replaced is read.
    """
    return _context(None, 0) if ca is None else _context(str(ca), ca.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _context(ca: str | None, modified: int) -> ssl.SSLContext:  # modified: part of the key alone
    return ssl.create_default_context(cafile=ca)
