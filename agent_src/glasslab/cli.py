"""The command line. Only the module of the command that was given is imported: `--help` and `ask` stay quick."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from glasslab import __version__

# command -> (module with add_parser(subparsers), one line of help)
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "ask": ("glasslab.asking", "ask the agent one question"),
    "serve": ("glasslab.serving", "answer questions on a unix socket"),
    "trace": ("glasslab.views.command", "show a session frame by frame"),
    "verify": ("glasslab.views.command", "check a session's chain and signatures"),
    "pin": ("glasslab.pinning", "compare the tools with the lock, or write the lock"),
    "doctor": ("glasslab.doctor", "check settings, log, model and tool server"),
    "collector": ("glasslab.collector.command", "run the embedded stand-in for Splunk"),
    "scripted": ("glasslab.scripted", "run a scripted model for demos and tests"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("glasslab: interrupted", file=sys.stderr)
        return 8
    except BrokenPipeError:  # the reader of our output went away; Python would complain again when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glasslab", description="An AI agent behind glass: every step acknowledged by its log before the next."
    )
    parser.add_argument("--version", action="version", version=f"glasslab {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = next((word for word in given if not word.startswith("-")), None)
    needed = COMMANDS[chosen][0] if chosen is not None and chosen in COMMANDS else None
    if needed is not None:
        importlib.import_module(needed).add_parser(subparsers)
    for command, (module, text) in COMMANDS.items():
        if module != needed:
            subparsers.add_parser(command, help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
