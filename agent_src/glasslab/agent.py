"""The loop. Record, then act: the model and the tools are reached through `log.act`, which commits first."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from glasslab import pins, session_frames
from glasslab.context import Call, Context
from glasslab.models import Model, ModelError, Reply, Stopped, ToolDefinition
from glasslab.policy import Budget, Limits
from glasslab.recorder import LoggingError, Recorder, SessionRecorder
from glasslab.settings import Settings
from glasslab.toolbox import Toolbox
from glasslab.tooltypes import LogFailedAtServer, ServerInfo, ToolResult, ToolServerError
from glasslab.wire import META_CLOCK, META_SESSION_ID, META_STEP, META_TOOL_CALL_ID

LIMIT_REMEDIES = {
    "max_steps_reached": "raise MAX_TURNS or ask for less",
    "max_tool_calls_reached": "raise MAX_TOOL_CALLS or ask for less",
    "max_tokens_reached": "raise MAX_TOTAL_TOKENS or ask for less",
    "deadline_reached": "raise MAX_SECONDS or ask for less",
}
# More than models take, and less than a log takes in one POST: each request to the model is recorded whole.
MAX_CONTEXT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a question ended. `problem` is one line for the user, None when it was answered."""

    status: str
    session_id: str
    answer: str | None
    turns: int
    usage: dict[str, Any]
    seconds: float
    problem: str | None = None


