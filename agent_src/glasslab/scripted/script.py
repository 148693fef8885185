"""Scripts: their YAML turned into turns, each place that is wrong named in one line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from glasslab import samples
from glasslab.httpserver import ServeError

MESSAGE_KEYS: Final = {"message", "finish_reason", "usage", "delay", "fault"}
BLOCK_KEYS: Final = {"content", "stop_reason", "usage", "delay", "fault"}
RAW_KEYS: Final = {"status", "headers", "body", "delay", "drip", "fault"}
FAULT_KEYS: Final = {"fault", "delay"}
FAULTS: Final = ("reset", "hang_up", "cut")


class ScriptError(ServeError):
    """The script cannot be used; the text is one line naming file, place and remedy."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the script: a reply in one of the two forms, or a raw HTTP answer; times in seconds."""

    message: dict[str, Any] | None = None  # chat completions
    content: list[Any] | None = None  # Anthropic Messages
    reason: str = "stop"
    usage: dict[str, Any] | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    drip: float = 0.0
    fault: str | None = None


_FLAGS: Final = ("repeat_last", "strict", "each_question")


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script: for each turn what the first request gets, then what the same request gets again.

    `when` comes before the turns: the first of these whose text is in the request's last message is its answer. With
    `each_question` the turns begin anew with each question of a conversation.
    """

    turns: tuple[tuple[Turn, ...], ...]
    model: str | None = None
    repeat_last: bool = False
    strict: bool = False
    each_question: bool = False
    when: tuple[tuple[str, Turn], ...] = ()


def load_script(file: str) -> Script:
    """Return the script in a file; `sample` is the one for the sample question. Raises ScriptError."""
    path = samples.SCRIPT if file == "sample" else Path(file)
    try:
        value = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ScriptError(f"cannot read script {file}: {error.strerror}; give a YAML file, or: sample") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ScriptError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    return parse_script(value, file)


def parse_script(value: Any, name: str) -> Script:
    """Return a script from its YAML value. Raises ScriptError; `name` (the file) begins its text."""
    _keys(value, {"model", *_FLAGS, "turns", "when"}, name)
    turns, model = value.get("turns"), value.get("model")
    _check(isinstance(turns, list) and bool(turns), f"{name}: turns", "must be a list of at least one turn")
    _check(model is None or isinstance(model, str), f"{name}: model", f"must be text, not {model!r}")
    for flag in _FLAGS:
        given = value.get(flag, False)
        _check(isinstance(given, bool), f"{name}: {flag}", f"must be true or false, not {given!r}")
    parsed = tuple(_attempts(turn, f"{name}: turns[{number}]") for number, turn in enumerate(turns))
    when = value.get("when", [])
    _check(isinstance(when, list), f"{name}: when", "must be a list of turns with last (a text of the last message)")
    special = tuple(_when(item, f"{name}: when[{number}]") for number, item in enumerate(when))
    repeat_last, strict, each_question = (bool(value.get(flag, False)) for flag in _FLAGS)
    return Script(parsed, model, repeat_last, strict, each_question, special)


def _when(value: Any, place: str) -> tuple[str, Turn]:
    last = value.get("last") if isinstance(value, dict) else None
    _check(isinstance(last, str) and bool(last), place, "must be a mapping with last (text) and what a turn has")
    return str(last), parse_turn({key: item for key, item in value.items() if key != "last"}, place)


def _attempts(value: Any, place: str) -> tuple[Turn, ...]:
    if not isinstance(value, list):
        return (parse_turn(value, place),)
    _check(bool(value), place, "must hold at least one answer")
    return tuple(parse_turn(turn, f"{place}[{number}]") for number, turn in enumerate(value))


def parse_turn(value: Any, place: str) -> Turn:
    """Return one turn from its YAML value. Raises ScriptError naming `place` and what is wrong there."""
    _check(isinstance(value, dict), place, "must be a mapping with message, content, status or fault")
    fault = value.get("fault")
    _check(fault is None or fault in FAULTS, f"{place}.fault", f"must be one of {', '.join(FAULTS)}, not {fault!r}")
    delay = _seconds(value.get("delay", 0), f"{place}.delay")
    if "message" in value:
        _keys(value, MESSAGE_KEYS, place)
        _check(isinstance(value["message"], dict), f"{place}.message", "must be a mapping with content or tool_calls")
        message = {"role": "assistant", **value["message"]}
        reason = _reason(value, "finish_reason", "stop", place)
        usage = _usage(value.get("usage"), f"{place}.usage")
        return Turn(message=message, reason=reason, usage=usage, delay=delay, fault=fault)
    if "content" in value:
        _keys(value, BLOCK_KEYS, place)
        _check(isinstance(value["content"], list), f"{place}.content", "must be a list of blocks")
        reason, usage = _reason(value, "stop_reason", "end_turn", place), value.get("usage")
        _check(usage is None or isinstance(usage, dict), f"{place}.usage", f"must be a mapping, not {usage!r}")
        return Turn(content=value["content"], reason=reason, usage=usage, delay=delay, fault=fault)
    if fault in ("reset", "hang_up"):
        _keys(value, FAULT_KEYS, place)
        return Turn(delay=delay, fault=fault)
    return _raw(value, place, delay, fault)


def _raw(value: dict[str, Any], place: str, delay: float, fault: str | None) -> Turn:
    _keys(value, RAW_KEYS, place)
    status, headers = value.get("status"), value.get("headers", {})
    good = isinstance(status, int) and 200 <= status <= 599
    _check(good, f"{place}.status", f"must be an HTTP status from 200 to 599, not {status!r}")
    _check(isinstance(headers, dict), f"{place}.headers", f"must be a mapping, not {headers!r}")
    body = value.get("body", "")
    return Turn(
        status=int(status or 0),
        headers={str(name): str(item) for name, item in headers.items()},
        body=(body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass"),
        delay=delay,
        drip=_seconds(value.get("drip", 0), f"{place}.drip"),
        fault=fault,
    )


def _check(condition: bool, place: str, text: str) -> None:
    if not condition:
        raise ScriptError(f"{place}: {text}")


def _keys(value: Any, allowed: set[str], place: str) -> None:
    _check(isinstance(value, dict), place, f"must be a mapping with keys out of {', '.join(sorted(allowed))}")
    unknown = sorted(str(key) for key in value if key not in allowed)
    _check(not unknown, place, f"unknown key {', '.join(unknown)}; known here: {', '.join(sorted(allowed))}")


def _seconds(value: Any, place: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    _check(good, place, f"must be seconds, 0 or more, not {value!r}")
    return float(value)


def _reason(value: dict[str, Any], key: str, default: str, place: str) -> str:
    reason = value.get(key, default)
    _check(isinstance(reason, str), f"{place}.{key}", f"must be text, not {reason!r}")
    return str(reason)


def _usage(value: Any, place: str) -> dict[str, Any] | None:
    if value is None:
        return None
    _check(isinstance(value, dict), place, f"must be a mapping of token counts, not {value!r}")
    usage = dict(value)
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if "total_tokens" not in usage and isinstance(prompt, int) and isinstance(completion, int):
        usage["total_tokens"] = prompt + completion
    if "reasoning_tokens" in usage:  # short for the place where the interface keeps it
        usage["completion_tokens_details"] = {"reasoning_tokens": usage.pop("reasoning_tokens")}
    return usage
