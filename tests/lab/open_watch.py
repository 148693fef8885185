"""The kernel's own record of which files under a directory were opened: inotify, printed as names, one a line.

Runs on the agent machine as root: `python3 open_watch.py DIRECTORY`; a line `.` is the directory itself being opened.
"""

import ctypes
import os
import struct
import sys

IN_OPEN = 0x20
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
if fd < 0 or libc.inotify_add_watch(fd, sys.argv[1].encode(), IN_OPEN) < 0:
    sys.exit(f"inotify: {os.strerror(ctypes.get_errno())}")
print(f"ready {os.getpid()}", flush=True)
while True:
    data = os.read(fd, 65536)
    at = 0
    while at < len(data):
        _, _, _, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode(errors="replace")
        print(name or ".", flush=True)
        at += 16 + length
