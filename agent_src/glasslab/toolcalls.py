"""A reply's tool calls: let through or not, recorded, made, and their results given to the conversation.

One after the other, as the model asked; by setting those that only read, and follow each other, at the same time. Then
too each request is on record before the call is made, and all results before whatever comes next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from glasslab import delegate, tool_frames
from glasslab.approvals import Gate
from glasslab.attempts import Attempts
from glasslab.context import Call, Context
from glasslab.endings import Findings, limit_reached
from glasslab.models import Stopped
from glasslab.policy import Budget
from glasslab.recorder import SessionRecorder
from glasslab.screening import Screen
from glasslab.settings import Settings
from glasslab.toolset import Toolset
from glasslab.tooltypes import ToolResult, ToolServerError
from glasslab.wire import META_CLOCK

Meta = Callable[[str], dict[str, Any]]  # of a tool call's id: what travels with it


class ToolCalls:
    """The calls of one session."""

    def __init__(
        self,
        settings: Settings,
        tools: Toolset,
        gate: Gate,
        log: SessionRecorder,
        budget: Budget,
        findings: Findings,
        screen: Screen,
        stop: threading.Event,
        meta: Meta,
        delegated: Callable[[Call], ToolResult] | None,
    ) -> None:
        """`delegated` has a delegate do what its call asks for; None where there is none."""
        self._settings, self._tools, self._gate, self._log = settings, tools, gate, log
        self._budget, self._findings, self._screen, self._stop = budget, findings, screen, stop
        self._meta, self._delegated = meta, delegated
        self._attempts = Attempts(settings.mcp_retries, log, budget, stop)

    def make(self, calls: Sequence[Call], context: Context) -> None:
        """Make a reply's calls. Raises what ends a session."""
        for group in self._groups(calls):
            if group[0].error is not None:
                self._log.note(*tool_frames.call_refused(self._budget.turns, group[0]))
                context.add_result(group[0], group[0].error, is_error=True)
                continue
            for call, result in zip(group, self._made(group), strict=True):
                self._log.note(*self._screen.result(self._budget.turns, call, result.text))
                context.add_result(call, self._screen.marked(call, result.text), result.is_error, result.text)

    def _groups(self, calls: Sequence[Call]) -> Iterator[list[Call]]:
        """Yield the calls that are made at the same time, most often one; one that must not be made stands alone.

        Raises Ended when a limit was reached on the way.
        """
        together: list[Call] = []
        for number, requested in enumerate(calls):
            limit = self._budget.exceeded(len(together) + 1)
            if limit is not None:  # a delegate before it took what was left; no person is asked about it either
                if together:
                    yield together
                self._end(calls[number:], limit)
            alone = not self._only_reads(requested)
            if together and (alone or len(together) == self._settings.parallel_calls):
                yield together
                together = []
            call = self._gate.passed(requested, self._tools.origins, self._log, self._budget, self._stop)
            if not alone and call.error is None:
                together.append(call)
                continue
            if together:  # it was denied: after those before it
                yield together
                together = []
            yield [call]
        if together:
            yield together

    def _end(self, calls: Sequence[Call], limit: str) -> NoReturn:
        """Note that these calls are not made, and end the session at its limit."""
        for call in calls:
            refused = call if call.error else replace(call, reason=limit, error=f"Error: not run: {limit}")
            self._log.note(*tool_frames.call_refused(self._budget.turns, refused))
        raise limit_reached(limit, self._budget)

    def _only_reads(self, call: Call) -> bool:
        several = self._settings.parallel_calls > 1 and call.error is None
        own = call.name == delegate.NAME and self._delegated is not None
        return several and not own and self._gate.reads(call.name, self._tools.origins)

    def _made(self, group: Sequence[Call]) -> list[ToolResult]:
        turn = self._budget.turns
        if group[0].name == delegate.NAME and self._delegated is not None:
            asked = tool_frames.delegate_request(turn, group[0])
            return [self._log.act(partial(self._delegated, group[0]), asked)]
        requests = [tool_frames.call_request(turn, call) for call in group]
        done = self._log.act(partial(self._called, group), *requests)
        results: list[ToolResult] = []
        failure: Exception | None = None
        for call, result in zip(group, done, strict=True):
            if isinstance(result, ToolServerError) and self._may_repeat(call):
                result = self._again(call, result)
            if isinstance(result, Exception):
                failure = failure or result
                continue
            self._log.merge(result.meta.get(META_CLOCK))
            self._findings.ran(call.name, _arguments(call), len(result.text))
            self._log.note(*tool_frames.call_result(turn, call, result))
            results.append(result)
        if failure is not None:  # what the others gave is on record all the same
            raise failure
        return results

    def _again(self, call: Call, failed: ToolServerError) -> ToolResult | ToolServerError:
        ask = partial(self._tools.call, call.name, _arguments(call), self._meta(call.id))
        try:
            return self._attempts.make("tools/call", ask, failed, tool_call_id=call.id)
        except ToolServerError as error:
            return error

    def _called(self, group: Sequence[Call]) -> list[ToolResult | Exception]:
        """Make the calls of a group; return what each of them gave, or raised."""
        if self._stop.is_set():
            raise Stopped
        for _ in group:
            self._budget.count_tool_call()
        asked = [partial(self._tools.call, call.name, _arguments(call), self._meta(call.id)) for call in group]
        if len(asked) == 1:
            return [_outcome(asked[0])]
        with ThreadPoolExecutor(len(asked), "tool") as pool:
            return list(pool.map(_outcome, asked))

    def _may_repeat(self, call: Call) -> bool:
        """Whether a tool may be called again: by setting, and when it both only reads and says that it may."""
        _, _, definition = self._tools.origins.get(call.name, ("", "", {}))
        hints = definition.get("annotations")
        said = isinstance(hints, Mapping) and hints.get("readOnlyHint") is True and hints.get("idempotentHint") is True
        return said and self._settings.retry_calls == "annotated" and self._gate.reads(call.name, self._tools.origins)


def _arguments(call: Call) -> dict[str, Any]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def _outcome(ask: Callable[[], ToolResult]) -> ToolResult | Exception:
    try:
        return ask()
    except Exception as error:  # of one of several: the others' results are recorded before it is raised
        return error
