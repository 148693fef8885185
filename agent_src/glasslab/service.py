"""The appliance daemon: `glasslab serve` answers questions on a unix socket, with everything imported and warm.

Protocol, newline-delimited JSON, one question a connection: the client sends `{"question": "..."}` (with `session`,
`prompt` and `resources` beside it: inquiry.inquiry) and reads one
object: `answer`, `status`, `session_id`, `turns`, `usage`, `seconds` as `glasslab ask --json` prints them, and
`problem` (one line, null when answered), `so_far` (what was found without an answer, or null), `trace` (summary or
full), `index`. Any further line of the client's, and a client that closes, cancel the question (status cancelled,
recorded); shutting down the writing half does not. With `"watch": true` in the question, an object with `approval`
comes first for each call that waits for a person. Those who may approve ask in the same way: see desk.answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from glasslab import desk
from glasslab.agent import Agent
from glasslab.approvals import Asked
from glasslab.guardrails import visible_line
from glasslab.inquiry import InquiryError, inquiry
from glasslab.kept_sessions import KeptSessions, NotKept
from glasslab.peers import peer_uid
from glasslab.service_wire import listen, notify, read_request, send
from glasslab.statuses import Result, refused, unasked

STOP_SECONDS: Final = 10.0  # for running questions to record their end
MAX_ASKS: Final = 8  # at once; the others wait for their turn
MAX_CONNECTIONS: Final = 32
MAX_APPROVING: Final = 8  # connections beyond those, for decisions: questions that wait for one must not keep it out


class Service:
    """Accepts questions and gives each a thread of its own; one poll loop sees clients come and go."""

    def __init__(self, agent: Agent, path: Path, approvers: frozenset[int] = frozenset()) -> None:
        """Listen on `path`; `approvers` are the users that may approve calls.

        Raises ServeError when that is not possible, or another service lives there.
        """
        self._agent = agent
        self._path = path
        self._desk = desk.Desk(approvers)
        self._kept = KeptSessions()
        self._listener = listen(path)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._slots = threading.BoundedSemaphore(MAX_ASKS)
        self._clients: dict[int, tuple[socket.socket, threading.Event]] = {}
        self._done: list[int] = []
        self._stopping = self._draining = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; running questions are cancelled and record their end.

        SIGUSR1 ends it too, but only once the questions that run have their answer; new ones are not taken.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._on_signal)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        notify("READY=1")
        watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) // 2000 or None  # milliseconds
        deadline = float("inf")
        while not self._over(deadline):
            events = poll.poll(200 if self._stopping or self._draining else watchdog)
            if watchdog:
                notify("WATCHDOG=1")
            for descriptor, event in events:
                if descriptor == self._listener.fileno():
                    self._accept(poll)
                elif descriptor == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                elif descriptor in self._clients:
                    self._on_client(poll, descriptor, event)
            self._sweep(poll)
            if self._stopping and deadline == float("inf"):
                notify("STOPPING=1")
                deadline = time.monotonic() + STOP_SECONDS
                poll.unregister(self._listener)
                for _, stop in self._clients.values():
                    stop.set()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _over(self, deadline: float) -> bool:
        if self._stopping:
            return not self._clients or time.monotonic() >= deadline
        return self._draining and not self._clients

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._draining = True
        else:
            self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _accept(self, poll: select.poll) -> None:
        try:
            client, _ = self._listener.accept()
            uid = peer_uid(client)
        except OSError:  # it went away again, or no descriptors are left: the next round tries again
            return
        places = MAX_CONNECTIONS + (MAX_APPROVING if self._desk.may_decide(uid) else 0)
        if len(self._clients) >= places:
            send(client, _busy())
            client.close()
            return
        stop, may_ask = threading.Event(), len(self._clients) < MAX_CONNECTIONS
        self._clients[client.fileno()] = (client, stop)
        try:
            how = (poll, client, uid, stop, may_ask)
            threading.Thread(target=self._serve, args=how, name="ask", daemon=True).start()
        except RuntimeError:  # no thread to be had (the unit's TasksMax, memory): this question's matter alone
            send(client, unasked("cancelled", "the service has no thread left for the question; ask again later"))
            self._done.append(client.fileno())

    def _on_client(self, poll: select.poll, descriptor: int, event: int) -> None:
        client, stop = self._clients[descriptor]
        if event & (select.POLLHUP | select.POLLERR):
            poll.unregister(descriptor)
            stop.set()
        elif event & select.POLLIN:
            try:
                cancelled = client.recv(4096) != b""
            except OSError:
                cancelled = True
            if cancelled:
                stop.set()
            poll.modify(descriptor, 0)  # a closed writing half stays readable: only POLLHUP is of interest now

    def _sweep(self, poll: select.poll) -> None:
        """Close the connections whose thread is done; only this loop closes, so that no number is reused too early."""
        while self._done:
            descriptor = self._done.pop()
            with contextlib.suppress(KeyError, OSError):
                poll.unregister(descriptor)
            client, _ = self._clients.pop(descriptor)
            client.close()

    def _serve(self, poll: select.poll, client: socket.socket, uid: int, stop: threading.Event, may_ask: bool) -> None:
        try:
            request, more = read_request(client)
            if request is None:
                return
            if more:
                stop.set()
            told = request if "status" in request else desk.answer(self._desk, uid, request)
            if told is None and not may_ask:
                told = _busy()
            elif told is None:
                poll.register(client, select.POLLIN)  # from here on a word or a goodbye cancels
                self._wake()
                told = self._answer(request, stop, desk.AtDesk(self._desk, uid, _teller(client, request)))
            send(client, told)
        except Exception as error:  # one connection's failure must not end the service
            print(f"glasslab: connection failed: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            self._done.append(client.fileno())
            self._wake()

    def _answer(self, request: Mapping[str, Any], stop: threading.Event, person: desk.AtDesk) -> Result:
        try:
            asked = inquiry(request)
            before = self._kept.of(person.caller, asked.session) if asked.session is not None else None
        except (InquiryError, NotKept) as error:
            return refused(str(error))
        if asked.problem is not None:
            return refused(asked.problem)
        if self._draining:
            return unasked(
                "cancelled", "the service starts anew when the questions that run are answered; ask again then"
            )
        while not self._slots.acquire(timeout=0.1):
            if stop.is_set():
                return unasked("cancelled", "cancelled before its turn came; nothing was asked")
        try:
            keep = partial(self._kept.keep, person.caller)
            outcome = self._agent.ask(asked.question, stop, None, before, person, asked.attached, keep)
        finally:
            self._slots.release()
        if outcome.problem:
            print(f"glasslab: session {outcome.session_id}: {visible_line(outcome.problem)}", file=sys.stderr)
        settings = self._agent.settings
        return {**dataclasses.asdict(outcome), "trace": settings.lab_trace, "index": settings.hec_index}


def _teller(client: socket.socket, request: Mapping[str, Any]) -> Callable[[Asked], None]:
    """Return what tells a client that watches of a call that waits."""

    def tell(asked: Asked) -> None:
        if request.get("watch") is True:
            send(client, {"approval": desk.described(asked)})

    return tell


def _busy() -> Result:
    return unasked("cancelled", f"the service has {MAX_CONNECTIONS} questions waiting; ask again later")
