"""Reading the log back: one POST with one fixed search, directly or through an SSH forward that ends with it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from glasslab.queries import EXPORT_PATH, session_search, sessions_search, since_search

DEADLINE: Final = 30.0
FORWARD_DEADLINE: Final = 10.0
RESULT_LIMIT: Final = 256 * 1024 * 1024
TIME_FORMATS: Final = ("%Y-%m-%d %H:%M:%S.%f UTC", "%Y-%m-%d %H:%M:%S UTC")


class SearchError(Exception):
    """The log could not be read; the text is one line naming URL, cause and remedy."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as the log gives it back: `time` in epoch seconds, `event` the parsed JSON ({} when it is none)."""

    time: float
    sourcetype: str
    source: str
    index: str
    raw: str
    event: dict[str, Any]


class Search:
    """Reads sessions from Splunk, or from the collector, at its management port."""

    def __init__(
        self,
        url: str,
        token: str,
        ca: Path | None = None,
        ssh: Sequence[str] | None = None,
        *,
        index: str = "agents",
        deadline: float = DEADLINE,
    ) -> None:
        """Keep where and how to ask.

        `url` is https://HOST:8089; `ca` verifies its certificate (None: public CAs); `ssh` are the ssh arguments of a
        machine that reaches HOST (then 127.0.0.1 has to be in the certificate); `deadline` is in seconds.
        """
        self.url, self.index, self.deadline = url.rstrip("/"), index, deadline
        self._token = token
        self._verify: str | bool = str(ca) if ca else True
        self._ssh = list(ssh) if ssh else None

    def events(self, session_id: str) -> list[StoredEvent]:
        """Return a session's events in order of time; none when the log does not know it.

        Raises SearchError, also for a text that cannot be a session id.
        """
        try:
            text = session_search(session_id, self.index)
        except ValueError as error:
            raise SearchError(str(error)) from None
        return self._search(text)

    def sessions(self) -> list[StoredEvent]:
        """Return the start and end events of all sessions in order of time. Raises SearchError."""
        return self._search(sessions_search(self.index))

    def since_all(self, earliest: Mapping[str, float]) -> list[list[StoredEvent]]:
        """Return, for each of some of queries.SINCE_SOURCETYPES, all events from its time (epoch seconds) on, in order.

        Raises SearchError.
        """
        texts = [since_search(sourcetype, int(since), self.index) for sourcetype, since in earliest.items()]
        with self._way() as base:
            return [self._export(base, text) for text in texts]

    def _search(self, text: str) -> list[StoredEvent]:
        with self._way() as base:
            return self._export(base, text)

    @contextlib.contextmanager
    def _way(self) -> Iterator[str]:
        if self._ssh is None:
            yield self.url
            return
        parts = urlsplit(self.url)
        with forward(self._ssh, parts.hostname or "", parts.port or 443) as port:
            yield f"{parts.scheme}://127.0.0.1:{port}"

    def _export(self, base: str, text: str) -> list[StoredEvent]:
        # In a thread of its own, since requests' timeout is for each read: a log that drips would never reach it.
        # One that is given up ends with its connection or with the process.
        got: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._post, args=(base, text, got), daemon=True).start()
        try:
            result = got.get(timeout=self.deadline)
        except queue.Empty:
            result = requests.Timeout(f"no whole answer within {self.deadline:g} s")
        if isinstance(result, Exception):
            raise SearchError(f"cannot read the log at {self.url}: {_cause(result)}; {_remedy(result)}")
        status, body = result
        if status != 200:
            remedy = "check SPLUNK_TOKEN" if status in (401, 403) else "check SPLUNK_URL"
            raise SearchError(f"the log at {self.url} answered {status} {_message(body)}; {remedy}")
        return parse_export(body, self.url)

    def _post(self, base: str, text: str, got: queue.SimpleQueue[tuple[int, bytes] | Exception]) -> None:
        try:
            with requests.Session() as session:
                session.trust_env = False  # no proxy, no .netrc, no CA bundle from the environment
                session.mount("https://", _Named(urlsplit(self.url).hostname or ""))
                answer = session.post(
                    f"{base}{EXPORT_PATH}",
                    data={"search": text, "output_mode": "json", "preview": "false"},
                    headers={"Authorization": f"Bearer {self._token}"},
                    timeout=self.deadline,
                    verify=self._verify,
                    allow_redirects=False,
                    stream=True,
                )
                body = bytearray()
                for part in answer.iter_content(1024 * 1024):
                    body += part
                    if len(body) > RESULT_LIMIT:
                        raise requests.RequestException(f"the answer is larger than {RESULT_LIMIT} bytes")
                got.put((answer.status_code, bytes(body)))
        except (requests.RequestException, OSError, ValueError) as error:
            got.put(error)


