"""What agent and tool servers say to each other beside the MCP messages proper: `_meta` keys and one error code.

Both sides import this module and nothing else of each other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

META_SESSION_ID: Final = "glasslab/session_id"
META_STEP: Final = "glasslab/step"
META_CLOCK: Final = "glasslab/clock"
META_TOOL_CALL_ID: Final = "glasslab/tool_call_id"
# In a result: the server refused the call by a rule of its own (fixed text), as opposed to "no such file".
META_REFUSED: Final = "glasslab/refused"

# JSON-RPC leaves -32000 to -32099 to servers; MCP itself uses numbers up to -32042.
LOG_FAILED: Final = -32090
# Never on the wire: the host's transport says so in the place of an answer that it could not take.
ANSWER_UNUSABLE: Final = -32091

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_NUMBER = 2**53
_MAX_TOOL_CALL_ID = 256


class WireError(ValueError):
    """A request without the lab's `_meta`, or with values that cannot be recorded."""


@dataclass(frozen=True, slots=True)
class RequestMeta:
    """Which session, turn and tool call a request belongs to, and the highest clock value its sender knows."""

    session_id: str
    step: int
    clock: int
    tool_call_id: str | None


def parse_meta(meta: Mapping[str, Any] | None) -> RequestMeta:
    """Return the lab's part of a request's `_meta`; raises WireError naming the key and what is wrong with it."""
    values = meta or {}
    session_id = values.get(META_SESSION_ID)
    if not isinstance(session_id, str) or not _SESSION_ID.fullmatch(session_id):
        raise WireError(f"_meta[{META_SESSION_ID!r}] must be a session id")
    call_id = values.get(META_TOOL_CALL_ID)
    if call_id is not None and (not isinstance(call_id, str) or len(call_id) > _MAX_TOOL_CALL_ID):
        raise WireError(f"_meta[{META_TOOL_CALL_ID!r}] must be a text of at most {_MAX_TOOL_CALL_ID} characters")
    return RequestMeta(session_id, _number(values, META_STEP), _number(values, META_CLOCK), call_id)


def _number(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise WireError(f"_meta[{key!r}] must be a whole number from 0")
    return value
