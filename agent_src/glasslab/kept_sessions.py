"""The conversations that the service may go on with: its newest ones, in memory, each for who had it.

The agent's machine cannot read the log, so `ask --session` cannot take them from there as it does elsewhere. Nothing is
written: what was said is on record, and a service that starts anew has forgotten it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from glasslab.context import Continued
from glasslab.frames import canonical_json
from glasslab.peers import nobodys_id

MAX_KEPT: Final = 50
MAX_BYTES: Final = 16_000_000


class NotKept(LookupError):
    """A session that this caller cannot go on with here; the text is one line with the remedy."""


class KeptSessions:
    """The newest sessions, at most MAX_KEPT of at most MAX_BYTES. Thread-safe."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[int, Continued, int]] = OrderedDict()
        # Whoever the kernel cannot name might be anybody: what one of them said is not another's to go on with.
        self._nobody = nobodys_id()

    def keep(self, uid: int, ended: Continued) -> None:
        """Keep an ended session's conversation for a user; the oldest ones go when there are too many."""
        size = len(canonical_json(ended.messages))
        if uid == self._nobody or size > MAX_BYTES:
            return
        with self._lock:
            self._kept[ended.session_id] = (uid, ended, size)
            while len(self._kept) > MAX_KEPT or sum(size for _, _, size in self._kept.values()) > MAX_BYTES:
                self._kept.popitem(last=False)

    def of(self, uid: int, session_id: str) -> Continued:
        """Return a session of this user's. Raises NotKept: another user's is as little known as one that never was."""
        with self._lock:
            owner, kept, _ = self._kept.get(session_id, (None, None, 0))
        if kept is None or owner != uid:
            raise NotKept(
                f"session {session_id[:40]!r} is none that this service has answered for user {uid} and still holds "
                f"(the newest {MAX_KEPT}, until it starts anew); ask anew, or from a checkout, which reads the log"
            )
        return kept
