"""Shared by the agent's tests: a scripted model and a tool server that keep their own records, and an agent on them."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from faulty_hec import FaultyHec
from glasslab import pins
from glasslab.agent import Agent
from glasslab.models import Model
from glasslab.models.endpoint import Place
from glasslab.models.providers import make_model
from glasslab.recorder import Recorder
from glasslab.scripted import ScriptedServer, parse_script
from glasslab.settings import Settings
from glasslab.toolbox import Toolbox
from glasslab.tooltypes import ServerInfo, ToolResult
from glasslab.wire import META_CLOCK

QUESTION = "What was the root cause of the September incident?"
API_KEY = "sk-secret-key-of-the-model"
READ: dict[str, Any] = {
    "name": "read_file",
    "description": "Read one file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
LIST: dict[str, Any] = {
    "name": "list_files",
    "description": "List files.",
    "inputSchema": {"type": "object", "properties": {}},
}


def bare_environment() -> dict[str, str]:
    """What a program needs of this environment, and no setting of the lab's; coverage's own go along."""
    return {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("COVERAGE_")}


def lab_environment(folder: Path, hec_url: str, ca: Path, **more: str) -> dict[str, str]:
    """Return what `glasslab` needs to find a test's log, and more."""
    log = {"HEC_URL": hec_url, "HEC_CA": str(ca), "HEC_TOKEN": "token-of-the-agent"}
    return {**bare_environment(), "HOME": str(folder), **log, "HEC_TOKEN_MCP": "token-of-the-server", **more}


class ScriptedModel:
    """A scripted model; `requests` is what it received, by its own record."""

    def __init__(self, script: object, folder: Path) -> None:
        self._record = folder / f"model-{id(self)}.jsonl"
        self._server = ScriptedServer(parse_script(script, "test"), "127.0.0.1", 0, record=self._record)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.port}/v1"

    @property
    def requests(self) -> int:
        """How many completions were asked for."""
        lines = [json.loads(line) for line in self._record.read_text().splitlines()]
        return sum(line["method"] == "POST" for line in lines)

    def play(self, script: object) -> None:
        """Play another script from now on, and begin the record anew."""
        self._server.play(parse_script(script, "test"))
        self.forget()

    def forget(self) -> None:
        """Begin the record anew."""
        os.truncate(self._record, 0)

    def stop(self) -> None:
        self._server.stop(seconds=0.1)


def turn(*calls: tuple[str, str], content: str | None = None, **more: Any) -> dict[str, Any]:
    """A scripted turn with calls of (name, arguments as text)."""
    message: dict[str, Any] = {"content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    return {"message": message, "finish_reason": "tool_calls" if calls else "stop", "usage": usage, **more}


class StubTools:
    """Stands in for a Toolbox: keeps every call it gets. `fail` is raised by the call with that number."""

    def __init__(self, definitions: Sequence[Mapping[str, Any]] = (LIST, READ)) -> None:
        self.definitions = [dict(item) for item in definitions]
        self.calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.connected: list[dict[str, Any]] = []
        self.closed = 0
        self.instructions: str | None = None
        self.answer: Callable[[str, dict[str, Any]], ToolResult] = lambda name, arguments: ToolResult("a.md", False)

    def start(self) -> None:
        pass

    def connect(self, meta: Mapping[str, Any]) -> ServerInfo:
        self.connected.append(dict(meta))
        said = {META_CLOCK: meta[META_CLOCK] + 1}
        return ServerInfo("2025-11-25", "stub", "1", {}, self.instructions, self.definitions, "initialize", said)

    def list_tools(self, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self.definitions

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments), dict(meta)))
        return self.answer(name, dict(arguments))

    def close(self) -> None:
        self.closed += 1


def make_settings(hec: FaultyHec, ca: Path, model_url: str, **more: Any) -> Settings:
    """Settings of an agent in trace mode; `more` by field name."""
    fields: dict[str, Any] = {
        "hec_url": hec.url,
        "hec_ca": ca,
        "hec_token": "token-of-the-agent",
        "hec_token_mcp": "token-of-the-server",
        "hec_deadline": 5.0,
        "model": "test-model",
        "model_base_url": model_url,
        "model_api_key": API_KEY,
        "model_retries": 0,
        "lab_trace": "full",
        "tool_classes": "stub/*=read, web/*=read, fake/*=read",
    }
    return Settings.load(**(fields | more))


def model_for(settings: Settings, seconds: float) -> Model:
    """The client of the configured model, with less patience."""
    key = settings.model_api_key.get_secret_value() if settings.model_api_key else None
    place = Place(settings.model_base_url, settings.model, key, settings.model_ca, seconds)
    return make_model(settings.model_provider, place)


def make_agent(settings: Settings, toolbox: Callable[[], Any], lock: pins.Lock, model: Model | None = None) -> Agent:
    """An agent on these settings, with a key of its own."""
    model = model or model_for(settings, seconds=10)
    recorder = Recorder(settings.hec(), "agent", Ed25519PrivateKey.generate(), trace=settings.trace)
    return Agent(settings, recorder, model, toolbox, lock)


def stub_lock(tools: StubTools) -> pins.Lock:
    """The lock that these tools match."""
    return {"stub": pins.lock_entry(tools.definitions, tools.instructions)}


def unix_toolbox(path: Path, revision: str = "auto") -> Callable[[], Toolbox]:
    """What makes a connection to a files server."""
    return lambda: Toolbox(f"unix:{path}", revision=revision)


@contextmanager
def scripted_model(script: object, folder: Path) -> Iterator[ScriptedModel]:
    """A scripted model for the time of a test."""
    model = ScriptedModel(script, folder)
    try:
        yield model
    finally:
        model.stop()


def never() -> threading.Event:
    """A stop that nobody sets."""
    return threading.Event()
