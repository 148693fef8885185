"""The loop. Record, then act: the model and the tools are reached through `log.act`, which commits first."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from glasslab import delegate, pinned, pins, session_frames, tool_frames
from glasslab.approvals import Gate, Nobody, Person, policy_of
from glasslab.attachments import Attachments
from glasslab.attempts import Attempts
from glasslab.calling import ModelCalls
from glasslab.context import Call, Context, Continued, conversation, tokens_of
from glasslab.endings import Ended, Findings, Outcome, end_when_over, ending, limit_reached
from glasslab.fitting import fit
from glasslab.inquiry import Attached
from glasslab.models import Message, Model, Reply, Request, Stopped, ToolDefinition
from glasslab.policy import Budget, limits_of
from glasslab.recorder import LoggingError, Recorder, SessionRecorder
from glasslab.screening import Screen
from glasslab.session_words import Words
from glasslab.settings import Settings
from glasslab.toolcalls import ToolCalls
from glasslab.toolset import Connection, Toolset, as_toolset, offered
from glasslab.tooltypes import LogFailedAtServer, ServerInfo, ToolResult
from glasslab.vocabulary import PARENT_FIELDS
from glasslab.wire import META_CLOCK, META_SESSION_ID, META_STEP, META_TOOL_CALL_ID

Watch = Callable[[str], None]
Keep = Callable[[Continued], None]

LAST_TURN: Final = "This is the last turn and no more tools can be called: answer now, from what you have found."


class Agent:
    """Answers questions, one `ask` each; several may run at once, in threads of their own."""

    def __init__(
        self,
        settings: Settings,
        recorder: Recorder,
        model: Model,
        toolbox: Callable[[], Toolset | Connection],
        lock: pins.Lock,
    ) -> None:
        """`toolbox` makes a session's connections, or its one; `lock` holds the pinned tools (pins.read_lock)."""
        self.settings, self.recorder, self.model, self.toolbox, self.lock = settings, recorder, model, toolbox, lock
        self.policy = policy_of(settings)

    def close(self) -> None:
        """Close the idle connections to log and model."""
        self.recorder.close()
        self.model.close()

    def ask(
        self,
        question: str,
        stop: threading.Event,
        watch: Watch | None = None,
        continued: Continued | None = None,
        person: Person | None = None,
        attached: Attached | None = None,
        keep: Keep | None = None,
    ) -> Outcome:
        """Answer one question. Set `stop` to cancel it. Does not raise for what the contract has a status for.

        `watch` gets the model's text as it arrives, before it is on record. `continued` is what was said before.
        `person` decides about calls that wait for an approval; without one they are denied. `attached` is read from
        the tool servers and put beside the question. `keep` gets the conversation, once its end is on record.
        """
        return Session(self, stop, watch, continued, person=person, attached=attached, keep=keep).ask(question)


