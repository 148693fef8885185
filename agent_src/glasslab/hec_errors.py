"""Why a commit was not acknowledged: what the HEC said or what became of the connection, as cause and remedy."""

from __future__ import annotations

import errno
import socket
from typing import Final

import requests

REMEDIES: Final = {
    1: "the token is disabled: enable it in the HEC's inputs.conf, or set another HEC_TOKEN",
    2: "no token arrived: set HEC_TOKEN (HEC_TOKEN_MCP for the tool server)",
    3: "the token is malformed: check HEC_TOKEN (HEC_TOKEN_MCP for the tool server)",
    4: "the token is unknown there: check HEC_TOKEN (HEC_TOKEN_MCP for the tool server)",
    7: "the index does not exist or the token may not write to it: check HEC_INDEX and the token's indexes",
    8: "the server has an internal error: look at its own log",
    9: "the server is busy: try again when its queues are free",
    10: "the token wants indexer acknowledgment: set HEC_ACK=indexed, or turn useACK off",
    14: "acknowledgment is off for the token: set HEC_ACK=accepted, or turn useACK on",
    23: "the server is shutting down: start it again",
}


class LoggingError(Exception):
    """A commit that was not acknowledged: what it would have released must not happen.

    `status` is log_unreachable (no complete answer in time) or log_rejected (an answer that is no acknowledgement).
    """

    def __init__(self, status: str, url: str, cause: str, remedy: str) -> None:
        self.status, self.url, self.cause, self.remedy = status, url, cause, remedy
        word = "rejected" if status == "log_rejected" else "unreachable"
        super().__init__(f"Agent stopped: Splunk HEC {word}: {url}: {cause}; {remedy}")


def late(url: str, deadline: float) -> LoggingError:
    """Return the error of an acknowledgement that did not come within so many seconds."""
    cause = f"no acknowledgement within {deadline:g} s"
    return LoggingError("log_unreachable", url, cause, "check that the log is up, or raise HEC_DEADLINE")


def explained(error: Exception, url: str, deadline: float) -> LoggingError:
    """Turn what requests raised into cause and remedy, without anything that was sent. `deadline` is in seconds."""

    def unreachable(cause: str, remedy: str) -> LoggingError:
        return LoggingError("log_unreachable", url, cause, remedy)

    chain = _innermost(error)
    if isinstance(chain, OSError) and chain.errno in (errno.EMFILE, errno.ENFILE):  # also where a CA file is opened
        return unreachable(str(chain.strerror), "raise the limit of open files (ulimit -n, LimitNOFILE=), or run less")
    if isinstance(error, requests.exceptions.SSLError):
        reason = getattr(chain, "verify_message", "") or getattr(chain, "reason", "") or "TLS handshake failed"
        remedy = "set HEC_CA to the CA file that signed the log's certificate, and use a name that is in it"
        return unreachable(f"TLS: {reason}", remedy)
    if isinstance(error, requests.exceptions.Timeout):
        return late(url, deadline)
    if isinstance(chain, socket.gaierror):
        return unreachable("the host name does not resolve", "check HEC_URL")
    if isinstance(chain, ConnectionRefusedError):
        return unreachable("connection refused", "start the log, or check HEC_URL")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ConnectionError):
        text = chain.strerror if isinstance(chain, OSError) and chain.strerror else "connection closed"
        remedy = "check the log: the events sent last may or may not be in it, and are not sent again"
        return unreachable(f"{text} before the answer was complete", remedy)
    return unreachable(type(error).__name__, "check HEC_URL and the log")


def _innermost(error: BaseException) -> BaseException:
    """Return the error that the others were raised for: by cause, context, or as an argument, as urllib3 nests them."""
    for _ in range(20):
        inner = [error.__cause__, error.__context__, getattr(error, "reason", None), *error.args]
        deeper = next((item for item in inner if isinstance(item, BaseException)), None)
        if deeper is None or (isinstance(error, OSError) and not isinstance(error, requests.RequestException)):
            return error
        error = deeper
    return error
