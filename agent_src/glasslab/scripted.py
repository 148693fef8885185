"""A scripted model behind the OpenAI chat-completions interface, for the demo, tests and attacks.

A script is YAML:

    model: openai/gpt-5.6-luna     # optional; the name in replies (default: what the request asks for)
    repeat_last: false             # optional; true: the last turn is also every turn after it
    turns:
      - message: {content: null, tool_calls: [...]}   # a verbatim reply; role is added
        finish_reason: tool_calls                     # optional, default stop
        usage: {prompt_tokens: 136, completion_tokens: 29, reasoning_tokens: 13}   # optional
        delay: 0.2                                    # optional, seconds before the answer
      - status: 429                                   # or a raw HTTP answer
        headers: {Retry-After: "1"}                   # optional
        body: {"error": {"message": "slow down"}}     # text as it is, anything else as JSON
        delay: 0.2                                    # optional, seconds before the answer
        drip: 0.5                                     # optional, seconds before each byte of the body

Which turn is served follows from the conversation: the number of assistant messages in the request. So any number of
sessions can run at once, and a restart in the middle of one does not matter.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from glasslab import samples
from glasslab.httpserver import BadRequestError, Handler, ServeError, Server, tls_context

BODY_LIMIT: Final = 32 * 1024 * 1024
MESSAGE_KEYS: Final = {"message", "finish_reason", "usage", "delay"}
RAW_KEYS: Final = {"status", "headers", "body", "delay", "drip"}


class ScriptError(ServeError):
    """The script cannot be used; the text is one line naming file, place and remedy."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the script: a reply (`message`) or a raw HTTP answer; times in seconds."""

    message: dict[str, Any] | None = None
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    drip: float = 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    turns: tuple[Turn, ...]
    model: str | None = None
    repeat_last: bool = False


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


