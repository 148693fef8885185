"""`glasslab serve`: the service of the appliance, everything imported and warm before it says READY."""

from __future__ import annotations

import argparse
import importlib
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when the service runs: the parser alone has to be quick
    from glasslab.agent import Agent


def add_parser(subparsers: Any) -> None:
    """Add `glasslab serve` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="answer questions on a unix socket",
        description="Answer questions on a unix socket until SIGTERM. Its settings are those of ask.",
    )
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH", help="the socket to listen on")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve; return 0 after SIGTERM or SIGINT, 2 when the configuration or the socket cannot be used."""
    from glasslab.assembly import CONFIGURATION_ERRORS, agent_from_settings
    from glasslab.protection import protect
    from glasslab.service import Service
    from glasslab.service_wire import ServeError

    protect()
    try:
        agent = agent_from_settings()
        service = Service(agent, args.socket, agent.settings.approver_ids)
    except (*CONFIGURATION_ERRORS, ServeError) as error:
        for line in getattr(error, "lines", [str(error)]):
            print(f"glasslab: {line}", file=sys.stderr)
        return 2
    load_modules()
    agent.model.open()

    def warm() -> None:  # a log or a model that is down is for the questions to say, not for the start
        agent.recorder.warm()
        if record_start(agent):
            agent.model.warm()

    threading.Thread(target=warm, name="warm", daemon=True).start()
    service.run()
    agent.close()
    return 0


def record_start(agent: Agent) -> bool:
    """Record, in a session of its own, that the service started; return whether the log acknowledged it.

    What follows opens a connection to the model: like every step it comes after its frame, or not at all.
    """
    from glasslab.frames import frame
    from glasslab.hec_errors import LoggingError

    log = agent.recorder.open(f"service-{uuid.uuid4().hex}")
    try:
        log.commit(frame("service.start", step=0, model=agent.settings.model))
    except LoggingError:
        return False
    finally:
        log.close()
    return True


def load_modules() -> None:
    """Import and run once what a first question would otherwise wait for: MCP's client, its loop, the validator."""
    from anyio.from_thread import start_blocking_portal

    from glasslab.schemas import validate

    importlib.import_module("glasslab.mcp_session")
    with start_blocking_portal():
        pass
    validate({}, {"type": "object", "properties": {}})
