"""What a session's page shows, made of its frames: rows, the time each part took, the context's growth by turn."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from glasslab.collector.web.data import Frame
from glasslab.guardrails import visible_text
from glasslab.views.happened import happened, visible
from glasslab.views.shown import frames_shown

CLIP: Final = 4000  # characters of a frame on the session's page; the frame's own page has MOST
MOST: Final = 1_000_000
RUNNING_SECONDS: Final = 180.0  # without an end and without an event for so long, a session has stopped
BAD: Final = ("REFUSED", "ERROR")
SCALE: Final = 1000.0  # of a timeline


@dataclass(frozen=True)
class Row:
    """One frame, as a row. `at` in seconds since the session's first."""

    number: int
    at: float
    component: str
    kind: str
    happened: str
    bad: bool
    text: str
    cut: bool


@dataclass(frozen=True)
class Bar:
    """A span of a lane, 0 to SCALE, and what it is."""

    begin: float
    width: float
    title: str
    bad: bool = False


@dataclass(frozen=True)
class Lane:
    """One line of the timeline."""

    name: str
    bars: list[Bar]
    seconds: float


@dataclass(frozen=True)
class Turn:
    """The context of one model call: messages and tokens sent, tokens that came back. None: not on record."""

    number: str
    messages: int | None
    prompt: int | None
    completion: int | None
    share: float  # of the largest, 0 to 100


@dataclass(frozen=True)
class Session:
    """All of a session that its page shows."""

    session_id: str
    status: str
    running: bool
    started: float
    seconds: float
    model: str
    question: str
    answer: str
    tokens: str
    cost: str
    rows: list[Row] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    events: int = 0


def status_of(end: Frame | None, last: float) -> tuple[str, bool]:
    """Return a session's status and whether it is still running."""
    if end is not None:
        return visible(end.event.get("status"), 40), False
    running = time.time() - last < RUNNING_SECONDS
    return ("running" if running else "no end on record"), running


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else None


def _milliseconds(value: object) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e10
    return float(value) if good else 0.0  # type: ignore[arg-type]  # `good` says that it is a number


def whole(frame: Frame) -> str:
    """Return a frame as text: its JSON on lines of its own, or what it is."""
    if not frame.event:
        return frame.raw
    return json.dumps(frame.event, indent=1, ensure_ascii=False)


def row(number: int, frame: Frame, first: float, clip: int = CLIP) -> Row:
    """Return a frame as a row."""
    text, said = whole(frame), happened(frame.event)
    event = frame.event
    kind = visible(event.get("kind"), 40) if event else frame.sourcetype
    bad = said.startswith(BAD)
    return Row(
        number, frame.time - first, visible(event.get("component"), 12), kind, said, bad, text[:clip], len(text) > clip
    )


def _first(frames: Sequence[Frame], kind: str) -> Mapping[str, Any]:
    return next((frame.event for frame in frames if frame.event.get("kind") == kind), {})


def session(session_id: str, frames: Sequence[Frame], first: int, count: int, *, everything: bool) -> Session:
    """Return what the page of a session shows; of its rows `count` from number `first` on.

    `everything`: the summary events too, when there are trace frames.
    """
    end = next((frame for frame in reversed(frames) if frame.event.get("kind") == "session.end"), None)
    status, running = status_of(end, frames[-1].time)
    began = frames[0].time
    start, started, final = (
        _first(frames, "session.start"),
        _first(frames, "agent.start"),
        _first(frames, "agent.final"),
    )
    tokens = end.event.get("tokens") if end else None
    chosen = list(frames) if everything else frames_shown(frames)
    cost = end.event.get("cost") if end else None
    return Session(
        session_id=session_id,
        status=status,
        running=running,
        started=began,
        seconds=frames[-1].time - began,
        model=visible(start.get("model") or started.get("model"), 80),
        question=visible_text(str(started.get("question") or ""))[:2000],
        answer=visible_text(str(final.get("answer") or final.get("so_far") or ""))[:4000],
        tokens=visible(tokens.get("total"), 20) if isinstance(tokens, dict) else "",
        cost=visible(cost, 20) if cost is not None else "",
        rows=[row(number, frame, began) for number, frame in enumerate(chosen, 1) if first <= number < first + count],
        lanes=lanes(frames),
        turns=turns(frames),
        events=len(chosen),
    )


def lanes(frames: Sequence[Frame]) -> list[Lane]:
    """Return the timeline: what the model took, what the tools took, and where the tool server wrote a frame."""
    began, span = frames[0].time, max(frames[-1].time - frames[0].time, 0.001)

    def bar(begin: float, end: float, title: str, bad: bool = False) -> Bar:
        left = min(max((begin - began) / span, 0.0), 1.0) * SCALE
        right = min(max((end - began) / span, 0.0), 1.0) * SCALE
        # A call of a millisecond can be seen, too, and the last one stays within the lane.
        width = max(right - left, 4.0)
        return Bar(round(min(left, SCALE - width), 1), round(width, 1), f"{title}, {end - begin:.3f} s", bad)

    model: list[Bar] = []
    tools: list[Bar] = []
    server: list[Bar] = []
    sums = {"model": 0.0, "tools": 0.0}
    for frame in frames:
        event = frame.event
        kind = event.get("kind")
        if kind in ("llm", "llm.failed"):
            took = _milliseconds(event.get("duration_ms")) / 1000
            model.append(bar(frame.time - took, frame.time, happened(event)[:80], kind == "llm.failed"))
            sums["model"] += took
        elif kind == "toolcall":
            took = _milliseconds(event.get("duration_ms")) / 1000
            bad = event.get("is_error") is True or event.get("refused") is True
            tools.append(bar(frame.time - took, frame.time, visible(event.get("tool"), 60), bad))
            sums["tools"] += took
        elif event.get("component") == "mcp":
            said = happened(event)
            server.append(bar(frame.time, frame.time, f"{visible(kind, 40)}: {said[:80]}", said.startswith(BAD)))
    found = [Lane("model", model, sums["model"]), Lane("tools", tools, sums["tools"]), Lane("tool server", server, 0.0)]
    return [lane for lane in found if lane.bars]


def turns(frames: Sequence[Frame]) -> list[Turn]:
    """Return the context's growth: one entry a model call that came back."""
    messages: list[int | None] = []
    found: list[tuple[int | None, int | None, int | None]] = []
    for frame in frames:
        event = frame.event
        if event.get("kind") == "llm.request":
            messages.append(_number(event.get("message_count")))
        elif event.get("kind") == "llm":
            sent = messages[len(found)] if len(found) < len(messages) else None
            found.append((sent, _number(event.get("prompt_tokens")), _number(event.get("completion_tokens"))))
    largest = max((prompt or 0 for _, prompt, _ in found), default=0) or 1
    return [
        Turn(str(number), sent, prompt, completion, round(100 * (prompt or 0) / largest, 1))
        for number, (sent, prompt, completion) in enumerate(found, 1)
    ]
