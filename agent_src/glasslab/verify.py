"""Is a session's record whole and as its writers signed it? Pure functions over the events that the log gives back.

What is checked, for each writer and over both event families: numbers 1..n without gap or double, every frame's link to
the one before, signatures against the given public keys (never one found in a frame), the last frame of a commit
signed, clock and time rising. And over both writers: every kind from a writer that may write it, no clock value missing
(which shows frames cut off a writer's end), and the session's end on record.

The hypervisor's streams are checked in the same way, with two differences: they have no end but the stream that follows
them, and a frame that is there twice in the same bytes counts once, since the hypervisor sends again what it does not
know to have arrived.

A writer whose machine was rebuilt has another key since. The old one is kept as WRITER.YYYYmmddTHHMMSSZ.pub, and is
that of the chains which ended before that moment: each chain has one key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from glasslab.frames import (
    AGENT,
    ENDS,
    GENESIS,
    HOST_PREFIX,
    HYPERVISOR,
    KINDS,
    MCP,
    VERIFIER,
    VERIFIER_PREFIX,
    WITNESS_PREFIX,
    Event,
    event_hash,
    verify_event_signature,
)
from glasslab.search import StoredEvent

if TYPE_CHECKING:  # see frames.py: cryptography is imported where it is used
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# These always end a commit, so they are always signed. (What guardrails find in a question follows session.start.)
COMMIT_ENDS: Final = frozenset(
    {"session.end", "llm.request", "approval.request", "server.start", "server.list_files", "server.read_file"}
)
WRITERS: Final = (AGENT, MCP, HYPERVISOR, VERIFIER)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and at which of the writer's numbers (None: not one frame's matter)."""

    seq: int | None
    text: str

    def __str__(self) -> str:
        """Return it as one line."""
        return self.text if self.seq is None else f"seq {self.seq}: {self.text}"


@dataclass(slots=True)
class Writer:
    """What was found about one writer's chain."""

    name: str
    frames: int
    signatures: int = 0
    began: float | None = None  # epoch seconds of its first frame
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What was found about a session: its writers, and what concerns it as a whole."""

    session_id: str
    writers: list[Writer]
    problems: list[Problem]

    @property
    def whole(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems and not any(writer.problems for writer in self.writers)


def verify_session(session_id: str, stored: Sequence[StoredEvent], keys: Mapping[str, Ed25519PublicKey]) -> Report:
    """Return the report on a session from all of its events and the writers' public keys, by writer."""
    problems: list[Problem] = []
    begins = {WITNESS_PREFIX: HYPERVISOR, HOST_PREFIX: MCP, VERIFIER_PREFIX: VERIFIER}
    own = next((writer for prefix, writer in begins.items() if session_id.startswith(prefix)), AGENT)
    chains: dict[str, list[StoredEvent]] = {own: []}
    for item in stored:
        fault = _no_frame(item, session_id)
        writer = str(item.event.get("component"))
        if not fault and writer != own and (own != AGENT or writer in (HYPERVISOR, VERIFIER)):
            fault = f"a frame of {writer} in a session named {session_id}: one of the two is forged"
        if fault:
            problems.append(Problem(None, fault))
        else:
            chains.setdefault(writer, []).append(item)
    writers = [_writer(name, chain, _key(name, chain, keys)) for name, chain in sorted(chains.items())]
    problems += _missing_clocks(item.event for chain in chains.values() for item in chain)
    return Report(session_id, writers, problems)


def _key(name: str, chain: Sequence[StoredEvent], keys: Mapping[str, Ed25519PublicKey]) -> Ed25519PublicKey | None:
    """Return the writer's key of the time when the chain ended: the first that was retired after it, or today's."""
    ended = max((item.time for item in chain), default=0.0)
    retired = sorted((until, key) for key in keys if (until := _retired(name, key)) is not None and until > ended)
    return keys[retired[0][1]] if retired else keys.get(name)


