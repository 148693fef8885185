"""`glasslab pin`: compare the tool server's definitions with the lock, and write it anew when asked to."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `glasslab pin` to the command line."""
    parser = subparsers.add_parser(
        "pin",
        help="compare the tools with the lock, or write the lock",
        description="List the tools, print their definitions, and compare them with tools.lock.json.",
    )
    parser.add_argument("--write", action="store_true", help="write the lock for this server")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return 0 when the tools are the pinned ones or were pinned now, 5 when they differ, 2 and 4 as ask does."""
    from glasslab import pins
    from glasslab.assembly import CONFIGURATION_ERRORS, load_server_key, toolbox_maker
    from glasslab.settings import Settings
    from glasslab.tooltypes import LogFailedAtServer, ToolServerError
    from glasslab.wire import META_CLOCK, META_SESSION_ID, META_STEP

    try:
        settings = Settings.load()
        if settings.mcp_server == "stdio":
            load_server_key(settings)
        lock = {} if args.write and not pins.LOCK_FILE.exists() else pins.read_lock()
    except CONFIGURATION_ERRORS as error:
        for line in getattr(error, "lines", [str(error)]):
            print(f"glasslab: {line}", file=sys.stderr)
        return 2
    try:
        with toolbox_maker(settings)() as tools:
            server = tools.connect({META_SESSION_ID: f"pin-{uuid.uuid4().hex}", META_STEP: 0, META_CLOCK: 0})
    except ToolServerError as error:
        print(f"glasslab: {error}", file=sys.stderr)
        return 5
    except LogFailedAtServer as error:
        print(f"glasslab: {error} ({error.url}); {error.remedy}", file=sys.stderr)
        return 4
    print(json.dumps({"instructions": server.instructions, "tools": server.definitions}, indent=2))
    drift = pins.compare(lock, server.name, server.definitions, server.instructions)
    if not drift:
        print(f"glasslab: the tools of {server.name!r} are the pinned ones", file=sys.stderr)
        return 0
    if drift.refused_characters:
        print(f"glasslab: not pinned: hidden characters {', '.join(drift.refused_characters)}", file=sys.stderr)
        return 5
    if not args.write:
        print(f"glasslab: they differ from the lock: {drift}; pin them with --write if meant", file=sys.stderr)
        return 5
    lock[server.name] = pins.lock_entry(server.definitions, server.instructions)
    try:
        pins.LOCK_FILE.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"glasslab: lock file {pins.LOCK_FILE}: {error.strerror}; pin from a checkout", file=sys.stderr)
        return 2
    print(f"glasslab: pinned {', '.join(lock[server.name]['tools'])} in {pins.LOCK_FILE}", file=sys.stderr)
    return 0
