"""OpenTelemetry spans of a session: of what the log acknowledged, without content, and never the session's matter."""

import json
import logging
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent_bench import ANSWER, Bench
from agent_lab import QUESTION, make_agent, make_settings, never, stub_lock, turn
from glasslab.assembly import make_recorder
from glasslab.settings import SettingsError
from glasslab.spans import Spans, make_spans

READS = turn(("read_file", '{"path": "a.md"}'))


def ask(bench: Bench, observer: Any, *turns: dict[str, Any], **settings: Any) -> Any:
    """Ask with an observer at the recorder."""
    bench.model.play({"turns": list(turns)})
    made = make_settings(bench.hec, bench.ca, bench.model.url, **settings)
    agent = make_agent(made, lambda: bench.tools, stub_lock(bench.tools))
    agent.recorder.observer = observer
    try:
        return agent.ask(QUESTION, never())
    finally:
        agent.close()


def collected(content: bool = False) -> tuple[Spans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider, "openai", content), exporter


def text_of(spans: Sequence[ReadableSpan]) -> str:
    return "".join(span.to_json() for span in spans)


@pytest.mark.parametrize("trace", ["summary", "full"])
def test_a_session_is_one_trace_with_the_names_of_the_convention(bench: Bench, trace: str) -> None:
    observer, exporter = collected()
    outcome = ask(bench, observer, READS, ANSWER, lab_trace=trace)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == [
        "chat test-model", "execute_tool read_file", "chat test-model", "invoke_agent glasslab",
    ]  # fmt: skip
    root = spans[-1]
    for span in spans:
        assert span.attributes is not None
        assert span.attributes["gen_ai.conversation.id"] == outcome.session_id
        assert span.attributes["gen_ai.provider.name"] == "openai"
        assert span.parent is None or (root.context and span.parent.span_id == root.context.span_id)
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
    chat, tool = spans[0].attributes, spans[1].attributes
    assert chat is not None
    assert tool is not None
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (10, 2)
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("read_file", "c0")
    shown = text_of(spans)
    assert not [word for word in ("a.md", "The answer.", QUESTION) if word in shown], (
        "no content unless a setting says so"
    )


@pytest.mark.parametrize(("setting", "content"), [("off", None), ("on", False), ("content", True)])
def test_the_setting_says_whether_there_are_any_and_with_what(
    bench: Bench, clean_home: Path, monkeypatch: pytest.MonkeyPatch, setting: str, content: bool | None
) -> None:
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "handlers", [])  # what it adds there goes with the test
    made = make_recorder(make_settings(bench.hec, bench.ca, "http://127.0.0.1:9/v1", lab_spans=setting))
    assert (made.observer is None) == (content is None)
    if isinstance(made.observer, Spans):
        assert made.observer._content is content
    made.close()


def test_content_is_in_them_by_setting(bench: Bench) -> None:
    observer, exporter = collected(content=True)
    ask(bench, observer, READS, ANSWER)
    spans = exporter.get_finished_spans()
    assert spans[1].attributes is not None
    assert spans[1].attributes["gen_ai.tool.call.arguments"] == json.dumps({"path": "a.md"})
    assert spans[-1].attributes is not None
    assert "The answer." in str(spans[-1].attributes["gen_ai.output.messages"])


def test_what_went_wrong_is_an_error(bench: Bench) -> None:
    observer, exporter = collected()
    ask(bench, observer, turn(("no_such_tool", "{}")), {"status": 500, "body": "no"})
    spans = exporter.get_finished_spans()
    errors = [span.attributes["error.type"] for span in spans if span.attributes and "error.type" in span.attributes]
    assert errors == ["refused", "http_500", "model_unreachable"]
    assert "no_such_tool" not in "".join(span.to_json() for span in spans), "the model's word is content"


def test_only_what_is_acknowledged_is_a_span(bench: Bench) -> None:
    observer, exporter = collected()
    bench.hec.reset(3, "busy")
    assert ask(bench, observer, READS, ANSWER).status == "log_rejected"
    assert exporter.get_finished_spans() == ()


class Broken:
    """An observer's provider that fails at every turn."""

    def get_tracer(self, name: str) -> Any:
        return self

    def start_span(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    def shutdown(self) -> None:
        threading.Event().wait(60)


def test_an_observer_that_fails_and_hangs_is_not_the_sessions_matter(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glasslab.spans.FLUSH_SECONDS", 0.05)
    broken: Any = Broken()
    assert ask(bench, Spans(broken, "openai"), READS, ANSWER).status == "answered"


def test_an_endpoint_that_is_not_there_is_said_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    observer = make_spans("on", "openai")
    assert ask(bench, observer, READS, ANSWER).status == "answered"
    said = [line for line in capsys.readouterr().err.splitlines() if "spans" in line]
    assert len(said) == 1
    assert "the log is not concerned" in said[0]


def test_off_is_off_and_a_missing_sdk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_spans("off", "openai") is None
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"LAB_SPANS: 'on' needs OpenTelemetry's SDK; install glasslab\[otel\]"):
        make_spans("on", "openai")
