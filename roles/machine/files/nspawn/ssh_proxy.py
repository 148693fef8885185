"""SSH ProxyCommand: open a TCP connection from inside a lab's namespace `ctl` and hand the socket to ssh.

Usage: ssh_proxy.py LAB_ID MACHINE, with `ProxyUseFdpass yes`. Stands alone: run from any directory, with -S.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from pathlib import Path

ADDRESSES = {"pve": ("192.168.50.2", 22)}
TIMEOUT = 5.0
CLONE_NEWNET = 0x40000000


def connect(lab_id: str, machine: str) -> socket.socket:
    """A connection to the machine's sshd, made inside the lab's `ctl` namespace. Raises OSError."""
    with Path(f"/run/netns/{lab_id}-ctl").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            connection = socket.create_connection(ADDRESSES[machine], timeout=1.0)
        except OSError:  # it may be booting: asking again here is cheaper than an ssh of its own each time
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
            continue
        connection.setblocking(True)
        return connection


def main() -> int:
    """Connect, pass the socket over standard output, exit."""
    if len(sys.argv) != 3 or sys.argv[2] not in ADDRESSES:
        print(f"ssh_proxy: usage: ssh_proxy.py LAB_ID {'|'.join(ADDRESSES)}", file=sys.stderr)
        return 2
    try:
        connection = connect(sys.argv[1], sys.argv[2])
    except OSError as error:
        up = f"make demo LAB_ID={sys.argv[1]}"
        print(f"ssh_proxy: {sys.argv[2]} of lab {sys.argv[1]}: {error}: is the lab up ({up})?", file=sys.stderr)
        return 1
    with socket.socket(fileno=os.dup(sys.stdout.fileno())) as to_ssh:
        socket.send_fds(to_ssh, [b"\0"], [connection.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
