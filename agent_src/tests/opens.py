"""The kernel's own word on which files of a folder were opened, and by whom."""

import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from typing import Protocol

IN_OPEN = 0x20
IN_ISDIR = 0x40000000
FAN_CLOEXEC, FAN_CLASS_CONTENT, FAN_MARK_ADD = 0x1, 0x4, 0x1
FAN_OPEN_PERM, FAN_EVENT_ON_CHILD = 0x10000, 0x08000000
FAN_ALLOW = 0x1
AT_FDCWD = -100
SETTLED_SECONDS = 0.02


class Opens(Protocol):
    """What was opened in a folder."""

    def names(self) -> list[str]:
        """The files opened since the last call, each once, in order."""

    def close(self) -> None:
        """Listen no more."""


def opens_in(folder: Path) -> Opens:
    """Others read files too: a search, an indexing service. Only root is told by whom, and can leave them out."""
    return OwnOpens(folder) if os.geteuid() == 0 else AnybodysOpens(folder)


class OwnOpens:
    """What this process, and those that it has started, have opened (fanotify).

    An opening waits for our word on it: who opens is certainly still there to be looked at.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[str] = []
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.fanotify_init(FAN_CLOEXEC | FAN_CLASS_CONTENT, os.O_RDONLY | os.O_CLOEXEC)
        mark = ctypes.c_uint64(FAN_OPEN_PERM | FAN_EVENT_ON_CHILD)
        done = libc.fanotify_mark(self._descriptor, FAN_MARK_ADD, mark, AT_FDCWD, os.fsencode(folder))
        assert done >= 0, os.strerror(ctypes.get_errno())
        self._until, self._end = os.pipe()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def names(self) -> list[str]:
        """The files opened since the last call, each once, in order."""
        found, self._found = self._found, []
        return list(dict.fromkeys(found))

    def _listen(self) -> None:
        while self._until not in select.select([self._descriptor, self._until], [], [])[0]:
            data = os.read(self._descriptor, 65_536)
            while data:
                length, _, _, _, _, file, pid = struct.unpack_from("=IBBHQii", data)
                if not self._is_of_others(pid):
                    self._found.append(Path(f"/proc/self/fd/{file}").readlink().name)
                os.write(self._descriptor, struct.pack("=iI", file, FAN_ALLOW))
                os.close(file)
                data = data[length:]

    def _is_of_others(self, pid: int) -> bool:
        """Whether a process has neither this one above it nor the folder in its environment; False: unknown."""
        try:
            if os.fsencode(self._folder) in Path(f"/proc/{pid}/environ").read_bytes():
                return False
            while pid > 1 and pid != os.getpid():
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        return pid != os.getpid()

    def close(self) -> None:
        """Listen no more; an opening that waits goes on."""
        os.write(self._end, b"x")
        self._listener.join()
        for one in (self._descriptor, self._until, self._end):
            os.close(one)


class AnybodysOpens:
    """What anybody has opened (inotify)."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_OPEN) >= 0

    def names(self) -> list[str]:
        """The files opened since the last call, each once, in order."""
        found: list[str] = []
        while select.select([self._descriptor], [], [], SETTLED_SECONDS)[0]:
            data = os.read(self._descriptor, 65_536)
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                name = data[16 : 16 + length].rstrip(b"\0").decode()
                if name and not mask & IN_ISDIR and name not in found:  # else the folder itself
                    found.append(name)
                data = data[16 + length :]
        return found

    def close(self) -> None:
        """Listen no more."""
        os.close(self._descriptor)
