"""The kernel's own record of which files of a directory were opened, and when it was listed: inotify, a line each.

Runs on the agent machine as root: `python3 open_watch.py DIRECTORY`; a file's name for its opening, `.` for a
reading of the directory itself.
"""

import ctypes
import os
import struct
import sys

IN_ACCESS, IN_OPEN = 0x1, 0x20
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
if fd < 0 or libc.inotify_add_watch(fd, sys.argv[1].encode(), IN_OPEN | IN_ACCESS) < 0:
    sys.exit(f"inotify: {os.strerror(ctypes.get_errno())}")
print(f"ready {os.getpid()}", flush=True)
while True:
    data = os.read(fd, 65536)
    at = 0
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode(errors="replace")
        if name and mask & IN_OPEN:
            print(name, flush=True)
        elif not name and mask & IN_ACCESS:
            print(".", flush=True)
        at += 16 + length
