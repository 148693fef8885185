"""make web: the log's page, or Splunk Web, at https://127.0.0.1:8000 (WEB_PORT), through SSH until Ctrl-C.

The embedded lab's, or that of INVENTORY; SPLUNK_WEB_PORT (8000) is its port on the log's machine.
"""

from __future__ import annotations

import shlex
import time
from urllib.parse import urlsplit

import given
from glasslab.search import SearchError, forward
from lab import fail, log_environment, need_lab, run


def main() -> None:
    """Forward, say where, and wait."""
    here, there = given.port("WEB_PORT", 8000), given.port("SPLUNK_WEB_PORT", 8000)
    need_lab()
    log = log_environment()
    # Root's in the embedded lab, the user's own elsewhere.
    reads = "cat" if given.text("INVENTORY") else "sudo cat"
    host = urlsplit(log["SPLUNK_URL"]).hostname or ""
    try:
        with forward(shlex.split(log["SPLUNK_SSH"]), host, there, local=here) as local:
            print(f"https://127.0.0.1:{local}/   (Ctrl-C ends it)")
            print(f"  the CA of its certificate: {log['HEC_CA']}")
            print(f"  the token that it asks for: {reads} {shlex.quote(log['SPLUNK_TOKEN_FILE'])}", flush=True)
            while True:
                time.sleep(3600)
    except SearchError as error:
        fail(str(error).replace("SPLUNK_SSH", "that the lab is up, or WEB_PORT"))
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    run(main)
