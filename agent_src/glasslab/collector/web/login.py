"""Who may look: somebody with the search token, by a bearer header or by a cookie that a login gave for an hour."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final

COOKIE: Final = "__Host-glasslab"
SECONDS: Final = 3600.0
MOST_LOGINS: Final = 100
MOST_FAILURES: Final = 10  # of one address in FAILURE_SECONDS
FAILURE_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 1000


class Logins:
    """The logins of the last hour. A restart ends them all."""

    def __init__(self, tokens: Iterable[str]) -> None:
        """Keep the tokens that may look."""
        self._tokens = [token.encode() for token in tokens]
        self._lock = threading.Lock()
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def known(self, token: str) -> bool:
        """Return whether a token may look; every one is compared, in constant time."""
        given = token.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(given, known) for known in self._tokens]
        return any(matches)

    def blocked(self, address: str) -> bool:
        """Return whether an address has failed so often that it has to wait."""
        with self._lock:
            failures = self._failures.get(address, ())
            return sum(moment > time.monotonic() - FAILURE_SECONDS for moment in failures) >= MOST_FAILURES

    def failed(self, address: str) -> None:
        """Count a failure of an address."""
        with self._lock:
            self._failures.setdefault(address, deque(maxlen=MOST_FAILURES)).append(time.monotonic())
            self._failures.move_to_end(address)
            if len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def begin(self) -> str:
        """Return the Set-Cookie header of a new login."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            self._until[_hashed(value)] = time.monotonic() + SECONDS
            if len(self._until) > MOST_LOGINS:
                self._until.popitem(last=False)
        return _cookie(value, int(SECONDS))

    def end(self, header: str | None) -> str:
        """Forget the login of a Cookie header; return the Set-Cookie header that removes it."""
        with self._lock:
            self._until.pop(_hashed(_value(header)), None)
        return _cookie("", 0)

    def holds(self, header: str | None) -> bool:
        """Return whether a Cookie header has a login that has not ended."""
        with self._lock:
            return self._until.get(_hashed(_value(header)), 0.0) > time.monotonic()


def _hashed(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()


def _cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict"


def _value(header: str | None) -> str:
    try:
        found = SimpleCookie(header or "").get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