def parse_turn(value: Any, place: str) -> Turn:
    """Return one turn from its YAML value. Raises ScriptError naming `place` and what is wrong there."""
    _check(isinstance(value, dict), place, "must be a mapping with message, or with status")
    if "message" in value:
        _keys(value, MESSAGE_KEYS, place)
        _check(isinstance(value["message"], dict), f"{place}.message", "must be a mapping with content or tool_calls")
        reason = value.get("finish_reason", "stop")
        _check(isinstance(reason, str), f"{place}.finish_reason", f"must be text, not {reason!r}")
        return Turn(
            message={"role": "assistant", **value["message"]},
            finish_reason=reason,
            usage=_usage(value.get("usage"), f"{place}.usage"),
            delay=_seconds(value.get("delay", 0), f"{place}.delay"),
        )
    _keys(value, RAW_KEYS, place)
    status, headers = value.get("status"), value.get("headers", {})
    good = isinstance(status, int) and 200 <= status <= 599
    _check(good, f"{place}.status", f"must be an HTTP status from 200 to 599, not {status!r}")
    _check(isinstance(headers, dict), f"{place}.headers", f"must be a mapping, not {headers!r}")
    body = value.get("body", "")
    return Turn(
        status=int(status),
        headers={str(name): str(item) for name, item in headers.items()},
        body=(body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass"),
        delay=_seconds(value.get("delay", 0), f"{place}.delay"),
        drip=_seconds(value.get("drip", 0), f"{place}.drip"),
    )


def parse_script(value: Any, name: str) -> Script:
    """Return a script from its YAML value. Raises ScriptError; `name` (the file) begins its text."""
    _keys(value, {"model", "repeat_last", "turns"}, name)
    turns, model, repeat = value.get("turns"), value.get("model"), value.get("repeat_last", False)
    _check(isinstance(turns, list) and bool(turns), f"{name}: turns", "must be a list of at least one turn")
    _check(model is None or isinstance(model, str), f"{name}: model", f"must be text, not {model!r}")
    _check(isinstance(repeat, bool), f"{name}: repeat_last", f"must be true or false, not {repeat!r}")
    parsed = tuple(parse_turn(turn, f"{name}: turns[{number}]") for number, turn in enumerate(turns))
    return Script(parsed, model, repeat)


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


class ScriptedServer(Server):
    """The scripted model, listening."""

    def __init__(self, script: Script, host: str, port: int, *, record: Path | None = None, **tls: Any) -> None:
        """Bind; `record` is appended one JSON line for each request received. Raises ServeError."""
        super().__init__(host, port, ScriptedHandler, **tls)
        self.script = script
        self._record_lock = threading.Lock()
        try:
            self._record = record.open("a", encoding="utf-8") if record else None
        except OSError as error:
            self.server_close()
            raise ServeError(f"cannot write --record {record}: {error.strerror}; give a file in a folder") from None

    def record(self, line: dict[str, Any]) -> None:
        """Append one line to the record, if there is one."""
        if self._record is not None:
            with self._record_lock:
                self._record.write(json.dumps(line) + "\n")
                self._record.flush()


class ScriptedHandler(Handler):
    """Answers /v1/chat/completions from the script and /v1/models with its model's name."""

    server: ScriptedServer

    def do_GET(self) -> None:
        """List the one model."""
        self._record(None)
        if self.path.split("?")[0].rstrip("/") != "/v1/models":
            return self._error(404, f"no {self.path} here")
        name = self.server.script.model or "scripted"
        model = {"id": name, "object": "model", "created": 0, "owned_by": "glasslab"}
        self._json(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer one chat completion."""
        try:
            body = self.read_body(BODY_LIMIT)
        except BadRequestError as error:
            self._record(None)
            return self._error(error.status, str(error))
        request = _request(body)
        messages = request.get("messages") if request else None
        self._record(len(messages) if isinstance(messages, list) else None)
        if self.path.split("?")[0].rstrip("/") != "/v1/chat/completions":
            return self._error(404, f"no {self.path} here")
        if request is None or not isinstance(messages, list):
            return self._error(400, "the request is no JSON object with messages")
        if request.get("stream"):
            return self._error(400, "the scripted model does not stream")
        done = sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)
        turns = self.server.script.turns
        if done >= len(turns) and not self.server.script.repeat_last:
            return self._error(400, f"the script has {len(turns)} turns and turn {done + 1} was asked for")
        self._play(turns[min(done, len(turns) - 1)], request, done)

    def _play(self, turn: Turn, request: dict[str, Any], done: int) -> None:
        if turn.delay:
            time.sleep(turn.delay)
        if turn.message is None:
            if turn.drip:
                return self._drip(turn)
            return self.answer(turn.status, turn.body, "application/json", turn.headers)
        reply: dict[str, Any] = {
            "id": f"gen-{int(time.time())}-{uuid.uuid4().hex[:20]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.server.script.model or request.get("model") or "scripted",
            "choices": [{"index": 0, "message": turn.message, "finish_reason": turn.finish_reason, "logprobs": None}],
        }
        if turn.usage is not None:
            reply["usage"] = turn.usage
        self._json(turn.status, reply)

    def _drip(self, turn: Turn) -> None:
        self.close_connection = True
        self.answer(turn.status, b"", "application/json", turn.headers, length=len(turn.body))
        for byte in turn.body:
            time.sleep(turn.drip)
            self.wfile.write(bytes([byte]))

    def _record(self, messages: int | None) -> None:
        line = {
            "time": time.time(),
            "method": self.command,
            "path": self.path,
            "messages": messages,
            "authorization": "Authorization" in self.headers,
        }
        self.server.record(line)

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def _error(self, status: int, text: str) -> None:
        self._json(status, {"error": {"message": f"scripted model: {text}", "type": "scripted_error", "code": status}})


def _request(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def add_parser(subparsers: Any) -> None:
    """Add `glasslab scripted` to the command line."""
    parser = subparsers.add_parser(
        "scripted",
        help="run a scripted model (OpenAI-compatible) for demos and tests",
        description="Answer /v1/chat/completions from a YAML script. For demos and tests; it checks no key.",
    )
    parser.add_argument("file", metavar="FILE", help="the script, or: sample (the sample question's)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default 8080; 0: any free one)")
    parser.add_argument("--cert", type=Path, help="PEM certificate: speak TLS")
    parser.add_argument("--key", type=Path, help="PEM private key (default: in the certificate's file)")
    parser.add_argument("--record", type=Path, help="append one JSON line for each request received")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 2 with one line on stderr."""
    stop = threading.Event()
    try:
        if args.key and not args.cert:
            raise ServeError(f"--key {args.key} without --cert; give the certificate too")
        context = tls_context(args.cert, args.key) if args.cert else None
        script = load_script(args.file)
        server = ScriptedServer(script, args.host, args.port, record=args.record, context=context)
    except ServeError as error:
        print(f"glasslab: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    scheme = "https" if context else "http"
    print(f"scripted model ({args.file}) on {scheme}://{args.host}:{server.port}/v1", flush=True)
    stop.wait()
    server.stop(seconds=0.2)
    return 0
