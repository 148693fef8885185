"""`glasslab flows`: what the hypervisor saw of the network, against what the sessions say."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from glasslab.guardrails import visible_line

if TYPE_CHECKING:  # what the command needs is imported when it runs: the parser alone has to be quick
    from glasslab.search import StoredEvent
    from glasslab.witness import Comparison

SHOWN: Final = 20
# Here too, not from witness.py: the parser alone has to be quick.
MODEL_FLOWS: Final = ("model", "internet")
UNFRAMED: Final = ("log", "resolver", "resolver-udp", "resolver-tcp")


def add_parser(subparsers: Any) -> None:
    """Add `glasslab flows` to the command line."""
    parser = subparsers.add_parser(
        "flows", help="compare the hypervisor's flows with the sessions' frames", description=run.__doc__
    )
    parser.add_argument("--hours", type=_hours, default=24.0, metavar="N", help="how far back (default: 24)")
    parser.add_argument(
        "--since", type=_moment, metavar="SECONDS", help="from when on instead, in seconds of the epoch"
    )
    parser.add_argument(
        "--model-flows",
        default=",".join(MODEL_FLOWS),
        metavar="NAMES",
        help="the policy's flows that may lead to the model, by comma (default: %(default)s)",
    )
    parser.add_argument(
        "--unframed",
        default=",".join(UNFRAMED),
        metavar="NAMES",
        help="flows that no session accounts for, by comma (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show denied flows, flows without frames, frames without flows. Exit code: 0 none, 1 some, 2 not compared."""
    from glasslab.keys import KeyFileError, load_public_keys
    from glasslab.search import SearchError
    from glasslab.settings import SearchSettings, SettingsError
    from glasslab.views.command import open_search
    from glasslab.witness import compare, earliest

    since = time.time() - args.hours * 3600 if args.since is None else args.since
    try:
        settings = SearchSettings.load()
        search = open_search(settings)
        network, sessions, calls = search.since_all(earliest(since))
        key = load_public_keys(settings.verify_keys).get("hypervisor")
    except SettingsError as error:
        return _fail(*error.lines)
    except (SearchError, KeyFileError, ValueError) as error:
        return _fail(str(error))
    unframed, model = ([name for name in names.split(",") if name] for names in (args.unframed, args.model_flows))
    found = compare(network, sessions, calls, key, since=since, model_flows=model, unframed_flows=unframed)
    print(json.dumps(_object(found)) if args.json else "\n".join(lines(found)))
    return 0 if found.agree else 1


def lines(found: Comparison) -> list[str]:
    """Return a comparison as lines for the terminal: what was denied first, findings last."""
    from glasslab.views.happened import happened

    shown = []
    for word, items in (("", found.denied), ("drift: ", found.drifts), ("", found.losses)):
        shown += [f"{_when(item)} {word}{happened(item.event)}" for item in items[-SHOWN:]]
        if len(items) > SHOWN:
            shown.append(f"  and {len(items) - SHOWN} more before these")
    shown += [f"FLOW WITHOUT A FRAME: {_when(item)} {happened(item.event)}" for item in found.unframed]
    shown += [f"FRAMES WITHOUT A FLOW: session {visible_line(session)[:80]}" for session in found.unseen]
    shown += [f"BROKEN: {visible_line(text)[:300]}" for text in found.broken]
    counts = f"{found.sessions} sessions, {found.flows} allowed flows, {len(found.denied)} denied"
    if found.unjudged:
        counts += f" ({found.unjudged} from before the hypervisor's first word not judged)"
    shown.append(f"{counts}: {'hypervisor and sessions agree' if found.agree else 'they DIFFER'}")
    return shown


def _object(found: Comparison) -> dict[str, Any]:
    return {
        "agree": found.agree,
        "sessions": found.sessions,
        "sessions_not_judged": found.unjudged,
        "flows": found.flows,
        "flows_without_frame": [item.event for item in found.unframed],
        "frames_without_flow": found.unseen,
        "broken": found.broken,
        "denied": [item.event for item in found.denied],
        "drifts": [item.event for item in found.drifts],
        "losses": [item.event for item in found.losses],
    }


def _when(item: StoredEvent) -> str:
    seen = item.event.get("last")
    moment = seen if isinstance(seen, int | float) and 0 <= seen < 1e11 else item.time
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 < hours <= 24 * 366:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours; give one up to {24 * 366}")
    return hours


def _moment(text: str) -> float:
    try:
        moment = float(text)
    except ValueError:
        moment = -1.0
    if not 0 <= moment < 1e11:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; give seconds since 1970, as date +%s prints them")
    return moment


def _fail(*texts: str) -> int:
    for text in texts:
        print(f"glasslab: {visible_line(text)}", file=sys.stderr)  # it may quote the log, or ssh
    return 2
