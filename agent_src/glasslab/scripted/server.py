"""The scripted model, listening: which turn a request gets, and how it is answered."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final

from glasslab.httpserver import BadRequestError, Handler, ServeError, Server
from glasslab.scripted import wires
from glasslab.scripted.script import Script, Turn
from glasslab.scripted.strict import chat_problem, messages_problem

BODY_LIMIT: Final = 32 * 1024 * 1024
PROBLEMS: Final = {wires.CHAT: chat_problem, wires.MESSAGES: messages_problem}


class ScriptedServer(Server):
    """The scripted model, listening."""

    def __init__(self, script: Script, host: str, port: int, *, record: Path | None = None, **tls: Any) -> None:
        """Bind; `record` is appended one JSON line for each request received. Raises ServeError."""
        super().__init__(host, port, ScriptedHandler, **tls)
        self.script = script
        self._asked: dict[bytes, int] = {}
        self._record_lock = threading.Lock()
        try:
            self._record = record.open("a", encoding="utf-8") if record else None
        except OSError as error:
            self.server_close()
            raise ServeError(f"cannot write --record {record}: {error.strerror}; give a file in a folder") from None

    def play(self, script: Script) -> None:
        """Play another script from now on."""
        with self._record_lock:
            self.script = script
            self._asked.clear()

    def record(self, line: dict[str, Any]) -> None:
        """Append one line to the record, if there is one."""
        if self._record is not None:
            with self._record_lock:
                self._record.write(json.dumps(line) + "\n")
                self._record.flush()

    def attempt(self, answers: tuple[Turn, ...], body: bytes) -> Turn:
        """Return the answer that this request gets: the next one of the turn's, when it came before."""
        if len(answers) == 1:
            return answers[0]
        key = hashlib.sha256(body).digest()
        with self._record_lock:
            number = self._asked.pop(key, 0)
            if number + 1 < len(answers):  # after the last one it begins anew: the next session may ask the same
                self._asked[key] = number + 1
        return answers[number]


class ScriptedHandler(Handler):
    """Answers both APIs from the script, and /v1/models with its model's name."""

    server: ScriptedServer

    @property
    def _where(self) -> str:
        return self.path.split("?")[0].rstrip("/")

    def do_GET(self) -> None:
        """List the one model."""
        self._record(None)
        if self._where != "/v1/models":
            return self._error(404, f"no {self.path} here")
        name = self.server.script.model or "scripted"
        model = {"id": name, "object": "model", "created": 0, "owned_by": "glasslab"}
        self._json(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer one call."""
        try:
            body = self.read_body(BODY_LIMIT)
        except BadRequestError as error:
            self._record(None)
            return self._error(error.status, str(error))
        request = _request(body)
        messages = request.get("messages") if request else None
        self._record(len(messages) if isinstance(messages, list) else None)
        if self._where not in PROBLEMS:
            return self._error(404, f"no {self.path} here")
        if request is None or not isinstance(messages, list):
            return self._error(400, "the request is no JSON object with messages")
        problem = self._problem(request) if self.server.script.strict else None
        if problem is not None:
            return self._error(400, f"refused as a real one would: {problem}")
        said = json.dumps(messages[-1], ensure_ascii=False) if messages else ""
        special = next((turn for text, turn in self.server.script.when if text in said), None)
        if special is not None:
            return self._play(special, request)
        done = _turns_done(messages, self.server.script.each_question)
        turns = self.server.script.turns
        if done >= len(turns) and not self.server.script.repeat_last:
            return self._error(400, f"the script has {len(turns)} turns and turn {done + 1} was asked for")
        self._play(self.server.attempt(turns[min(done, len(turns) - 1)], body), request)

    def _problem(self, request: dict[str, Any]) -> str | None:
        try:
            return PROBLEMS[self._where](request, dict(self.headers))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            return f"not of the API's form ({type(error).__name__}: {error})"

    def _play(self, turn: Turn, request: dict[str, Any]) -> None:
        if turn.delay:
            time.sleep(turn.delay)
        if turn.fault in ("reset", "hang_up"):
            return self._leave(reset=turn.fault == "reset")
        if turn.message is None and turn.content is None:
            if turn.drip:
                return self._drip(turn)
            return self._send(turn, turn.body, "application/json")
        model = self.server.script.model or request.get("model") or "scripted"
        whole = wires.reply(self._where, turn, model)
        if whole is None:
            return self._error(400, "this turn is written for Anthropic Messages (content); give it as message")
        if request.get("stream"):
            return self._send(turn, wires.streamed(self._where, whole), "text/event-stream")
        self._send(turn, json.dumps(whole).encode(), "application/json")

    def _send(self, turn: Turn, body: bytes, content_type: str) -> None:
        if turn.fault != "cut":
            return self.answer(turn.status, body, content_type, turn.headers)
        self.close_connection = True
        self.answer(turn.status, body[: len(body) // 2], content_type, turn.headers, length=len(body))

    def _leave(self, *, reset: bool) -> None:
        """End the connection without an answer, politely or with a reset."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.socket.close(self.connection)

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
            "authorization": "Authorization" in self.headers or "x-api-key" in self.headers,
        }
        self.server.record(line)

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def _error(self, status: int, text: str) -> None:
        self._json(status, wires.error(self._where, status, text))


def _request(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _turns_done(messages: list[Any], each_question: bool) -> int:
    """Return how many replies stand in a conversation, or after its last question."""
    done = 0
    for message in (item for item in messages if isinstance(item, dict)):
        if message.get("role") == "assistant":
            done += 1
        elif each_question and message.get("role") == "user" and "tool_result" not in json.dumps(message):
            done = 0  # Anthropic's form puts the results of tools into a user's message
    return done
