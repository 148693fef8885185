"""`glasslab collector`: read the configuration, open the store, serve until told to stop."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from glasslab.collector.conf import ConfError
from glasslab.collector.config import load_config
from glasslab.collector.server import HecServer, search_tokens, start
from glasslab.collector.store import FILE, Store, StoreError
from glasslab.httpserver import ServeError

NOTICE = "small, for labs and tests, not for production: use Splunk there"


def add_parser(subparsers: Any) -> None:
    """Add `glasslab collector` to the command line."""
    parser = subparsers.add_parser(
        "collector",
        help="run the embedded stand-in for Splunk's HTTP Event Collector",
        description=f"Take events over HEC and keep them in SQLite: {NOTICE}. Ports, certificates, tokens and indexes "
        "come from the .conf files under --splunk-home, which it never writes; events go to "
        f"{FILE} there. With --search-token-file the management port answers one fixed search, and with "
        "startwebserver = 1 in web.conf a read-only page shows the sessions, where Splunk Web would be.",
    )
    parser.add_argument("--splunk-home", type=Path, required=True, metavar="DIR", help="the folder that holds etc/apps")
    parser.add_argument("--search-token-file", type=Path, metavar="FILE", help="tokens that may search, one a line")
    parser.add_argument("--host", default="", metavar="ADDRESS", help="address for HEC (default: every IPv4 address)")
    parser.add_argument(
        "--max-connections", type=int, default=256, metavar="N", help="HEC connections at once (default 256)"
    )
    parser.set_defaults(run=run)


def notify(state: str) -> None:
    """Tell systemd a state, when it asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as error:
            print(f"cannot tell systemd {state}: NOTIFY_SOCKET {address}: {error.strerror}", file=sys.stderr)


def reload(home: Path, server: HecServer) -> None:
    """Take tokens and indexes as the files have them now; what cannot be used changes nothing, and is said."""
    try:
        server.reload(load_config(home))
        print(
            f"tokens read anew: {', '.join(sorted(token.name for token in server.config.tokens.values()))}", flush=True
        )
    except ConfError as error:
        print(f"glasslab: not read anew: {error}", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reads tokens and indexes anew.

    Returns the exit code: 0, or 2 with one line on stderr.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    store = None
    try:
        if args.max_connections < 1:
            raise ServeError(f"--max-connections {args.max_connections}: give 1 or more")
        config = load_config(args.splunk_home)
        tokens = search_tokens(args.search_token_file) if args.search_token_file else []
        store = Store(config.home / FILE, config.retention)
        servers = start(config, store, args.host, tokens, args.max_connections)
    except (ConfError, ServeError, StoreError) as error:
        if store is not None:
            store.close()
        print(f"glasslab: {error}", file=sys.stderr)
        return 2
    print(f"glasslab collector: {NOTICE}", flush=True)
    tls = (config.certificate, config.management_certificate, config.web)
    for name, server, secure in zip(("HEC", "search", "page"), servers, tls, strict=False):
        address = server.server_address[0]
        print(f"{name} on {'https' if secure else 'http'}://{address}:{server.port}", flush=True)
    signal.signal(signal.SIGHUP, lambda *_: reload(args.splunk_home, servers[0]))
    notify("READY=1")
    stop.wait()
    notify("STOPPING=1")
    stopping = [threading.Thread(target=server.stop) for server in servers]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
    store.close()
    return 0
