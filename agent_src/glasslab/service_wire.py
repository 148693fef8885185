"""The service's socket, and the lines of JSON on it: one in, what is said on the way, one out."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from glasslab.statuses import refused

MAX_LINE: Final = 262_144
REQUEST_SECONDS: Final = 10.0  # a client that connects and says nothing is let go
BACKLOG: Final = 32


class ServeError(ValueError):
    """The service cannot start; the text is one line with the remedy."""


def listen(path: Path) -> socket.socket:
    """Return a listening socket that owner and group may use. Raises ServeError, also when another service is there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            try:
                listener.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()  # left behind by a service that is gone
            else:
                raise ServeError(f"another service answers on {path}; stop it, or give another --socket")
            listener.close()
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(f"cannot listen on {path}: {error.strerror or error}; give another --socket") from None
    except ServeError:
        listener.close()
        raise
    return listener


def read_request(client: socket.socket) -> tuple[dict[str, Any] | None, bool]:
    """Return what is asked, the result that refuses what came instead, or None when the client went away.

    The second value tells whether more came with it: a further line cancels, however soon it is sent.
    """
    client.settimeout(REQUEST_SECONDS)
    data = b""
    deadline = time.monotonic() + REQUEST_SECONDS
    while b"\n" not in data:
        try:
            chunk = client.recv(65_536)
        except TimeoutError:
            return refused(f"no question within {REQUEST_SECONDS:g} s; send one line of JSON"), False
        except OSError:
            return None, False
        data += chunk
        if not chunk:
            break
        if len(data) > MAX_LINE or time.monotonic() > deadline:
            return refused(f"the request is longer than {MAX_LINE} bytes, or too slow; send one line of JSON"), False
    if not data:
        return None, False
    line, _, rest = data.partition(b"\n")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if isinstance(request, dict) and "status" not in request and _asks(request):
        return request, bool(rest.strip())
    return refused('not understood; send {"question": "..."} and a newline'), False


def _asks(request: Mapping[str, Any]) -> bool:
    texts = any(isinstance(request.get(word), str) for word in ("question", "approve", "deny"))
    # A prompt may stand without a question.
    return texts or request.get("approvals") is True or isinstance(request.get("prompt"), dict)


def send(client: socket.socket, result: Mapping[str, Any]) -> None:
    """Send one line. Never raises."""
    with contextlib.suppress(OSError):  # the client is gone; the session is on record all the same
        client.settimeout(REQUEST_SECONDS)
        client.sendall(json.dumps(result).encode() + b"\n")


def notify(state: str) -> None:
    """Tell systemd the state, when it asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)  # a manager that does not read must not stop the service
        channel.sendto(state.encode(), address)
