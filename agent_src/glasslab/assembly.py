"""Puts an agent together from the settings: recorder, model, tool connection, lock. Used by ask, serve and pin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from glasslab import delegate, pins
from glasslab.agent import Agent
from glasslab.approval_rules import BUILT_IN, parse_classes, read_rules, unmatched
from glasslab.keys import KeyFileError
from glasslab.models import Model
from glasslab.models.endpoint import Place
from glasslab.models.providers import make_model as model_at
from glasslab.recorder import Recorder
from glasslab.settings import Settings, SettingsError
from glasslab.toolbox import REQUEST_TIMEOUT, Toolbox, files_server, lab_server
from glasslab.toolset import PROMPTS, Member, Toolset, prefixed
from glasslab.tooltypes import ServerCommand, ServerUrl

_SHOWN: Final = 20  # names of tools in a message
CONFIGURATION_ERRORS: Final = (SettingsError, KeyFileError, pins.LockError)  # each text is one line for the user


def agent_from_settings() -> Agent:
    """Return an agent; nothing is opened yet. Raises CONFIGURATION_ERRORS."""
    settings = Settings.load()
    lock = pins.read_lock()
    check_names(settings, lock)
    if settings.mcp_server == "stdio":
        load_server_key(settings)
    return Agent(settings, make_recorder(settings), make_model(settings), toolbox_maker(settings), lock)


def check_names(settings: Settings, lock: pins.Lock) -> None:
    """Compare the tools that the settings name with the lock: what it lacks no session has. Raises SettingsError.

    A name that nothing has would say nothing: of a tool whose class was to be stricter, all would stay as it is.
    """
    tools = {server: set(entry["tools"]) for server, entry in lock.items() if not server.endswith(PROMPTS)}
    classed = {**tools, BUILT_IN: {delegate.NAME}}
    places = [f"{server}/{tool}" for server in classed for tool in classed[server]]
    for name in parse_classes(settings.tool_classes):
        server, _, tool = name.partition("/")
        if server not in classed or (tool != "*" and tool not in classed[server]):
            raise _unknown("TOOL_CLASSES", name, places)
    if settings.approval_rules is not None and (about := unmatched(read_rules(settings.approval_rules), classed)):
        raise _unknown("APPROVAL_RULES", about, places)
    # A name that several servers have is offered with its server's before it.
    offered = {name for server in tools for tool in tools[server] for name in (tool, prefixed(server, tool))}
    for name in (settings.delegate_tools or "").split(","):
        if name and name not in offered:
            raise _unknown("DELEGATE_TOOLS", name, [tool for server in tools for tool in tools[server]])


def _unknown(setting: str, name: str, known: Sequence[str]) -> SettingsError:
    there = ", ".join(sorted(known)[:_SHOWN]) or "none"
    return SettingsError(
        f"{setting}: {name[:80]!r} is no tool of the lock, which has {there}; correct it, or pin first"
    )


def load_server_key(settings: Settings) -> None:
    """Make the tool server's key where it is missing, so that a broken one is said before a child dies of it."""
    from glasslab.keys import load_signing_key

    if settings.signing_key_mcp_file is not None:
        load_signing_key(settings.signing_key_mcp_file, make=False)
    else:
        load_signing_key(settings.signing_key_mcp, make=True)


def make_recorder(settings: Settings) -> Recorder:
    """Return the agent's recorder. Raises KeyFileError."""
    recorder = Recorder(settings.hec(), "agent", settings.key(), trace=settings.trace)
    if settings.lab_spans != "off":
        from glasslab.spans import make_spans

        recorder.observer = make_spans(settings.lab_spans, settings.model_provider)
    return recorder


def make_model(settings: Settings) -> Model:
    """Return the client of the configured model."""
    key = settings.model_api_key.get_secret_value() if settings.model_api_key else None
    place = Place(
        settings.model_base_url,
        settings.model,
        key,
        settings.model_ca,
        seconds=settings.model_seconds,
        max_tokens=settings.model_max_tokens,
    )
    return model_at(settings.model_provider, place)


def toolbox_maker(settings: Settings) -> Callable[[], Toolset]:
    """Return what makes the tool connections of one session. Raises SettingsError for a file of servers."""
    own = files_server(settings.server_environment()) if settings.mcp_server == "stdio" else settings.mcp_server
    others = []
    if settings.mcp_servers is not None:
        from glasslab.mcp_servers import read_servers

        others = read_servers(settings.mcp_servers)
    # A call commits at most twice at the server; its log's deadline has to pass there before the agent gives up here.
    timeout = REQUEST_TIMEOUT + 2 * settings.hec_deadline

    more = {
        "lab-outbox": ("OUTBOX_SERVER", settings.outbox_server, "outbox", settings.outbox_environment()),
        "lab-notes": (
            "NOTES_SERVER",
            settings.notes_server,
            "notes",
            settings.notes_environment(settings.lab_documents),
        ),
        "weather": ("WEATHER_SERVER", settings.weather_server, "weather", {}),
    }

    def connection(server: ServerCommand | ServerUrl | str) -> Toolbox:
        return Toolbox(
            server, revision=settings.mcp_revision, timeout=timeout, max_result_bytes=settings.max_result_bytes
        )

    def members() -> list[Member]:
        found = [Member(connection(own))]
        for key, (setting, place, name, environment) in more.items():
            if place != "off":
                server = lab_server(name, environment) if place == "stdio" else place
                found.append(Member(connection(server), key, setting=setting))
        return found + [Member(connection(item.server), item.name, item.files) for item in others]

    return lambda: Toolset(members())