class Session:
    """One question on its way: its log, its tools, its budget."""

    def __init__(
        self,
        agent: Agent,
        stop: threading.Event,
        watch: Watch | None = None,
        continued: Continued | None = None,
        parent: Mapping[str, Any] | None = None,
        person: Person | None = None,
        attached: Attached | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Open nothing yet but the log's connection; `agent` gives settings, model, lock and the way to the tools.

        `parent` says whose delegate this one is (PARENT_FIELDS).
        """
        settings = agent.settings
        self.agent, self.continued, self.parent, self.person = agent, continued, parent, person or Nobody()
        self.settings, self.lock, self.stop, self.watch = settings, agent.lock, stop, watch
        self.attached, self.keep = attached or Attached(), keep
        self.budget, self.findings = Budget(limits_of(settings)), Findings()
        self.tools = as_toolset(agent.toolbox())
        self.screen = Screen(settings, lambda: self.tools.secrets)
        self.tools.look = partial(end_when_over, stop, self.budget)
        self.said: list[Message] = []  # what the model was sent last
        self.context: Context | None = None
        self.log: SessionRecorder = agent.recorder.open(uuid.uuid4().hex, parent=parent)
        self.words = Words(settings, self.log, self.screen)
        self.model = ModelCalls(settings, agent.model, self.log, self.budget, self.findings, stop)
        self.attempts = Attempts(settings.mcp_retries, self.log, self.budget, stop)
        self.tool_calls = ToolCalls(
            settings,
            self.tools,
            Gate(agent.policy, self.person),
            self.log,
            self.budget,
            self.findings,
            self.screen,
            stop,
            self.meta,
            self.delegate if parent is None and settings.delegate_tools else None,
        )

    def ask(self, question: str) -> Outcome:
        """Answer the question; close what was opened for it."""
        try:
            return self.end("answered", self.run(question))
        except Exception as error:
            return self.fail(error)
        finally:
            self.close()

    def run(self, question: str) -> str:
        """Return the answer. What reaches outside goes through `log.act`: recorded first, then done."""
        log, budget, named = self.log, self.budget, self.continued.named if self.continued else {}
        question, beside = self.words.begin(question, self.attached, named)
        servers = log.act(self.connect)
        pinned.check_tools(servers, self.lock, log, budget.turns)
        reader = Attachments(servers, self.tools, self.lock, log, self.screen, self.attempts, self.meta)
        context = self.begun(self.words.with_attached(question, beside, reader))
        tools, schemas, hashes = self.offer(servers)
        context.overhead = tokens_of(tools) + tokens_of(LAST_TURN)
        while True:
            self.check_limits()
            self.fit(context)
            budget.count_turn()
            asked = self.asking(context, tools)
            call_model = partial(self.complete, servers, asked, hashes)
            reply = log.act(call_model, session_frames.request(budget.turns, asked))
            if not reply.tool_requests:
                log.note(session_frames.decision(budget.turns, "answer"))
                return self.words.shown(budget.turns, reply.content or "")
            calls = context.add_reply(reply, schemas)
            self.decide(calls)
            self.tool_calls.make(calls, context)

    def connect(self) -> Sequence[ServerInfo]:
        """Start or reach the tool servers and list their tools; what they are started from is compared before."""
        pinned.check_files(self.tools, self.lock, self.log)
        self.tools.start()
        self.agent.model.open()  # importing the SDK takes as long as the child takes to start: both at once
        servers = self.tools.connect(self.meta())
        for server in servers:
            self.log.merge(server.meta.get(META_CLOCK))
            self.log.note(*tool_frames.server(server))
        return servers

    def begun(self, question: str) -> Context:
        """Return the conversation as it begins, and let it learn where its results are on record."""
        earlier = self.continued.messages if self.continued else ()
        context = Context(self.settings.system_prompt, question, self.settings.context_tokens, earlier)
        context.results.update(self.continued.results if self.continued else {})
        self.log.on_acknowledged = context.filed
        self.context = context
        return context

    def offer(self, servers: Sequence[ServerInfo]) -> tuple[list[ToolDefinition], dict[str, Any], dict[str, str]]:
        """Return the tools that the model is offered: a delegate's are those that DELEGATE_TOOLS names."""
        taken = [delegate.NAME] if self.settings.delegate_tools else []
        return offered(delegate.chosen(self.tools.offer(servers, taken), self.settings, self.parent is not None))

    def fit(self, context: Context) -> None:
        """Make the conversation fit its limit; end the session when it cannot be made to."""
        for change in fit(context, self.model.sum_up if self.settings.compaction == "model" else None):
            self.log.note(session_frames.reduced(self.budget.turns, context.limit, change))
            self.check_limits()  # a summary takes tokens, and time
        if context.tokens > context.limit:
            text = f"the conversation has {context.tokens} tokens, at most {context.limit}; raise CONTEXT_TOKENS"
            raise Ended("max_tokens_reached", "context_too_large", text)

    def asking(self, context: Context, offered: Sequence[ToolDefinition]) -> Request:
        """Return the next model call; by setting, the last one is told to answer without tools."""
        last = self.settings.last_turn == "answer" and self.budget.on_last_turn
        if last:
            context.add_note(LAST_TURN)
        self.said = list(context.messages())
        return Request(self.said, offered, last, self.watch)

    def complete(self, servers: Sequence[ServerInfo], asked: Request, hashes: dict[str, str]) -> Reply:
        """Make a turn's model call, if the tools are still the pinned ones."""
        if self.budget.turns > 1:  # what was listed at the start may have changed since
            again = self.attempts.make("tools/list", lambda: self.tools.list_again(servers, self.meta()))
            pinned.check_tools(again, self.lock, self.log, self.budget.turns)
        return self.model.make(asked, hashes)

    def delegate(self, call: Call) -> ToolResult:
        """Have a delegate do a part of the work; its budget is a part of this one's."""

        def begin(made: Settings, task: str) -> tuple[Outcome, Budget]:
            agent = copy.copy(self.agent)
            agent.settings = made
            ids = (self.log.session_id, self.budget.turns, call.id)
            child = Session(agent, self.stop, parent=dict(zip(PARENT_FIELDS, ids, strict=True)), person=self.person)
            return child.ask(task), child.budget

        return delegate.hand_over(call, self.settings, self.budget, self.log, self.findings, begin)

    def meta(self, tool_call_id: str | None = None) -> dict[str, Any]:
        """Return what travels with a request to the tool server."""
        meta: dict[str, Any] = {
            META_SESSION_ID: self.log.session_id,
            META_STEP: self.budget.turns,
            META_CLOCK: self.log.clock,
        }
        return meta if tool_call_id is None else {**meta, META_TOOL_CALL_ID: tool_call_id}

    def check_limits(self, tool_calls: int = 0) -> None:
        """End the session when it was cancelled or when a limit forbids to go on."""
        if self.stop.is_set():
            raise Stopped
        limit = self.budget.exceeded(tool_calls)
        if limit is not None:
            raise limit_reached(limit, self.budget)

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
        found = None if answer is not None else self.findings.text()
        so_far = (self.words.shown(self.budget.turns, found) if found else "") or None
        made = partial(self.outcome, status, answer, problem, so_far)
        outcome = self.log.act(made, *session_frames.end(self.budget, status, answer, reason, problem, so_far))
        if self.keep is not None and self.context is not None and self.said:
            messages = conversation(self.said, answer, LAST_TURN)
            self.keep(Continued(self.log.session_id, self.log.head, messages, self.context.known(self.log.session_id)))
        return outcome

    def fail(self, error: Exception) -> Outcome:
        """Record the end that an error brings, and return its outcome."""
        ended = ending(error, self.budget)
        if isinstance(error, LoggingError):
            return self.outcome(ended.status, None, str(ended))
        try:
            return self.end(ended.status, None, ended.reason, str(ended))
        except LoggingError as failure:
            # An end that could not be recorded is the log's failure, unless the log's failure is what ended it.
            first = ended if isinstance(error, LogFailedAtServer) else ending(failure, self.budget)
            return self.outcome(first.status, None, str(first))

    def outcome(self, status: str, answer: str | None, problem: str | None, so_far: str | None = None) -> Outcome:
        """Return the outcome as of now."""
        budget, id_ = self.budget, self.log.session_id
        said = problem if problem is not None else self.words.notice
        return Outcome(status, id_, answer, budget.turns, budget.usage, budget.seconds, said, so_far)

    def close(self) -> None:
        """End the tool server's connection and give back the log's."""
        self.tools.close()
        self.log.close()
