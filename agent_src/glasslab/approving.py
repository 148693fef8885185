"""`glasslab approvals | approve ID | deny ID --why`: decide about the tool calls that wait at a running service."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any, Final

from glasslab.guardrails import visible_line

DECIDED, REFUSED, USAGE = 0, 1, 2
SOCKET: Final = Path("/run/glasslab-agent/agent.sock")  # the appliance's
SECONDS: Final = 10.0


def add_parser(subparsers: Any) -> None:
    """Add `glasslab approvals`, `approve` and `deny` to the command line."""
    for word, text in (
        ("approvals", "list the tool calls that wait for an approval"),
        ("approve", "let a tool call that waits be made, exactly as it is shown"),
        ("deny", "deny a tool call that waits"),
    ):
        parser = subparsers.add_parser(
            word, help=text, description=f"{text.capitalize()}. Root, the service's user and APPROVERS may."
        )
        parser.add_argument(
            "--socket", type=Path, default=SOCKET, metavar="PATH", help="the service's (default: the appliance's)"
        )
        if word == "approvals":
            parser.add_argument("--json", action="store_true", help="print them as a list of objects")
        else:
            parser.add_argument("id", metavar="ID", help="as `glasslab approvals` shows it")
        if word == "deny":
            parser.add_argument("--why", default="", metavar="TEXT", help="the reason; the model is told, too")
        parser.set_defaults(run=run, word=word)


def run(args: argparse.Namespace) -> int:
    """Return 0 when it was listed or decided, 1 when the service refuses, 2 when it cannot be reached."""
    request: dict[str, Any] = {"approvals": True} if args.word == "approvals" else {args.word: args.id}
    if args.word == "deny":
        request["why"] = args.why
    told = _ask(args.socket, request)
    if told is None:
        return USAGE
    if "refused" in told:
        print(f"glasslab: {visible_line(str(told['refused']))}", file=sys.stderr)
        return REFUSED
    if args.word == "approvals":
        _list(told["approvals"], args.json)
    else:
        print(f"{told['decision']}: {args.id}")
        print("\n".join(_lines(told["decided"])))
    return DECIDED


def _ask(path: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.settimeout(SECONDS)
        try:
            service.connect(str(path))
            service.sendall(json.dumps(request).encode() + b"\n")
            with service.makefile("rb") as lines:
                line = lines.readline()
        except OSError as error:
            print(f"glasslab: service at {path}: {error.strerror or error}; give its --socket", file=sys.stderr)
            return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not ({"approvals", "decided", "refused"} & told.keys()):
        problem = told.get("problem") if isinstance(told, dict) else None
        said = visible_line(str(problem)) if problem else "is not this glasslab's serve; check --socket"
        print(f"glasslab: what listens at {path}: {said}", file=sys.stderr)
        return None
    return told


def _list(waiting: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(waiting))
        return
    for call in waiting:
        print(f"{visible_line(str(call['id']))}  ({call['seconds_left']} s left, session {call['session_id']})")
        print("\n".join(_lines(call)))
    if not waiting:
        print("nothing waits for an approval")


def _lines(call: dict[str, Any]) -> list[str]:
    from glasslab.prompting import lines

    return [*lines(call), f"  caller:  user {call['caller']}"]
