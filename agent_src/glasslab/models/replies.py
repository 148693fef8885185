"""What every provider's replies have in common: bounds, and the ways in which a reply cannot be used. Does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from glasslab.models import Reply

# What a reply may hold is recorded up to four times over in one POST, and that has to pass the log's own limit (10 MB).
MAX_REPLY_BYTES: Final = 1_500_000
MAX_TOOL_REQUESTS: Final = 128
MAX_FINISH_REASON: Final = 64
SHOWN: Final = 200
# What an error in the middle of a stream would have been, had it come before: there is no HTTP status then.
ERROR_TYPES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
AGAIN: Final = (408, 409, 429)  # and every 5xx: the same request may work later


class Unusable(Exception):
    """A reply that cannot be used: status and reason of the contract, a text with the remedy, what was read of it."""

    def __init__(self, status: str, reason: str, text: str, reply: Reply | None = None, *, again: bool = False) -> None:
        super().__init__(text)
        self.status, self.reason, self.reply, self.again = status, reason, reply, again


def parse(body: bytes, status: int, speaks: str) -> Any:
    """Return a body's JSON. Raises Unusable; `speaks` is the remedy."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Unusable("model_invalid", "not_json", f"HTTP {status} with a body that is not JSON; {speaks}") from None


def check(reply: Reply, asked: int) -> Reply:
    """Return the reply when the loop can go on with it. Raises Unusable. `asked`: how many calls it asks for."""
    finish = reply.finish_reason
    if finish == "content_filter":
        text = "the provider's content filter stopped the reply; rephrase"
        raise Unusable("model_refused", "content_filter", text, reply)
    if reply.refusal or finish == "refusal":
        raise Unusable("model_refused", "refusal", "the model refused to answer; rephrase", reply)
    if finish in ("length", "max_tokens"):
        text = "the reply was cut at the model's token limit; ask for less, or raise MODEL_MAX_TOKENS"
        raise Unusable("model_invalid", "length", text, reply)
    if finish == "model_context_window_exceeded":
        text = "the conversation is too long for this model; ask for less, or use another MODEL"
        raise Unusable("model_invalid", "context_window", text, reply)
    if finish == "pause_turn":
        text = "the model paused for a tool of its provider's, and none was offered; try again or another MODEL"
        raise Unusable("model_invalid", "paused", text, reply)
    if finish == "error":
        text = "the provider broke the reply off with an error; try again"
        raise Unusable("model_unreachable", "broken_off", text, reply, again=True)
    if asked > MAX_TOOL_REQUESTS:
        text = f"the reply asks for {asked} tool calls; at most {MAX_TOOL_REQUESTS} at once: ask for less"
        raise Unusable("model_invalid", "too_many_calls", text, reply)
    if not reply.tool_requests and not (reply.content and reply.content.strip()):
        text = "the reply has neither text nor a tool call; try again"
        raise Unusable("model_invalid", "empty_reply", text, reply)
    if not reply.tool_requests and finish in ("tool_calls", "function_call", "tool_use"):
        # The text announces what the calls were to do: taken for the answer, it would be a wrong one.
        text = "the reply says that it calls tools, and has no call; try again or another MODEL"
        raise Unusable("model_invalid", "calls_missing", text, reply)
    return reply


def error_of(data: object) -> tuple[int | None, str | None]:
    """Return HTTP status and message of an error in a body, in any of the forms in use; None where it has none."""
    error = data.get("error") if isinstance(data, Mapping) else None
    if isinstance(error, str):
        return None, error
    if not isinstance(error, Mapping):
        return None, None
    message = error.get("message")
    for value in (error.get("code"), error.get("type")):
        code = ERROR_TYPES.get(value) if isinstance(value, str) else value
        if isinstance(value, str) and re.fullmatch(r"[45][0-9]{2}", value):  # gateways send the status as a text, too
            code = int(value)
        if type(code) is int and 400 <= code <= 599:
            return code, message if isinstance(message, str) else None
    return None, message if isinstance(message, str) else None


def finish_text(value: object) -> str | None:
    """Return a finish reason, bounded; None when it is no text."""
    return value[:MAX_FINISH_REASON] if isinstance(value, str) else None


def token_count(*values: object) -> int | None:
    """Return the sum of the counts; None when none of them is one."""
    counts = [value for value in values if type(value) is int and 0 <= value < 1 << 53]
    return sum(counts) if counts else None