class Ended(Exception):
    """A session that ends without an answer: status of the contract, a fixed reason code, one line for the user."""

    def __init__(self, status: str, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.status, self.reason = status, reason


class Agent:
    """Answers questions, one `ask` each; several may run at once, in threads of their own."""

    def __init__(
        self, settings: Settings, recorder: Recorder, model: Model, toolbox: Callable[[], Toolbox], lock: pins.Lock
    ) -> None:
        """`toolbox` makes a connection for one session; `lock` holds the pinned tools (pins.read_lock)."""
        self.settings, self.recorder, self.model, self.toolbox, self.lock = settings, recorder, model, toolbox, lock

    def close(self) -> None:
        """Close the idle connections to log and model."""
        self.recorder.close()
        self.model.close()

    def ask(self, question: str, stop: threading.Event) -> Outcome:
        """Answer one question. Set `stop` to cancel it. Does not raise for what the contract has a status for."""
        session = Session(self, stop)
        try:
            return session.end("answered", session.run(question))
        except Exception as error:
            return session.fail(error)
        finally:
            session.close()


class Session:
    """One question on its way: its log, its tools, its budget."""

    def __init__(self, agent: Agent, stop: threading.Event) -> None:
        """Open nothing yet but the log's connection; `agent` gives settings, model, lock and the way to the tools."""
        settings = agent.settings
        self.settings, self.model, self.lock, self.stop = settings, agent.model, agent.lock, stop
        self.budget = Budget(
            Limits(settings.max_turns, settings.max_tool_calls, settings.max_total_tokens, settings.max_seconds)
        )
        self.tools = agent.toolbox()
        self.log: SessionRecorder = agent.recorder.open(uuid.uuid4().hex)

    def run(self, question: str) -> str:
        """Return the answer. What reaches outside goes through `log.act`: recorded first, then done."""
        log, budget, context = self.log, self.budget, Context(self.settings.system_prompt, question)
        server = log.act(self.connect, *session_frames.start(self.settings, question))
        self.check_pins(server)
        offered, schemas, hashes = _offer(server)
        while True:
            self.check_limits(context=context)
            budget.count_turn()
            request = session_frames.request(budget.turns, context.messages(), offered)
            reply = log.act(partial(self.complete, context, offered, hashes), request)
            if not reply.tool_requests:
                log.note(session_frames.decision(budget.turns, "answer"))
                return reply.content or ""
            calls = context.add_reply(reply, schemas)
            self.decide(calls)
            for call in calls:
                if call.error is None:
                    result = log.act(partial(self.call, call), session_frames.call_request(budget.turns, call))
                    log.note(*session_frames.call_result(budget.turns, call, result))
                    context.add_result(call, result.text)
                else:
                    log.note(*session_frames.call_refused(budget.turns, call))
                    context.add_result(call, call.error)

    def connect(self) -> ServerInfo:
        """Start or reach the tool server and list its tools."""
        self.tools.start()
        self.model.open()  # importing the SDK takes as long as the child takes to start: both at once
        server = self.tools.connect(self.meta())
        self.log.merge(server.meta.get(META_CLOCK))
        self.log.note(*session_frames.server(server))
        return server

    def complete(self, context: Context, offered: Sequence[ToolDefinition], hashes: dict[str, str]) -> Reply:
        """Make one model call; what came of it is noted, a reply that cannot be used included."""
        try:
            reply = self.model.complete(context.messages(), offered, self.stop, self.budget.seconds_left)
        except ModelError as error:
            if error.reply is not None:
                self.note_reply(error.reply, hashes)
            raise
        self.note_reply(reply, hashes)
        return reply

    def call(self, call: Call) -> ToolResult:
        """Make one tool call."""
        if self.stop.is_set():
            raise Stopped
        self.budget.count_tool_call()
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        result = self.tools.call(call.name, arguments, self.meta(call.id))
        self.log.merge(result.meta.get(META_CLOCK))
        return result

    def meta(self, tool_call_id: str | None = None) -> dict[str, Any]:
        """Return what travels with a request to the tool server."""
        meta: dict[str, Any] = {
            META_SESSION_ID: self.log.session_id,
            META_STEP: self.budget.turns,
            META_CLOCK: self.log.clock,
        }
        return meta if tool_call_id is None else {**meta, META_TOOL_CALL_ID: tool_call_id}

    def note_reply(self, reply: Reply, hashes: dict[str, str]) -> None:
        """Count a reply's tokens and note its frames."""
        self.budget.count_usage(reply.usage)
        self.log.note(*session_frames.reply(self.budget.turns, self.settings.model, hashes, reply))

    def check_pins(self, server: ServerInfo) -> None:
        """End the session when the tools are not the pinned ones, before the model sees anything of them."""
        found = pins.compare(self.lock, server.name, server.definitions, server.instructions)
        if found:
            self.log.note(session_frames.drift(server, found))
            remedy = "look at them, and pin them with `glasslab pin --write` if they are meant"
            raise Ended("tool_drift", "tool_drift", f"tools of {server.name!r} differ from the lock: {found}; {remedy}")

    def check_limits(self, tool_calls: int = 0, context: Context | None = None) -> None:
        """End the session when it was cancelled or when a limit forbids to go on."""
        if self.stop.is_set():
            raise Stopped
        status = self.budget.exceeded(tool_calls)
        if status is not None:
            turns = self.budget.turns
            raise Ended(status, status, f"stopped after {turns} turns: {status}; {LIMIT_REMEDIES[status]}")
        if context is not None and context.bytes > MAX_CONTEXT_BYTES:
            text = f"the conversation has {context.bytes} bytes, at most {MAX_CONTEXT_BYTES}; ask for less"
            raise Ended("max_tokens_reached", "context_too_large", text)

    def decide(self, calls: Sequence[Call]) -> None:
        """Note what the loop decides about a reply's calls: run them, or stop at a limit."""
        try:
            self.check_limits(len(calls))
        except Ended as limit:
            self.log.note(session_frames.decision(self.budget.turns, "stop", calls, limit.reason))
            raise
        self.log.note(session_frames.decision(self.budget.turns, "run_tools", calls))

    def end(self, status: str, answer: str | None, reason: str | None = None, problem: str | None = None) -> Outcome:
        """Record the end; only then the outcome, with the answer, is there to show. Raises LoggingError."""
        made = partial(self.outcome, status, answer, problem)
        return self.log.act(made, *session_frames.end(self.budget, status, answer, reason, problem))

    def fail(self, error: Exception) -> Outcome:
        """Record the end that an error brings, and return its outcome."""
        ended = _ended(error, self.budget)
        if isinstance(error, LoggingError):
            return self.outcome(ended.status, None, str(ended))
        try:
            return self.end(ended.status, None, ended.reason, str(ended))
        except LoggingError as failure:
            # An end that could not be recorded is the log's failure, unless the log's failure is what ended it.
            first = ended if isinstance(error, LogFailedAtServer) else _ended(failure, self.budget)
            return self.outcome(first.status, None, str(first))

    def outcome(self, status: str, answer: str | None, problem: str | None) -> Outcome:
        """Return the outcome as of now."""
        budget = self.budget
        return Outcome(status, self.log.session_id, answer, budget.turns, budget.usage, budget.seconds, problem)

    def close(self) -> None:
        """End the tool server's connection and give back the log's."""
        self.tools.close()
        self.log.close()


def _offer(server: ServerInfo) -> tuple[list[ToolDefinition], dict[str, Any], dict[str, str]]:
    """Return the pinned tools as the model is offered them, their schemas, and the hashes of their definitions."""
    offered, schemas, hashes = [], {}, {}
    for definition in server.definitions:
        name, schema = definition["name"], definition["inputSchema"]
        function = {"name": name, "description": definition.get("description", ""), "parameters": schema}
        offered.append({"type": "function", "function": function})
        schemas[name], hashes[name] = schema, pins.definition_sha256(definition)
    return offered, schemas, hashes


def _ended(error: Exception, budget: Budget) -> Ended:
    """Return the end that an error means."""
    match error:
        case Ended():
            return error
        case Stopped():
            return Ended("cancelled", "cancelled", "cancelled; the question was not answered")
        case ModelError() if error.reason == "timeout" and budget.seconds_left == 0.0:
            status = "deadline_reached"
            return Ended(status, status, f"stopped after {budget.seconds:g} s: {status}; {LIMIT_REMEDIES[status]}")
        case ModelError():
            return Ended(error.status, error.reason, str(error))
        case ToolServerError():
            remedy = "" if "; " in str(error) else "; check the tool server and MCP_SERVER"
            return Ended(error.status, error.status, f"{error}{remedy}")
        case LogFailedAtServer():
            line = str(LoggingError(error.status, error.url, f"the tool server's log: {error.cause}", error.remedy))
            return Ended(error.status, "server_log", line)
        case LoggingError():
            return Ended(error.status, error.status, str(error))
    trace, where = error.__traceback__, "unknown place"
    while trace is not None:
        where, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return Ended("internal_error", "internal_error", f"internal error at {where}: {type(error).__name__}: {error}")
