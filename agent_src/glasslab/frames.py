"""Frames of the vocabulary (vocabulary.py), canonical JSON, and the hash chain. No I/O happens here.

A *frame* is one event of a session. Two families share one chain: trace frames (sourcetype `agent:trace`, sent with
`LAB_TRACE=full` only, with content) and summary events (`agent:session`, `agent:llm`, `agent:toolcall`, always sent,
without content beyond tool arguments). The hypervisor's events (`agent:network`) are a chain of the same form, in a
session of their own that is named `hypervisor-...`: see WITNESS_PREFIX.

Rules that a verifier needs, exactly:

* canonical JSON: keys sorted by code point, no spaces, UTF-8 unescaped (`ensure_ascii=False`), no NaN or infinity.
* `event_hash(event)`: hex SHA-256 of the canonical JSON of the event as sent, `sig` included when it has one.
* `prev`: `event_hash` of the same writer's frame before it in the session; 64 zeros on the writer's first (`seq` 1).
  A frame that is not sent (a trace frame in summary mode) is never sealed, so it leaves no gap in `seq`.
* `sig`, only on the last frame of a commit: base64 (standard alphabet, padded) of the Ed25519 signature over the ASCII
  bytes `glasslab-frame-v1:` + hex SHA-256 of the canonical JSON of the event *without* its `sig`.
* `clock`: Lamport clock. Each sealed frame takes the next value; `merge` lifts it to what the other writer last said.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from glasslab.kinds import AGENT, HYPERVISOR, LLM, MCP, NETWORK, SESSION, TOOLCALL, TRACE, VERIFIER, Kind
from glasslab.vocabulary import COMMON_FIELDS, ENDS, KINDS

if TYPE_CHECKING:  # cryptography takes tens of ms to import; only signing and verifying need it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "AGENT",
    "COMMON_FIELDS",
    "ENDS",
    "GENESIS",
    "HOST_PREFIX",
    "HYPERVISOR",
    "KINDS",
    "LLM",
    "MCP",
    "NETWORK",
    "SESSION",
    "TOOLCALL",
    "TRACE",
    "VERIFIER",
    "VERIFIER_PREFIX",
    "WITNESS_PREFIX",
    "Chain",
    "Event",
    "Frame",
    "FrameError",
    "Kind",
    "canonical_json",
    "event_hash",
    "frame",
    "recordable",
    "sha256_hex",
    "verify_event_signature",
]  # fmt: skip

GENESIS: Final = "0" * 64
SIGNATURE_DOMAIN: Final = b"glasslab-frame-v1:"
MAX_DEPTH: Final = 64
# A session id that begins so is one of the hypervisor's streams: it has no agent in it, and no end but the next stream.
WITNESS_PREFIX: Final = "hypervisor-"
HOST_PREFIX: Final = "host-"  # of a session that a tool server begins itself, for a host that is not the lab's agent

# One whose session id begins so is a check of another session: one frame, by the person who ran `glasslab verify`.
VERIFIER_PREFIX: Final = "verifier-"

Frame = dict[str, Any]
Event = dict[str, Any]


class FrameError(ValueError):
    """A frame that the vocabulary does not know, or whose fields differ from it. Always a programming error."""


def canonical_json(value: object) -> bytes:
    """Return the one byte form of a JSON value: sorted keys, compact, UTF-8.

    Raises ValueError for NaN and infinity, lone surrogates and oversized integers, RecursionError for deep nesting.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of some bytes as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def recordable(value: object, depth: int = 0) -> Any:
    """Return a copy of a value that canonical JSON takes, whatever a model or a tool sent.

    Lone surrogates become `\\udXXX` as text, NaN and infinity and integers beyond 64 bits become text, and what is
    nested deeper than MAX_DEPTH is named instead of shown.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() < 64:
            return value
        return str(value) if value.bit_length() <= 4096 else f"integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH}"
    if isinstance(value, Mapping):
        return {recordable(str(key)): recordable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [recordable(item, depth + 1) for item in value]
    return recordable(str(value))


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8, as it is recorded."""
    return sha256_hex(str(recordable(text)).encode())


