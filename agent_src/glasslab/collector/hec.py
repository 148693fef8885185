"""The HTTP Event Collector's protocol as pure functions: who may send, what a body holds, what is answered.

Two of Splunk's traps are kept on purpose, since a client has to live with them: events before a faulty one are indexed
although the answer is an error (partial acceptance), and some faults lose events behind a 200 (see `parse_events`).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from glasslab.collector.config import Token

SAFE_KEYS: Final = frozenset({"time", "host", "source", "sourcetype", "index", "event", "fields"})
PLAIN_DECIMAL: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
END_OF_TIME: Final = 253_402_300_800  # the year 10000, in seconds; dates end there
_SPACE: Final = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: HTTP status, Splunk's code and text, and what else stands in the JSON."""

    status: int
    code: int
    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the answer's JSON."""
        return json.dumps({"text": self.text, "code": self.code, **self.extra}, separators=(",", ":")).encode()

    def at(self, number: int) -> Reply:
        """Return the same answer naming the event (counted from 0) that it is about."""
        return Reply(self.status, self.code, self.text, {"invalid-event-number": number})


SUCCESS: Final = Reply(200, 0, "Success")
TOKEN_DISABLED: Final = Reply(403, 1, "Token disabled")
TOKEN_REQUIRED: Final = Reply(401, 2, "Token is required")
INVALID_AUTHORIZATION: Final = Reply(401, 3, "Invalid authorization")
INVALID_TOKEN: Final = Reply(403, 4, "Invalid token")
NO_DATA: Final = Reply(400, 5, "No data")
INVALID_FORMAT: Final = Reply(400, 6, "Invalid data format")
INCORRECT_INDEX: Final = Reply(400, 7, "Incorrect index")
INTERNAL_ERROR: Final = Reply(500, 8, "Internal server error")
BUSY: Final = Reply(503, 9, "Server is busy")
CHANNEL_MISSING: Final = Reply(400, 10, "Data channel is missing")
CHANNEL_INVALID: Final = Reply(400, 11, "Invalid data channel")
EVENT_REQUIRED: Final = Reply(400, 12, "Event field is required")
EVENT_BLANK: Final = Reply(400, 13, "Event field cannot be blank")
ACK_DISABLED: Final = Reply(400, 14, "ACK is disabled")
INDEXED_FIELDS: Final = Reply(400, 15, "Error in handling indexed fields")
NO_QUERY_AUTHORIZATION: Final = Reply(400, 16, "Query string authorization is not enabled")
HEALTHY: Final = Reply(200, 17, "HEC is healthy")
QUEUES_FULL: Final = Reply(503, 18, "HEC is unhealthy, queues are full")
CLOSING: Final = Reply(503, 23, "Server is shutting down")
QUEUE_NEAR: Final = Reply(200, 24, "HEC is healthy, its queue near capacity")
ACKS_NEAR: Final = Reply(200, 25, "HEC is healthy, an ACK channel near capacity")
ACKS_FULL: Final = Reply(429, 27, "ACK channel at capacity")
NOT_FOUND: Final = Reply(404, 404, "The requested URL was not found on this server.")
NOT_ALLOWED: Final = Reply(405, 405, "Method Not Allowed")


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is stored; `raw` is its text (JSON unless it was sent as a string), `time` in epoch seconds.

    `writer` is the name of the token that it came with, which no client can choose.
    """

    time: float
    host: str
    source: str
    sourcetype: str
    index: str
    raw: str
    session_id: str | None = None
    fields: str | None = None
    writer: str = ""


class BodyError(Exception):
    """A body that cannot be unpacked; `reply` is the answer."""

    def __init__(self, reply: Reply) -> None:
        """Keep the answer."""
        super().__init__(reply.text)
        self.reply = reply


def authorize(header: str | None, query: Mapping[str, str], tokens: Mapping[str, Token]) -> Token | Reply:
    """Return the token that a request came with, or the answer that refuses it."""
    if header is None:
        return NO_QUERY_AUTHORIZATION if "token" in query else TOKEN_REQUIRED
    scheme, _, value = header.strip().partition(" ")
    if not value.strip():
        return TOKEN_REQUIRED if scheme.lower() == "splunk" else INVALID_AUTHORIZATION
    if scheme.lower() != "splunk":
        return INVALID_AUTHORIZATION
    token = tokens.get(value.strip())
    if token is None:
        return INVALID_TOKEN
    return TOKEN_DISABLED if token.disabled else token


def channel(value: str | None) -> str | Reply:
    """Return the channel (a GUID, in lower case) or the answer that refuses it."""
    if not value:
        return CHANNEL_MISSING
    try:
        return str(UUID(value))
    except ValueError:
        return CHANNEL_INVALID


def unpack(body: bytes, encoding: str | None, limit: int) -> bytes:
    """Return the body's bytes; gzip is the one encoding taken. Raises BodyError, also beyond `limit` bytes."""
    if encoding is None or encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise BodyError(INVALID_FORMAT)
    unzip = zlib.decompressobj(wbits=31)
    try:
        plain = unzip.decompress(body, limit + 1)
    except zlib.error:
        raise BodyError(INVALID_FORMAT) from None
    if len(plain) > limit:
        raise BodyError(Reply(413, 27, f"Content-Length of unpacked body too large (maximum is {limit})"))
    if not unzip.eof or unzip.unused_data:
        raise BodyError(INVALID_FORMAT)
    return plain


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _text(value: str) -> str:
    # A lone surrogate cannot be stored as UTF-8.
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def _time(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = value.strip() if isinstance(value, str) else repr(value)
    return float(text) if PLAIN_DECIMAL.fullmatch(text) and float(text) < END_OF_TIME else None


def _flat(fields: Any) -> bool:
    if not isinstance(fields, dict):
        return False
    values = [item for value in fields.values() for item in (value if isinstance(value, list) else [value])]
    return all(isinstance(item, str | int | float) for item in values)


def _session_id(event: Any, fields: Mapping[str, Any]) -> str | None:
    value = event.get("session_id") if isinstance(event, dict) else None
    value = fields.get("session_id") if value is None else value
    return _text(value) if isinstance(value, str) else None


def _event(envelope: dict[str, Any], base: Event, token: Token, indexes: frozenset[str]) -> Event | Reply:
    if "event" not in envelope:
        return EVENT_REQUIRED
    event = envelope["event"]
    if event is None or (isinstance(event, str) and not event.strip()):
        return EVENT_BLANK
    names = {key: envelope.get(key, getattr(base, key)) for key in ("host", "source", "sourcetype", "index")}
    if not all(isinstance(value, str) for value in names.values()):
        return INVALID_FORMAT
    if names["index"] not in (token.indexes or indexes) or names["index"] not in indexes:
        return INCORRECT_INDEX
    fields = envelope.get("fields", {})
    time = _time(envelope["time"]) if "time" in envelope else base.time
    if not _flat(fields) or time is None:
        return INDEXED_FIELDS
    try:
        raw = _text(event) if isinstance(event, str) else json.dumps(event, separators=(",", ":"), allow_nan=False)
        packed = json.dumps(fields, separators=(",", ":"), allow_nan=False) if fields else None
    except (ValueError, RecursionError):
        return INVALID_FORMAT
    text = {key: _text(value) for key, value in names.items()}
    return Event(time=time, raw=raw, session_id=_session_id(event, fields), fields=packed, writer=token.name, **text)


def parse_events(body: bytes, base: Event, token: Token, indexes: frozenset[str]) -> tuple[list[Event], Reply]:
    """Return the events to index out of a body of concatenated JSON objects, and the answer.

    `base` holds what an envelope leaves out. The events are to be indexed whatever the answer says: those before a
    faulty one are in although it is an error. And behind a 200, an object with `fields` but no `event` is skipped, and
    one with an unknown key takes everything after it down with itself.
    """
    events: list[Event] = []
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return events, INVALID_FORMAT.at(0)
    position, number = _end_of_space(text, 0), 0
    if position == len(text):
        return events, NO_DATA
    while position < len(text):
        try:
            envelope, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return events, INVALID_FORMAT.at(number)
        if not isinstance(envelope, dict):
            return events, INVALID_FORMAT.at(number)
        if envelope.keys() - SAFE_KEYS:
            break
        if "event" in envelope or "fields" not in envelope:
            event = _event(envelope, base, token, indexes)
            if isinstance(event, Reply):
                return events, event.at(number)
            events.append(event)
        position, number = _end_of_space(text, position), number + 1
    return events, SUCCESS


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def parse_raw(body: bytes, base: Event, token: Token, indexes: frozenset[str]) -> tuple[list[Event], Reply]:
    """Return one event for each line of a raw body, and the answer. Index and the like come from `base`."""
    if base.index not in (token.indexes or indexes) or base.index not in indexes:
        return [], INCORRECT_INDEX
    lines = [line for line in body.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    named = (base.time, base.host, base.source, base.sourcetype, base.index)
    return ([Event(*named, raw=line, writer=token.name) for line in lines], SUCCESS) if lines else ([], NO_DATA)


def parse_acks(body: bytes) -> list[int] | Reply:
    """Return the ids asked for in `{"acks": [0, 1]}`, or the answer that refuses it."""
    try:
        acks = json.loads(body).get("acks")
    except (ValueError, RecursionError, AttributeError):
        return INVALID_FORMAT
    good = isinstance(acks, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in acks)
    return acks if good else INVALID_FORMAT
