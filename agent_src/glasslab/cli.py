"""The command line. Only the module of the command that was given is imported: `--help` and `ask` stay quick."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from glasslab import __version__
from glasslab.protection import protect

# command -> (module with add_parser(subparsers), one line of help)
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "ask": ("glasslab.asking", "ask the agent one question"),
    "serve": ("glasslab.serving", "answer questions on a unix socket"),
    "approvals": ("glasslab.approving", "list the tool calls that wait for an approval"),
    "approve": ("glasslab.approving", "let a tool call that waits be made"),
    "deny": ("glasslab.approving", "deny a tool call that waits"),
    "trace": ("glasslab.views.command", "show a session frame by frame"),
    "verify": ("glasslab.views.command", "check a session's chain and signatures"),
    "flows": ("glasslab.views.flows", "compare the hypervisor's flows with the sessions' frames"),
    "pin": ("glasslab.pinning", "compare the tools with the lock, or write the lock"),
    "doctor": ("glasslab.doctor", "check settings, log, model and tool server"),
    "collector": ("glasslab.collector.command", "run the embedded stand-in for Splunk"),
    "scripted": ("glasslab.scripted.command", "run a scripted model for demos and tests"),
}

OUTPUT_LOST: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 2 for wrong usage."""
    if arguments is None:  # run as a program: whatever the command, its environment may hold secrets
        protect()
    _ready_streams()
    # Libraries log what others sent, with tracebacks, as it came: all of that is in our own line, fit for a terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("glasslab: interrupted", file=sys.stderr)
        return 8
    except OSError as error:
        if error.errno not in OUTPUT_LOST:
            raise
        if error.errno != errno.EPIPE:  # a reader that went away, as `head` does, needs no word
            print(f"glasslab: cannot write the output: {error.strerror}; give it another place", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain again when it flushes
        return 1


def _ready_streams() -> None:
    """Put /dev/null in the place of streams that are closed, and let no character be one that cannot be printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order they get 0, 1 and 2 again
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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