class _Named(HTTPAdapter):
    """Verifies the certificate of the log itself, also where the connection goes to a forward's 127.0.0.1."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pool as requests does, for a peer of that name."""
        super().init_poolmanager(*args, server_hostname=self._name, **kwargs)


def parse_export(body: bytes, url: str) -> list[StoredEvent]:
    """Return the events of an export's lines; `url` is for the error. Raises SearchError when it is no export."""
    events: list[StoredEvent] = []
    for line in body.splitlines():
        try:
            value = json.loads(line) if line.strip() else {}
            # Splunk sends previews of a search that sorts, and messages; neither is a result.
            if value.get("preview") or "result" not in value:
                continue
            result = value["result"]
            events.append(
                StoredEvent(
                    time=parse_time(str(result["_time"])),
                    sourcetype=str(result.get("sourcetype", "")),
                    source=str(result.get("source", "")),
                    index=str(result.get("index", "")),
                    raw=str(result["_raw"]),
                    event=_object(str(result["_raw"])),
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SearchError(f"the log at {url} answered with something that is no export; check SPLUNK_URL") from None
    return events


def parse_time(text: str) -> float:
    """Return epoch seconds from what Splunk writes as _time: epoch, ISO 8601, or `... UTC`. Raises ValueError."""
    with contextlib.suppress(ValueError):
        return float(text)
    for form in TIME_FORMATS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    return datetime.fromisoformat(text).timestamp()


def _object(raw: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _message(body: bytes) -> str:
    try:
        text = str(json.loads(body)["messages"][0]["text"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _cause(error: Exception) -> str:
    text = " ".join(str(error).split())
    for known in ("certificate verify failed", "Connection refused", "timed out", "Name or service not known"):
        if known in text:
            return known
    return text[:200] or type(error).__name__


def _remedy(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError) or "CA certificate" in str(error):
        return "HEC_CA has to be the CA of that certificate"
    return "check SPLUNK_URL, SPLUNK_SSH and that the log is up"


@contextlib.contextmanager
def forward(
    arguments: Sequence[str], host: str, port: int, deadline: float = FORWARD_DEADLINE, *, local: int = 0
) -> Iterator[int]:
    """Forward a port of 127.0.0.1 to host:port through ssh for the time of the block; yield it (`local` 0: a free one).

    `arguments` are what ssh needs to reach the machine in between. Raises SearchError when the forward is not there
    within `deadline` seconds. The ssh process is gone afterwards.
    """
    try:
        with socket.create_server(("127.0.0.1", local)) as probe:
            local = int(probe.getsockname()[1])
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # its own text names the address again
        raise SearchError(f"cannot listen on 127.0.0.1:{local}: {reason}; give another port") from None
    # -S none: a shared connection would keep the forward open after this process has ended.
    options = ["-N", "-T", "-S", "none", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
    command = ["ssh", *options, "-L", f"127.0.0.1:{local}:{host}:{port}", *arguments]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        raise SearchError(f"cannot run ssh: {error.strerror}; install it, or unset SPLUNK_SSH") from None
    try:
        _wait(process, local, time.monotonic() + deadline, shlex.join(arguments))
        yield local
    finally:
        process.terminate()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _wait(process: subprocess.Popen[bytes], port: int, until: float, shown: str) -> None:
    while time.monotonic() < until:
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            last = said.splitlines()[-1] if said else f"exit {process.returncode}"
            raise SearchError(f"ssh {shown} ended: {last}; check SPLUNK_SSH")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise SearchError(f"ssh {shown} opened no forward in time; check SPLUNK_SSH")
