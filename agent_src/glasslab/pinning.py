"""`glasslab pin`: look at the tool server's definitions, compare them with the lock, and pin what is meant."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glasslab.guardrails import visible_line

if TYPE_CHECKING:  # imported when it runs: the parser alone has to be quick
    from glasslab import pins
    from glasslab.settings import Settings
    from glasslab.toolset import Toolset
    from glasslab.tooltypes import ServerInfo

PINNED, USAGE, LOG, DIFFERENT = 0, 2, 4, 5
MAX_RESOURCES = 50  # that are shown of a server


def add_parser(subparsers: Any) -> None:
    """Add `glasslab pin` to the command line."""
    parser = subparsers.add_parser(
        "pin",
        help="look at the tools, and pin them",
        description="List the tools, print their definitions, and compare them with tools.lock.json. A server that the "
        "lock does not have is pinned; one that differs from it only when that is asked for.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="only show how the tools differ from the lock")
    what.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="NAME",
        help="pin this tool as it is listed now, or its end (repeatable; also @instructions and @files of the server)",
    )
    what.add_argument("--write", action="store_true", help="pin all of the server as it is now")
    parser.add_argument("--server", metavar="NAME", help="only this one of several servers")
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
        lock = pins.read_lock() if pins.LOCK_FILE.exists() else {}
        maker = toolbox_maker(settings)
    except CONFIGURATION_ERRORS as error:
        for line in getattr(error, "lines", [str(error)]):
            _say(line)
        return USAGE
    try:
        with maker() as tools:
            meta = {META_SESSION_ID: f"pin-{uuid.uuid4().hex}", META_STEP: 0, META_CLOCK: 0}
            servers = tools.connect(meta)
            files = {member.key: pins.file_hashes(member.files) for member in tools.members}
            for server in servers:
                _show_resources(server, tools, meta)
            servers += tools.prompts(servers, meta)
    except ToolServerError as error:
        _say(str(error))
        return DIFFERENT
    except LogFailedAtServer as error:
        _say(f"{error} ({error.url}); {error.remedy}")
        return LOG
    chosen = [server for server in servers if args.server in (None, server.pinned_as)]
    if not chosen or (len(chosen) > 1 and (args.accept or args.write)):
        _say(f"name one of the servers with --server: {', '.join(server.pinned_as for server in servers)}")
        return USAGE
    return max(decide(args, settings, lock, server, files.get(server.key, {})) for server in chosen)


def decide(
    args: argparse.Namespace, settings: Settings, lock: pins.Lock, server: ServerInfo, files: Mapping[str, str]
) -> int:
    """Compare, show, and pin as the options say; return the exit status. `files` are the server's, as hashes."""
    from glasslab import pindiff, pins

    drift = _drift(lock, server, files)
    if args.diff:
        old, new = pindiff.old_and_new(lock, server.pinned_as, drift, server.definitions, server.instructions)
        print("\n".join(pindiff.diff(old, new)))
    else:  # escaped: what could hide on a terminal is seen here
        print(json.dumps({"instructions": server.instructions, "tools": server.definitions}, indent=2))
    if drift.refused_characters:
        _say(f"not pinned: hidden characters {', '.join(drift.refused_characters)}; the server has to lose them")
        return DIFFERENT
    if not drift:
        _say(f"the tools of {server.pinned_as!r} are the pinned ones")
        return PINNED
    fresh = server.pinned_as not in lock
    if args.diff or not (fresh or args.write or args.accept):
        _say(f"they differ from the lock: {drift}; look at --diff, then --accept NAME (or --write for all) if meant")
        return DIFFERENT
    if not _fit(settings, server):
        return DIFFERENT
    entry = pins.lock_entry(server.definitions, server.instructions, files)
    if args.accept:
        unknown = _unknown(args.accept, lock.get(server.pinned_as) or {}, server)
        if unknown:
            what = f"neither the lock nor {server.pinned_as!r} has such a tool; pin --diff names them"
            _say(f"--accept {unknown!r}: {what}")
            return USAGE
        entry = pindiff.accepted(lock.get(server.pinned_as) or {}, entry, args.accept)
    status = _write(lock, server.pinned_as, entry)
    left = _drift(lock, server, files)
    if status == PINNED and left:
        _say(f"they still differ from the lock: {left}")
        return DIFFERENT
    return status


def _show_resources(server: ServerInfo, tools: Toolset, meta: Mapping[str, Any]) -> None:
    """Name the resources that a server lists: they are data, so there is nothing to pin."""
    if "resources" not in server.capabilities:
        return
    listed: list[dict[str, Any]] = tools.ask(server, meta, lambda tools, meta: tools.list_resources(meta))
    for resource in listed[:MAX_RESOURCES]:
        _say(f"resource {server.pinned_as}/{visible_line(str(resource.get('uri')))[:200]}")
    if len(listed) > MAX_RESOURCES:
        _say(f"{len(listed) - MAX_RESOURCES} more resources of {server.pinned_as!r}")


def _drift(lock: pins.Lock, server: ServerInfo, files: Mapping[str, str]) -> pins.Drift:
    from glasslab import pins

    found = pins.compare(lock, server.pinned_as, server.definitions, server.instructions)
    return replace(found, files=pins.compare_files(lock, server.pinned_as, files).files)


def _unknown(accepted: Sequence[str], pinned: pins.Lock, server: ServerInfo) -> str | None:
    from glasslab import pindiff, pins

    known = {pindiff.INSTRUCTIONS, pindiff.FILES, *pinned.get("tools", {}), *map(pins.name_of, server.definitions)}
    return next((name for name in accepted if name not in known), None)


def _fit(settings: Settings, server: ServerInfo) -> bool:
    """Say what is wrong or risky with the tools; return whether they may be pinned."""
    from glasslab import toollint
    from glasslab.toolset import PROMPTS

    if server.pinned_as.endswith(PROMPTS):
        return True  # a person chooses them, and the model never does

    faults = toollint.faults(server.definitions)
    for fault in faults:
        _say(f"not pinned: {fault}")
    for hint in toollint.hints(server.definitions, settings.max_tools):
        _say(f"warning: {hint}")
    mix = toollint.reads_and_sends(server.definitions)
    refused = mix is not None and settings.tool_mix == "refuse"
    if mix is not None:
        remedy = "a text can then have data sent away; offer one kind, or keep approvals on what acts"
        _say(f"{'not pinned (TOOL_MIX=refuse)' if refused else 'warning'}: {mix}: {remedy}")
    return not faults and not refused


def _write(lock: pins.Lock, name: str, entry: pins.Lock) -> int:
    from glasslab import pins

    lock[name] = entry
    try:
        pins.write_lock(lock)
    except OSError as error:
        _say(f"lock file {pins.LOCK_FILE}: {error.strerror}; pin from a checkout")
        return USAGE
    _say(f"pinned {', '.join(entry['tools']) or 'no tool'} in {pins.LOCK_FILE}")
    return PINNED


def _say(line: str) -> None:
    print(f"glasslab: {line}", file=sys.stderr)
