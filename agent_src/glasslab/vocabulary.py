"""The vocabulary: every kind of frame the lab can record, with its sourcetype, fixed summary, writer and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glasslab.kinds import Kind
from glasslab.vocabulary_summary import SUMMARY_KINDS
from glasslab.vocabulary_trace import TRACE_KINDS

KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in (*TRACE_KINDS, *SUMMARY_KINDS)}

# In each of the agent's frames of a delegate's session: whose delegate it is.
PARENT_FIELDS: Final = ("parent_session_id", "parent_step", "parent_tool_call_id")
# A session's last frame; of a session that has one frame, that one.
ENDS: Final = ("session.end", "service.start", "session.verified")

# What the chain and the vocabulary write themselves; a kind's own fields cannot take these names.
COMMON_FIELDS: Final = (
    *("session_id", "component", "kind", "step", "summary", "seq", "prev", "clock", "event_id", "sig"),
    *PARENT_FIELDS,
)
