"""`glasslab scripted`: the scripted model on the command line."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from glasslab.httpserver import ServeError, tls_context
from glasslab.scripted.script import load_script
from glasslab.scripted.server import ScriptedServer


def add_parser(subparsers: Any) -> None:
    """Add `glasslab scripted` to the command line."""
    parser = subparsers.add_parser(
        "scripted",
        help="run a scripted model for demos and tests",
        description=(
            "Answer /v1/chat/completions (OpenAI-compatible) and /v1/messages (Anthropic) from a YAML script. "
            "For demos and tests; it checks no key."
        ),
    )
    parser.add_argument("file", metavar="FILE", help="the script, or: sample (the sample question's)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default 8080; 0: any free one)")
    parser.add_argument("--cert", type=Path, help="PEM certificate: speak TLS")
    parser.add_argument("--key", type=Path, help="PEM private key (default: in the certificate's file)")
    parser.add_argument("--record", type=Path, help="append one JSON line for each request received")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 2 with one line on stderr."""
    stop = threading.Event()
    try:
        if args.key and not args.cert:
            raise ServeError(f"--key {args.key} without --cert; give the certificate too")
        context = tls_context(args.cert, args.key) if args.cert else None
        script = load_script(args.file)
        server = ScriptedServer(script, args.host, args.port, record=args.record, context=context)
    except ServeError as error:
        print(f"glasslab: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    scheme = "https" if context else "http"
    print(f"scripted model ({args.file}) on {scheme}://{args.host}:{server.port}/v1", flush=True)
    stop.wait()
    server.stop(seconds=0.2)
    return 0
