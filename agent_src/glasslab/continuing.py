"""`ask --session ID`: an ended session's conversation out of the log, verified, to go on with.

Out of the log and not out of a file of the agent's own: the log is where a session is on record, signed and in chains,
while a second copy would hold the contents once more, in a place that nobody verifies. It takes what `glasslab verify`
takes (SPLUNK_URL, SPLUNK_TOKEN, VERIFY_KEYS), so it is for where those are, and not for the agent's machine in the lab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from glasslab.context import Continued, Kept, conversation
from glasslab.frames import AGENT, event_hash
from glasslab.models import Message
from glasslab.verify import verify_session

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from glasslab.search import StoredEvent

REASONING: Final = ("thinking", "reasoning_details")  # signed by the model that made it: another one refuses it


class ContinueError(ValueError):
    """A session that cannot be continued; the text is one line with the remedy."""


def read_session(session_id: str, model: str, last_turn: str) -> Continued:
    """Return the session's conversation, for that model. Raises ContinueError.

    `last_turn` is the lab's own word of the last turn, which holds for one session only.
    """
    from glasslab.keys import KeyFileError, load_public_keys
    from glasslab.search import SearchError
    from glasslab.settings import SearchSettings, SettingsError
    from glasslab.views.command import open_search

    try:
        settings = SearchSettings.load()
        events = open_search(settings).events(session_id)
        keys = load_public_keys(settings.verify_keys)
    except SettingsError as error:
        text = f"--session reads the log: {error.lines[0]}"
        raise ContinueError(text) from None
    except (SearchError, KeyFileError, ValueError) as error:
        raise ContinueError(str(error)) from None
    if not events:
        raise ContinueError(f"session {session_id} is not in the log at {settings.splunk_url}; check the id")
    return rebuild(session_id, events, keys, model, last_turn)


def rebuild(
    session_id: str,
    stored: Sequence[StoredEvent],
    keys: Mapping[str, Ed25519PublicKey],
    model: str,
    last_turn: str = "",
) -> Continued:
    """Return a session's conversation from all of its events. Raises ContinueError unless the record is whole."""
    report = verify_session(session_id, stored, keys)
    own = sorted((item.event for item in stored if item.event.get("component") == AGENT), key=_number)
    if not any(event.get("kind") == "session.end" for event in own):
        raise ContinueError(f"session {session_id} has not ended on record; wait for its end, or ask anew")
    if not report.whole:
        problems = [*(problem for writer in report.writers for problem in writer.problems), *report.problems]
        raise ContinueError(f"session {session_id} is not continued: {problems[0].text}; see `glasslab verify`")
    requests = [event for event in own if event["kind"] == "llm.request" and "purpose" not in event]
    if not any(event["kind"] == "agent.start" for event in own):
        raise ContinueError(
            f"session {session_id} was recorded with LAB_TRACE=summary, which keeps no conversation; ask anew"
        )
    if not requests:
        raise ContinueError(f"session {session_id} ended before it asked its model anything; ask anew")
    started, answer = own[0], next(event for event in own if event["kind"] == "agent.final")["answer"]
    messages = [_taken(message, started["model"] == model) for message in requests[-1]["messages"]]
    messages = conversation(messages, answer, last_turn)
    problem = unpaired(messages)
    if problem:
        raise ContinueError(f"session {session_id} holds a conversation of another form: {problem}; ask anew")
    return Continued(session_id, event_hash(own[-1]), messages, _results(session_id, own, messages))


def unpaired(messages: Sequence[Any]) -> str | None:
    """Return what is wrong with a conversation: a call without its result right after it, a result without its call."""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("system", "user", "assistant", "tool"):
            return f"message {number} has no role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"message {number} is a result without its call"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"message {number} stands where a result is missing"
        waiting = [call["id"] for call in message["tool_calls"]] if message.get("tool_calls") else waiting
    return "the last call has no result" if waiting else None


def _number(event: Mapping[str, Any]) -> int:
    return event["seq"] if isinstance(event.get("seq"), int) else 0


def _taken(message: Message, same_model: bool) -> Message:
    return {name: value for name, value in message.items() if same_model or name not in REASONING}


def _results(session_id: str, own: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> dict[str, Kept]:
    """Return what is on record of the results that the conversation holds: their hash, size and frame."""
    held = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    sizes = {event["tool_call_id"]: event["characters"] for event in own if "characters" in event}
    found = {}
    for event in own:
        if event["kind"] == "toolcall" and event["tool_call_id"] in held:
            place = {"seq": event["seq"], "event_id": event["event_id"], "session_id": session_id}
            characters = sizes.get(event["tool_call_id"], event["bytes"])
            arguments = str(event["arguments"])[:200]
            found[event["tool_call_id"]] = Kept(event["tool"], arguments, event["result_sha256"], characters, place)
    return found
