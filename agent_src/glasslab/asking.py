"""`glasslab ask`: one question, answered in this process or by a running service."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from glasslab.guardrails import visible_line, visible_text
from glasslab.queries import session_search
from glasslab.statuses import (
    EXIT_CODES,
    JSON_FIELDS,
    MAX_QUESTION_CHARACTERS,
    USAGE_ERROR,
    Result,
    question_problem,
    refused,
)

_EXPECTED = {*JSON_FIELDS, "problem"}


def add_parser(subparsers: Any) -> None:
    """Add `glasslab ask` to the command line."""
    parser = subparsers.add_parser(
        "ask",
        help="ask the agent one question",
        description="Ask one question and print the answer, the session id and the search that rebuilds the session.",
    )
    parser.add_argument("question", metavar="QUESTION", nargs="?", help="the question; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help=f"print one object: {', '.join(JSON_FIELDS)}")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", type=Path, metavar="PATH", help="put it to the service that listens there")
    where.add_argument("--stream", action="store_true", help="also show the model's text on stderr as it arrives")
    parser.add_argument("--session", metavar="ID", help="go on with that session, which is read from the log")
    parser.add_argument(
        "--prompt",
        nargs="+",
        metavar=("NAME", "KEY=VALUE"),
        help="begin with a prompt of a tool server, by NAME or SERVER/NAME, with its arguments",
    )
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="URI",
        help="put a resource of a tool server beside the question, by URI or SERVER/URI (repeatable)",
    )
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Ask, print, and return the exit code of the contract."""
    if args.question is None and not args.prompt:
        args.usage("give a QUESTION, or a --prompt")
    question = _question(args.question or "")
    problem = question_problem(question) if question or not args.prompt else None
    if problem is not None:
        return _show(refused(problem), args.json)
    if args.socket and (args.prompt or args.resource):
        print("glasslab: --prompt and --resource are for a checkout; ask without --socket", file=sys.stderr)
        return USAGE_ERROR
    if args.socket and args.session:
        print("glasslab: --session reads the log, which a service cannot; ask without --socket", file=sys.stderr)
        return USAGE_ERROR
    stop = _Stop()
    result = _ask_service(args.socket, question, stop) if args.socket else _ask_here(question, stop, args)
    return USAGE_ERROR if result is None else _show(result, args.json)


class _Stop(threading.Event):
    """Set by the first Ctrl-C or SIGTERM, so that the end is recorded; the second one interrupts."""

    def __init__(self) -> None:
        super().__init__()
        self.told: socket.socket | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_set():
            raise KeyboardInterrupt
        self.set()
        if self.told is not None:
            self.told.sendall(b'{"cancel": true}\n')


def _question(argument: str) -> str:
    if argument != "-":
        return argument
    data = sys.stdin.buffer.read(4 * MAX_QUESTION_CHARACTERS + 4)
    return data.decode("utf-8", "surrogateescape").strip()


def _watch(text: str) -> None:
    """Show a piece of the model's text; a terminal that went away is no reason to end the session."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(visible_text(text))
        sys.stderr.flush()


def _ask_here(question: str, stop: threading.Event, args: argparse.Namespace) -> Result | None:
    from glasslab.agent import LAST_TURN
    from glasslab.assembly import CONFIGURATION_ERRORS, agent_from_settings
    from glasslab.attachments import AttachedError, attached
    from glasslab.continuing import ContinueError, read_session
    from glasslab.prompting import at_terminal
    from glasslab.protection import protect

    protect()
    try:
        beside = attached(args.prompt, args.resource)
        agent = agent_from_settings()
        continued = read_session(args.session, agent.settings.model, LAST_TURN) if args.session else None
    except (*CONFIGURATION_ERRORS, ContinueError, AttachedError) as error:
        for line in getattr(error, "lines", [str(error)]):
            print(f"glasslab: {visible_line(line)}", file=sys.stderr)
        return None
    print("glasslab: this runs on this machine, outside the glass", file=sys.stderr)
    if agent.settings.trace:
        print("glasslab: LAB_TRACE=full: contents are recorded, too; use it with fictional data only", file=sys.stderr)
    if args.stream:
        print("glasslab: what follows is shown as it arrives, before it is screened and on record", file=sys.stderr)
    try:
        outcome = agent.ask(question, stop, _watch if args.stream else None, continued, at_terminal(), beside)
    finally:
        agent.close()
    return {**dataclasses.asdict(outcome), "index": agent.settings.hec_index}


def _ask_service(path: Path, question: str, stop: _Stop) -> Result | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        try:
            service.connect(str(path))
            service.sendall(json.dumps({"question": question, "watch": True}).encode() + b"\n")
            stop.told = service
            with service.makefile("rb") as lines:
                line = lines.readline()
                while line.startswith(b'{"approval":'):
                    _show_waiting(line, path)
                    line = lines.readline()
        except OSError as error:
            print(f"glasslab: service at {path}: {error.strerror or error}; start it: glasslab serve", file=sys.stderr)
            return None
        finally:
            stop.told = None
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        print(f"glasslab: the service at {path} ended before it answered; look at its log", file=sys.stderr)
        return None
    if not isinstance(result, dict) or _EXPECTED - result.keys() or str(result["status"]) not in EXIT_CODES:
        print(f"glasslab: what listens at {path} is not this glasslab's serve; check --socket", file=sys.stderr)
        return None
    if result.get("trace") == "full":
        print("glasslab: LAB_TRACE=full: contents are recorded, too; use it with fictional data only", file=sys.stderr)
    return result


def _show_waiting(line: bytes, path: Path) -> None:
    """Say that a call waits for an approval, and how to give it."""
    from glasslab.prompting import lines

    with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError):
        call = json.loads(line)["approval"]
        shown = "\n".join(lines(call))
        how = f"glasslab approve {visible_line(str(call['id']))} --socket {path}"
        print(f"glasslab: a call waits for an approval ({how}):\n{shown}", file=sys.stderr)


def _show(result: Result, as_json: bool) -> int:
    if as_json:
        print(json.dumps({name: result[name] for name in JSON_FIELDS}))
    else:
        if result["answer"] is not None:
            print(visible_text(result["answer"]))  # the model's text: it must not drive the terminal
            print()
        elif result.get("so_far"):
            print(f"no answer; found so far:\n{visible_text(result['so_far'])}\n")
        if result["session_id"] is not None:
            print(f"session: {result['session_id']}")
            print(f"search:  {session_search(result['session_id'], result['index'])}")
    if result["problem"] is not None:
        sys.stdout.flush()
        problem = visible_line(result["problem"])
        print(problem if problem.startswith("Agent stopped:") else f"glasslab: {problem}", file=sys.stderr)
    return EXIT_CODES[result["status"]]
