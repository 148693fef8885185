"""make approvals, approve, deny: decide about the tool calls of the lab's agent that wait for a person."""

import os
import re
import shlex
import subprocess
import sys

from glasslab.guardrails import visible_text
from lab import agents_glasslab, fail, make, need_lab, need_ssh, run


def main() -> None:
    """Put it to the agent's service, and end as that command does."""
    verb = sys.argv[1]
    words = [verb]
    if verb != "approvals":
        id_ = os.environ.get("ID", "").strip()
        if not re.fullmatch(r"[0-9a-f]{12}", id_):
            fail(f"ID={id_[:40]!r} is no approval's; `{make('approvals')}` lists them, then: {make(f'{verb} ID=...')}")
        words.append(id_)
    if verb == "deny":
        words += ["--why", shlex.quote(os.environ.get("WHY", ""))]  # ssh hands words to a shell
    need_lab()
    done = subprocess.run(agents_glasslab(*words), text=True, capture_output=True, check=False)
    need_ssh(done)
    sys.stdout.write(visible_text(done.stdout))
    sys.stderr.write(visible_text(done.stderr))
    sys.exit(done.returncode)


if __name__ == "__main__":
    run(main)
