"""OpenTelemetry GenAI spans of the frames that the log has acknowledged: never in HEC's place.

Off by default. Where they go is said by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like); the
SDK is the extra `glasslab[otel]`. They are made of summary events, after the acknowledgement, and sent by a thread of
the SDK's: an exporter that fails, hangs or is full neither ends nor holds up a session, and is said once on stderr.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from glasslab.frames import Event
from glasslab.settings_sources import SettingsError

if TYPE_CHECKING:  # an extra: see make_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

AGENT_NAME: Final = "glasslab"
FLUSH_SECONDS: Final = 1.0  # what the end of the process waits for spans that are not sent yet
MAX_OPEN: Final = 1_000  # sessions whose end was never recorded are forgotten


class _SaidOnce(logging.Handler):
    """The SDK's own word on its failures, once and as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        print(f"glasslab: spans are not sent ({record.name}); the log is not concerned", file=sys.stderr)


class Spans:
    """Turns a writer's acknowledged events into spans."""

    def __init__(self, provider: TracerProvider, provider_name: str, content: bool = False) -> None:
        """`provider_name` is the model's (openai, anthropic); with `content`, arguments and answers are in them too."""
        self._provider, self._content = provider, content
        self._common = {"gen_ai.provider.name": provider_name, "gen_ai.agent.name": AGENT_NAME}
        self._tracer = provider.get_tracer("glasslab")
        self._open: dict[str, Span] = {}

    def observe(self, events: Sequence[Event]) -> None:
        """Take the events of one commit. Never raises: nothing here is the session's matter."""
        with contextlib.suppress(Exception):
            for event in events:
                self._take(event)

    def close(self) -> None:
        """Send what is left, for FLUSH_SECONDS at most."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(FLUSH_SECONDS)

    def _take(self, event: Event) -> None:
        session = event["session_id"]
        match event["kind"]:
            case "session.start":
                if len(self._open) >= MAX_OPEN:
                    self._open.pop(next(iter(self._open))).end()
                self._open[session] = self._begin("invoke_agent", AGENT_NAME, event, 0.0)
            case "llm":
                self._done(self._begin("chat", event["model"], event, event["duration_ms"], _usage(event)))
            case "llm.failed":
                self._done(self._begin("chat", event["model"], event, 0.0, {"error.type": event["reason"]}))
            case "toolcall":
                # What was refused is the model's word: a name that no server gave to a tool.
                told = self._content or not event["refused"]
                tool = event["tool"] if told else "refused"
                more = {"gen_ai.tool.name": tool}
                if told:
                    more["gen_ai.tool.call.id"] = event["tool_call_id"]
                if event["is_error"]:
                    more["error.type"] = "refused" if event["refused"] else "tool_error"
                if self._content:
                    more["gen_ai.tool.call.arguments"] = json.dumps(event["arguments"])
                self._done(self._begin("execute_tool", tool, event, event["duration_ms"], more))
            case "agent.final" if self._content and session in self._open and event.get("answer"):
                said = [{"role": "assistant", "parts": [{"type": "text", "content": event["answer"]}]}]
                self._open[session].set_attribute("gen_ai.output.messages", json.dumps(said))
            case "session.end":
                span = self._open.pop(session, None)
                if span is not None:
                    if event["status"] != "answered":
                        span.set_attribute("error.type", event["status"])
                    span.set_attribute("glasslab.turns", event["turns"])
                    span.end()

    def _begin(
        self, operation: str, of: str, event: Event, duration_ms: float, more: dict[str, Any] | None = None
    ) -> Span:
        from opentelemetry import trace
        from opentelemetry.context import Context

        root = self._open.get(event["session_id"])
        attributes = {
            **self._common,
            "gen_ai.operation.name": operation,
            "gen_ai.conversation.id": event["session_id"],
            **({"gen_ai.request.model": event["model"]} if "model" in event else {}),
            **(more or {}),
        }
        return self._tracer.start_span(
            f"{operation} {of}",
            context=trace.set_span_in_context(root) if root is not None else Context(),
            kind=trace.SpanKind.INTERNAL if operation != "chat" else trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=time.time_ns() - int(duration_ms * 1e6),
        )

    def _done(self, span: Span) -> None:
        from opentelemetry.trace import StatusCode

        attributes = getattr(span, "attributes", None) or {}
        if "error.type" in attributes:
            span.set_status(StatusCode.ERROR)
        span.end()


def _usage(event: Event) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": event["prompt_tokens"],
        "gen_ai.usage.output_tokens": event["completion_tokens"],
        "gen_ai.response.finish_reasons": [event["finish_reason"] or "unknown"],
    }


def make_spans(mode: str, provider_name: str) -> Spans | None:
    """Return what observes the recorder for LAB_SPANS (off, on, content). Raises SettingsError without the SDK."""
    if mode == "off":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        text = f"LAB_SPANS: {mode!r} needs OpenTelemetry's SDK; install glasslab[otel], or set LAB_SPANS=off"
        raise SettingsError(text) from None
    log = logging.getLogger("opentelemetry")
    log.propagate = False
    log.addHandler(_SaidOnce(logging.WARNING))
    provider = TracerProvider(resource=Resource.create({"service.name": AGENT_NAME}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Spans(provider, provider_name, content=mode == "content")
