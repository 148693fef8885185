"""`glasslab trace` and `glasslab verify`: a session out of the log, shown or checked."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from glasslab.guardrails import visible_line

if TYPE_CHECKING:  # what the commands need is imported when one runs: the parser alone has to be quick
    from glasslab.search import Search, StoredEvent
    from glasslab.settings import SearchSettings
    from glasslab.verify import Report


def add_parser(subparsers: Any) -> None:
    """Add `glasslab trace` and `glasslab verify` to the command line."""
    trace = subparsers.add_parser("trace", help="show a session frame by frame", description=run_trace.__doc__)
    verify = subparsers.add_parser("verify", help="check a session's record", description=run_verify.__doc__)
    for parser, run in ((trace, run_trace), (verify, run_verify)):
        parser.add_argument("session", nargs="?", metavar="SESSION", help="the session id that `ask` ended with")
        parser.add_argument("--last", action="store_true", help="the session that started last")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=run)
    verify.add_argument("--index", action="store_true", help="put what is found into the log (HEC_TOKEN_VERIFY)")


def run_trace(args: argparse.Namespace) -> int:
    """Show a session out of the log, frame by frame. Exit code: 0, or 2 with one line on stderr."""
    from glasslab.views.table import print_table

    found = _find(args)
    if found is None:
        return 2
    session_id, _, events = found
    if args.json:
        json.dump(
            {"session_id": session_id, "events": [_shown(item) for item in events]}, sys.stdout, ensure_ascii=True
        )
        print()
    else:
        print_table(events, sys.stdout)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Check a session's chains and signatures against VERIFY_KEYS. Exit code: 0 whole, 1 broken, 2 not checked."""
    from glasslab.keys import KeyFileError, load_public_keys
    from glasslab.verify import verify_session
    from glasslab.views.table import report_lines, report_object

    found = _find(args)
    if found is None:
        return 2
    session_id, settings, events = found
    try:
        keys = load_public_keys(settings.verify_keys)
    except KeyFileError as error:
        return _fail(str(error))
    report = verify_session(session_id, events, keys)
    if args.index and not _indexed(report):
        return 2
    if args.json:
        print(json.dumps(report_object(report)))
    else:
        print("\n".join([f"session {session_id}", *report_lines(report)]))
    return 0 if report.whole else 1


def _indexed(report: Report) -> bool:
    """Put what was found into the log; return whether it is there, after one line on stderr when it is not."""
    from glasslab.keys import KeyFileError
    from glasslab.recorder import LoggingError
    from glasslab.search import SearchError
    from glasslab.settings import SettingsError, VerifierSettings
    from glasslab.verified import index

    try:
        record = index(report, VerifierSettings.load())
    except SettingsError as error:
        for line in error.lines:
            _fail(line)
        return False
    except LoggingError as error:
        _fail(f"what was found is not in the log: {error.url}: {error.cause}; {error.remedy}")
        return False
    except (KeyFileError, SearchError, ValueError) as error:
        _fail(f"what was found is not in the log: {error}")
        return False
    print(f"glasslab: what was found is in the log as session {record}", file=sys.stderr)
    return True


def _fail(text: str) -> int:
    print(f"glasslab: {visible_line(text)}", file=sys.stderr)  # it may quote the log, or ssh
    return 2


def _shown(item: StoredEvent) -> dict[str, Any]:
    about = {"_time": item.time, "sourcetype": item.sourcetype, "source": item.source, "index": item.index}
    return {**about, "event": item.event or item.raw}


def _find(args: argparse.Namespace) -> tuple[str, SearchSettings, list[StoredEvent]] | None:
    """Return the session asked for, with the settings and its events; None after one line on stderr."""
    from glasslab.search import SearchError
    from glasslab.settings import SearchSettings, SettingsError

    if bool(args.session) == args.last:
        _fail("give one of SESSION (the id that `glasslab ask` ended with) and --last")
        return None
    try:
        settings = SearchSettings.load()
        search = open_search(settings)
        session_id = _last(search) if args.last else str(args.session)
        events = search.events(session_id) if session_id else []
    except SettingsError as error:
        for line in error.lines:
            _fail(line)
        return None
    except (SearchError, ValueError) as error:
        _fail(str(error))
        return None
    if not events:
        what = f"session {session_id} is not in the log" if session_id else "there is no session in the log"
        _fail(f"{what} at {settings.splunk_url}; `glasslab ask` prints the id of the one it made")
        return None
    return session_id, settings, events


def open_search(settings: SearchSettings) -> Search:
    """Return the way to the log that the settings name. Raises ValueError for ssh arguments that are none."""
    from glasslab.search import Search

    ssh = _words(settings.splunk_ssh) if settings.splunk_ssh else None
    return Search(settings.splunk_url, settings.splunk_token.get_secret_value(), settings.hec_ca, ssh)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"SPLUNK_SSH: {text!r}: {error}; give ssh's arguments as in a shell") from None


def _last(search: Search) -> str:
    started = [item.event for item in search.sessions() if item.event.get("kind") == "session.start"]
    return str(started[-1].get("session_id")) if started else ""
