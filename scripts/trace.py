"""make trace, make verify: a session frame by frame, or its chains and signatures checked, read from the lab's log.

With INDEX=1 what `make verify` finds goes into the log.
"""

import sys

import given
from lab import SESSION_ID, fail, make, need_lab, read_log, run, verify


def main() -> None:
    """Show or check the session that SESSION names, or the last one."""
    session = given.text("SESSION")
    if session and not SESSION_ID.fullmatch(session):
        fail(f"SESSION={session!r} is no session id; `{make('ask')}` prints one")
    index = given.switch("INDEX")
    need_lab()
    if sys.argv[1] == "verify":
        sys.exit(verify(session or "--last", index=index).returncode)
    sys.exit(read_log(sys.argv[1], session or "--last").returncode)


if __name__ == "__main__":
    run(main)
