"""make trace, make verify: a session frame by frame, or its chains and signatures checked, read from the lab's log."""

import os
import sys

from lab import SESSION_ID, fail, need_lab, read_log

verb = sys.argv[1]
session = os.environ.get("SESSION", "").strip()
if session and not SESSION_ID.fullmatch(session):
    fail(f"SESSION={session!r} is no session id; `make ask` prints one")
need_lab()
sys.exit(read_log(verb, session or "--last").returncode)