def _retired(name: str, key: str) -> float | None:
    """Return when the writer's key of that name was retired; None when it is not one."""
    if not key.startswith(f"{name}."):
        return None
    try:
        return datetime.strptime(key.removeprefix(f"{name}."), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _no_frame(item: StoredEvent, session_id: str) -> str | None:
    """Return why a stored event is no frame of this session, or None when it is one."""
    event = item.event
    for name, kind in (("component", str), ("kind", str), ("seq", int), ("clock", int), ("prev", str)):
        if not isinstance(event.get(name), kind) or isinstance(event.get(name), bool):
            return f"an event of sourcetype {item.sourcetype} is no frame: its {name} is {event.get(name)!r}"
    where = f"{event['component']} seq {event['seq']}"
    if event.get("session_id") != session_id:
        return f"{where} belongs to session {event.get('session_id')!r}"
    known = KINDS.get(event["kind"])
    if known is None:
        return f"{where} is of kind {event['kind']!r}, which no writer knows"
    if event["component"] in WRITERS and event["component"] not in known.writers:
        return f"{where} is of kind {event['kind']}, which {event['component']} does not write"
    if known.sourcetype != item.sourcetype:
        return f"{where} ({event['kind']}) is stored as {item.sourcetype} instead of {known.sourcetype}"
    return None


def _writer(name: str, stored: list[StoredEvent], key: Ed25519PublicKey | None) -> Writer:
    stored = sorted(stored, key=lambda item: int(item.event["seq"]))
    if name == HYPERVISOR:
        stored = once(stored)
    chain = [item.event for item in stored]
    found = Writer(name, len(chain), began=min((item.time for item in stored), default=None))
    if not chain:
        found.problems.append(Problem(None, "no frame at all"))
        return found
    if key is None:
        found.problems.append(Problem(None, f"no public key: VERIFY_KEYS has no {name}.pub"))
    _check_links(chain, found)
    _check_times(stored, found)
    _check_signatures(chain, key, found)
    if name == AGENT and chain[-1]["kind"] not in ENDS:
        text = f"last frame is {chain[-1]['kind']}, not session.end: the session died or its end was cut off"
        found.problems.append(Problem(chain[-1]["seq"], text))
    found.problems.sort(key=lambda problem: -1 if problem.seq is None else problem.seq)
    return found


def once(stored: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Return the events without those that are there again in the same bytes at the same time."""
    return list({(item.time, item.raw): item for item in stored}.values())


def _check_links(chain: list[Event], found: Writer) -> None:
    prev, seq, clock = GENESIS, 0, 0
    for event in chain:
        number = int(event["seq"])
        if number == seq:
            found.problems.append(Problem(number, "there twice"))
        elif number != seq + 1:
            missing = f"{seq + 1}" if number == seq + 2 else f"{seq + 1} to {number - 1}"
            found.problems.append(Problem(seq + 1, f"missing: {missing}"))
        elif event["prev"] != prev:
            text = "prev is not the hash of the frame before" if seq else "prev of the first frame is not 64 zeros"
            found.problems.append(Problem(number, f"{text}: one of the two was changed"))
        if event["clock"] <= clock:
            found.problems.append(Problem(number, f"clock {event['clock']} does not follow {clock}"))
        prev, seq, clock = _hash(event), number, event["clock"]


def _check_times(stored: list[StoredEvent], found: Writer) -> None:
    """The time stands outside the frame, unsigned; but a writer's times never go back, whatever its clock does."""
    for before, item in itertools.pairwise(stored):
        if item.time < before.time:
            text = f"its time is before that of seq {before.event['seq']}: one of the two was changed"
            found.problems.append(Problem(item.event["seq"], text))


def _check_signatures(chain: list[Event], key: Ed25519PublicKey | None, found: Writer) -> None:
    for event in chain:
        if "sig" not in event:
            if event["kind"] in COMMIT_ENDS or event is chain[-1]:
                found.problems.append(Problem(event["seq"], f"{event['kind']} ends a commit and is not signed"))
        elif key is not None:
            if _signed(event, key):
                found.signatures += 1
            else:
                found.problems.append(Problem(event["seq"], "signature is not that of the writer's key"))


def _hash(event: Event) -> str:
    try:
        return event_hash(event)
    except (ValueError, RecursionError):
        return ""  # no writer can have sent it; nothing links to it


def _signed(event: Event, key: Ed25519PublicKey) -> bool:
    try:
        return verify_event_signature(event, key)
    except (ValueError, RecursionError):
        return False


def _missing_clocks(events: Iterable[Mapping[str, Any]]) -> list[Problem]:
    clocks = {int(event["clock"]) for event in events}
    if not clocks:
        return []
    highest = max(clocks)
    if highest - len(clocks) > 100_000:  # a forged clock must not make us count to the end of time
        return [Problem(None, f"clock reaches {highest} with {len(clocks)} frames")]
    missing = [clock for clock in range(1, highest) if clock not in clocks]
    if not missing:
        return []
    named = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    return [Problem(None, f"no frame has clock {named}: taken away from a writer's end, or never acknowledged")]
