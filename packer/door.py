"""One connection of an emulated machine to a port of loopback: what QEMU's guestfwd starts. Usage: door.py PORT"""

import os
import socket
import sys
import threading

SIZE = 1 << 16


def pump(source: int, target: int) -> None:
    """Copy until the source ends."""
    while data := os.read(source, SIZE):
        while data:
            data = data[os.write(target, data) :]


outside = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
back = threading.Thread(target=pump, args=(outside.fileno(), 1))
back.start()
pump(0, outside.fileno())
outside.shutdown(socket.SHUT_WR)
back.join()
