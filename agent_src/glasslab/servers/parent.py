"""A preloaded parent that forks a child per session, with spare children waiting on the socket.

Spares wait in `accept` on the shared listening socket; the kernel hands each connection to one of them. A child that
got a connection says so on a pipe, and the parent forks the next spare. The parent itself never touches a connection,
runs no thread and imports nothing after the first fork.
"""

import contextlib
import copy
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Final, NoReturn

from glasslab.peers import peer_uid
from glasslab.recorder import Recorder
from glasslab.servers import process
from glasslab.servers.files import FilesServer

_FIRST_SYSTEMD_FD: Final = 3
_STOP_GRACE: Final = 5.0  # seconds for children to end after SIGTERM
_WARM_SECONDS: Final = 2.0
_RETRY: Final = 1.0  # seconds until a fork that failed is tried again
_MAX_EARLY_DEATHS: Final = 5  # forks that fail, and spares that end without a connection, one after the other


class SocketError(Exception):
    """The socket to listen on cannot be had; one line, fit for the user."""


def listening_socket(path: Path | None) -> socket.socket:
    """Return the listening socket: made at `path` (mode 0660), or the one that systemd passed. Raises SocketError."""
    if path is None:
        if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
            raise SocketError("systemd passed no socket: give --stdio or --socket PATH, or start the socket unit")
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            os.environ.pop(name, None)
        listener = socket.socket(fileno=_FIRST_SYSTEMD_FD)
        if listener.family != socket.AF_UNIX or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise SocketError("systemd passed no listening unix socket: use ListenStream= with Accept=no")
        listener.set_inheritable(False)
        listener.setblocking(True)
        return listener
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()  # left behind by a server that was killed
        before = os.umask(0o117)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise SocketError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def notify(state: str) -> None:
    """Tell systemd (`READY=1`, `STOPPING=1`); does nothing when it did not ask."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
        channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


class Parent:
    """The parent process; `run` returns when it was told to stop."""

    def __init__(
        self,
        listener: socket.socket,
        documents: Path,
        recorder: Recorder,
        *,
        allowed: set[int],
        spares: int,
        children: int,
        idle: int,
    ) -> None:
        """`allowed` are the user ids that may connect; `children` bounds sessions and spares together."""
        self._listener = listener
        self._documents = documents
        self._recorder = recorder
        # Built once, used by every child for its one session: building it takes longer than serving a call.
        self._server = FilesServer(documents, recorder.open)
        self._allowed = allowed
        self._spares = min(spares, children)
        self._children = children
        self._idle = idle
        self._waiting: set[int] = set()
        self._serving: set[int] = set()
        self._early_deaths = 0
        self._stopping = False
        self._taken_read, self._taken_write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit status."""
        for descriptor in (self._taken_read, self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        process.warm_up(self._documents)
        self._warm_log()
        gc.collect()
        gc.freeze()  # what is loaded by now stays in pages that parent and children share
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._fork_spares()
        notify("READY=1")
        try:
            while not self._stopping:
                select.select([self._taken_read, self._wake_read], [], [], _RETRY if self._lacks_spares() else None)
                self._drain()
                self._reap()
                if self._early_deaths >= _MAX_EARLY_DEATHS:
                    print("glasslab-mcp: children end before they serve; giving up", file=sys.stderr)
                    return 1
                self._fork_spares()
        finally:
            notify("STOPPING=1")
            self._end_children()
        return 0

    def _warm_log(self) -> None:
        """Load what a first TLS connection loads, then leave neither connection nor thread behind for the forks."""
        quick = copy.copy(self._recorder.hec)
        quick.deadline = min(quick.deadline, _WARM_SECONDS)  # a log that is down is for the sessions to say
        recorder = Recorder(quick, self._recorder.component)
        recorder.warm()
        recorder.close()
        deadline = time.monotonic() + 1
        while threading.active_count() > 1 and time.monotonic() < deadline:
            time.sleep(0.001)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._taken_read, 4096)  # writes of four bytes are atomic, so no number is ever torn
            for (pid,) in struct.iter_unpack("=i", data):
                self._early_deaths = 0
                if pid in self._waiting:
                    self._waiting.remove(pid)
                    self._serving.add(pid)

    def _reap(self) -> None:
        for pid in [*self._waiting, *self._serving]:  # by number: only what this parent itself forked
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            if pid in self._waiting:
                self._early_deaths += 1
            self._waiting.discard(pid)
            self._serving.discard(pid)

    def _lacks_spares(self) -> bool:
        serving_or_spare = len(self._waiting) + len(self._serving)
        return not self._stopping and len(self._waiting) < self._spares and serving_or_spare < self._children

    def _fork_spares(self) -> None:
        parent = os.getpid()
        while self._lacks_spares():
            try:
                pid = os.fork()
            except OSError as error:  # no memory, or the unit's TasksMax: sessions end, and it is tried again then
                print(f"glasslab-mcp: cannot fork: {error.strerror}", file=sys.stderr)
                self._early_deaths += 1
                return
            if pid == 0:
                self._child(parent)
            self._waiting.add(pid)

    def _end_children(self) -> None:
        self._listener.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in [*self._waiting, *self._serving]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + _STOP_GRACE
            while (self._waiting or self._serving) and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.005)

    def _child(self, parent: int) -> NoReturn:
        """Wait for a connection that may be served, then serve it; never returns."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            process.die_with_parent(parent)
            for descriptor in (self._taken_read, self._wake_read, self._wake_write):
                os.close(descriptor)
            connection = self._accept()
            os.write(self._taken_write, struct.pack("=i", os.getpid()))
            os.close(self._taken_write)
            self._listener.close()
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            connection.close()
            # The parent's objects may be closed or at their end; these are the connection.
            sys.stdin = os.fdopen(0, "r", closefd=False)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            process.serve_stdio(self._server, idle=self._idle)
        except BaseException as error:
            print(f"glasslab-mcp: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(1)

    def _accept(self) -> socket.socket:
        while True:
            connection, _ = self._listener.accept()
            uid = peer_uid(connection)
            if uid in self._allowed:
                return connection
            print(f"glasslab-mcp: a connection of user {uid} was refused; see --allow-uid", file=sys.stderr)
            connection.close()
