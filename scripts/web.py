"""make web: the log's page, or Splunk Web, at https://127.0.0.1:8000 (WEB_PORT), through SSH until Ctrl-C.

The embedded lab's by default. For another: SPLUNK_URL (its host is the log's) and SPLUNK_SSH (the arguments of ssh to a
machine that reaches it), as docs/proxmox.md exports them; SPLUNK_WEB_PORT (8000) is its port there.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from urllib.parse import urlsplit

from glasslab.search import SearchError, forward
from lab import SSH_CONFIG, STATE, fail, need_lab, run

LOG = "10.10.10.20"


def port(name: str, default: str) -> int:
    """A port of the environment."""
    text = os.environ.get(name, "").strip() or default
    if not text.isdigit() or not 0 < int(text) < 65536:
        fail(f"{name}={text!r}: give a port, 1 to 65535")
    return int(text)


def place() -> tuple[list[str], str, list[str]]:
    """The arguments of ssh, the log's address, and what to say of CA and token."""
    url = os.environ.get("SPLUNK_URL", "").strip()
    if not url:
        need_lab()
        hint = [
            f"its certificate is by the lab's CA: {STATE}/ca/ca.crt",
            f"the token: sudo cat {STATE}/secrets/search_token",
        ]
        return ["-F", str(SSH_CONFIG), "pve"], LOG, hint
    host = urlsplit(url).hostname
    if not host:
        fail(f"SPLUNK_URL={url!r}: give https://HOST:8089")
    try:
        ssh = shlex.split(os.environ.get("SPLUNK_SSH", ""))
    except ValueError as error:
        fail(f"SPLUNK_SSH: {error}; give ssh's arguments as in a shell")
    if not ssh:
        fail(f"no SPLUNK_SSH: name a machine that reaches {host}, e.g. SPLUNK_SSH=root@pve.example")
    return ssh, host, [f"its certificate is by {os.environ.get('HEC_CA') or 'the CA of your lab'}"]


def main() -> None:
    """Forward, say where, and wait."""
    arguments, host, hints = place()
    try:
        with forward(arguments, host, port("SPLUNK_WEB_PORT", "8000"), local=port("WEB_PORT", "8000")) as local:
            print(f"https://127.0.0.1:{local}/   (Ctrl-C ends it)", *hints, sep="\n  ", flush=True)
            while True:
                time.sleep(3600)
    except SearchError as error:
        fail(str(error))
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(main)