def frame(kind: str, *, step: int, **fields: object) -> Frame:
    """Make one frame of a known kind: {kind, step, summary, *fields}. `step` is the turn (0 before the first call).

    The summary is the kind's fixed text; nothing can be passed for it. Values are made recordable, so that no content
    can make a commit fail. Raises FrameError for an unknown kind, and for a missing or unknown field.
    """
    known = KINDS.get(kind)
    if known is None:
        raise FrameError(f"unknown frame kind {kind!r}")
    missing = [name for name in known.fields if name not in fields]
    unknown = [name for name in fields if name not in known.fields and name not in known.optional]
    if missing or unknown:
        raise FrameError(f"frame {kind}: missing fields {missing}, unknown fields {unknown}")
    if step < 0:
        raise FrameError(f"frame {kind}: step {step} is negative")
    return {"kind": kind, "step": step, "summary": known.summary, **recordable(fields)}


def event_hash(event: Mapping[str, Any]) -> str:
    """Return what the writer's next frame carries as `prev`: the hash of the event as sent."""
    return sha256_hex(canonical_json(event))


def _signed_bytes(event: Mapping[str, Any]) -> bytes:
    unsigned = {name: value for name, value in event.items() if name != "sig"}
    return SIGNATURE_DOMAIN + sha256_hex(canonical_json(unsigned)).encode("ascii")


def verify_event_signature(event: Mapping[str, Any], public_key: Ed25519PublicKey) -> bool:
    """Return whether the event's `sig` is this key's signature; False also when it has none or it is not base64."""
    from cryptography.exceptions import InvalidSignature

    signature = event.get("sig")
    if not isinstance(signature, str):
        return False
    try:
        public_key.verify(base64.b64decode(signature, validate=True), _signed_bytes(event))
    except (InvalidSignature, ValueError):
        return False
    return True


class Chain:
    """One writer's chain in one session: numbers, links, stamps and signs the frames of each commit."""

    def __init__(
        self,
        session_id: str,
        component: str,
        signing_key: Ed25519PrivateKey | None = None,
        clock: int = 0,
        parent: Mapping[str, Any] | None = None,
    ) -> None:
        """Start at seq 1. `component` is the writer (as in vocabulary.py); `clock` the highest value heard so far.

        `parent` are PARENT_FIELDS, which each frame of a delegate's session carries.
        """
        self.parent = dict(parent or {})
        self.session_id = session_id
        self.component = component
        self.clock = clock
        self._signing_key = signing_key
        self._seq = 0
        self._prev = GENESIS

    @property
    def position(self) -> tuple[int, str]:
        """Number and `event_hash` of the frame sealed last; (0, 64 zeros) before the first."""
        return self._seq, self._prev

    def resume(self, seq: int, prev: str) -> None:
        """Go on behind the frame with this number and hash, which an earlier process sealed (see `position`)."""
        self._seq, self._prev = seq, prev

    def tick(self) -> int:
        """Advance the Lamport clock by one and return it."""
        self.clock += 1
        return self.clock

    def merge(self, remote: int) -> None:
        """Lift the clock to what the other writer last said; a lower value changes nothing."""
        self.clock = max(self.clock, remote)

    def seal(self, frames: Sequence[Frame]) -> list[Event]:
        """Turn the frames of one commit into the events to send, in order; the last one is signed.

        Raises FrameError when a kind belongs to the other writer.
        """
        events: list[Event] = []
        for index, item in enumerate(frames):
            if self.component not in KINDS[item["kind"]].writers:
                raise FrameError(f"frame {item['kind']} cannot be written by {self.component}")
            self._seq += 1
            event: Event = {
                "session_id": self.session_id,
                "component": self.component,
                **self.parent,
                **item,
                "seq": self._seq,
                "prev": self._prev,
                "clock": self.tick(),
                "event_id": uuid.uuid4().hex,
            }
            if self._signing_key is not None and index == len(frames) - 1:
                event["sig"] = base64.b64encode(self._signing_key.sign(_signed_bytes(event))).decode("ascii")
            self._prev = event_hash(event)
            events.append(event)
        return events
