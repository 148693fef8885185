"""Who is at the other end of a unix socket."""

from __future__ import annotations

import socket
import struct
from pathlib import Path


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the process that connected, as the kernel saw it then. Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def nobodys_id() -> int:
    """Return the user id that the kernel shows in place of one that it cannot name (of another user namespace)."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534
