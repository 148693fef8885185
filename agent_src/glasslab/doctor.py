"""`glasslab doctor`: check settings, log, model and tool server, one line each. It asks no question."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `glasslab doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="check settings, log, model and tool server",
        description="Check what a question needs, without asking one. The log takes one request without events.",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return 0 when all is well, 2 when the configuration is wrong, 1 when something does not answer."""
    from glasslab.assembly import CONFIGURATION_ERRORS, agent_from_settings
    from glasslab.hec import HecConnection
    from glasslab.hec_errors import LoggingError

    try:
        agent = agent_from_settings()
    except CONFIGURATION_ERRORS as error:
        for line in getattr(error, "lines", [str(error)]):
            print(f"glasslab: {line}", file=sys.stderr)
        return 2
    print("settings  ok")
    good = True
    connection = HecConnection(agent.recorder.hec)
    try:
        connection.check()
        print(f"log       ok  {agent.recorder.hec.url}, token accepted")
    except LoggingError as error:
        good = False
        print(f"log       {error.url}: {error.cause}; {error.remedy}")
    finally:
        connection.close()
    settings = agent.settings
    problem = agent.model.problem()
    good = good and problem is None
    print(f"model     {problem or 'ok  ' + settings.model_base_url}")
    if settings.mcp_server == "stdio":
        print(f"tools     started for each question, documents in {settings.lab_documents}")
    else:
        tools = agent.toolbox()
        with contextlib.closing(tools):
            try:
                tools.start()
                print(f"tools     ok  {settings.mcp_server}")
            except Exception as error:
                good = False
                print(f"tools     {error}")
    agent.close()
    return 0 if good else 1
