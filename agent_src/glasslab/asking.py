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
from typing import Any, Final

from glasslab.guardrails import visible_line, visible_text
from glasslab.inquiry import Inquiry, InquiryError, attached, inquiry
from glasslab.queries import session_search
from glasslab.statuses import EXIT_CODES, JSON_FIELDS, MAX_QUESTION_CHARACTERS, USAGE_ERROR, Result, refused

MAX_REQUEST: Final = 250_000  # bytes; the service takes no more in a line
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
    parser.add_argument(
        "--session",
        metavar="ID",
        help="go on with that session, out of the log; the service goes on with those that it answered",
    )
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
    parser.add_argument(
        "--request",
        action="store_true",
        help='read all that is asked as one JSON object from standard input: {"question": "...", "session": "ID", '
        '"prompt": {"name": "...", "arguments": {}}, "resources": []}; nothing of it is in the process list then',
    )
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Ask, print, and return the exit code of the contract."""
    beside = args.session is not None or args.prompt or args.resource
    if args.request and (args.question is not None or beside):
        args.usage("--request reads all that is asked from standard input; give nothing else of it")
    if args.question is None and not args.prompt and not args.request:
        args.usage("give a QUESTION, or a --prompt")
    try:
        asked = _read_inquiry() if args.request else _inquiry(args)
    except InquiryError as error:
        print(f"glasslab: {visible_line(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    if asked.problem is not None:
        return _show(refused(asked.problem), args.json)
    stop = _Stop()
    result = _ask_service(args.socket, asked, stop) if args.socket else _ask_here(asked, stop, args)
    return USAGE_ERROR if result is None else _show(result, args.json)


def _inquiry(args: argparse.Namespace) -> Inquiry:
    return Inquiry(_question(args.question or ""), args.session, attached(args.prompt, args.resource))


def _read_inquiry() -> Inquiry:
    """Return what standard input asks. Raises InquiryError."""
    data = sys.stdin.buffer.read(MAX_REQUEST + 1)
    if len(data) > MAX_REQUEST:
        raise InquiryError(f"--request: more than {MAX_REQUEST} bytes; put the rest in a document")
    try:
        request = json.loads(data)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise InquiryError('--request: standard input is no JSON object; send {"question": "..."}')
    return inquiry(request)


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
        self.tell()

    def tell(self) -> None:
        """Tell the service, once there is one to tell; one that is gone has cancelled by itself."""
        if self.told is not None and self.is_set():
            with contextlib.suppress(OSError):
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


def _ask_here(asked: Inquiry, stop: threading.Event, args: argparse.Namespace) -> Result | None:
    from glasslab.agent import LAST_TURN
    from glasslab.assembly import CONFIGURATION_ERRORS, agent_from_settings
    from glasslab.continuing import ContinueError, read_session
    from glasslab.prompting import at_terminal
    from glasslab.protection import protect

    protect()
    try:
        agent = agent_from_settings()
        continued = None if asked.session is None else read_session(asked.session, agent.settings.model, LAST_TURN)
    except (*CONFIGURATION_ERRORS, ContinueError) as error:
        for line in getattr(error, "lines", [str(error)]):
            print(f"glasslab: {visible_line(line)}", file=sys.stderr)
        return None
    print("glasslab: this runs on this machine, outside the glass", file=sys.stderr)
    if agent.settings.trace:
        print("glasslab: LAB_TRACE=full: contents are recorded, too; use it with fictional data only", file=sys.stderr)
    if args.stream:
        print("glasslab: what follows is shown as it arrives, before it is screened and on record", file=sys.stderr)
    try:
        watch = _watch if args.stream else None
        outcome = agent.ask(asked.question, stop, watch, continued, at_terminal(), asked.attached)
    finally:
        agent.close()
    return {**dataclasses.asdict(outcome), "index": agent.settings.hec_index}


def _ask_service(path: Path, asked: Inquiry, stop: _Stop) -> Result | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        try:
            service.connect(str(path))
            service.sendall(json.dumps({**asked.as_json(), "watch": True}, ensure_ascii=False).encode() + b"\n")
            stop.told = service
            stop.tell()  # what came while it was being reached
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
