"""make ask QUESTION="...": put a question to the lab's agent, show its answer and how to see the session."""

import os
import sys
import threading

from glasslab.guardrails import visible_text
from lab import ask, fail, need_lab, need_ssh, run


def main() -> None:
    """Ask, and end as the agent does."""
    question = os.environ.get("QUESTION", "").strip()
    if not question:
        fail('QUESTION is empty; ask like this: make ask QUESTION="What does the access policy say?"')
    need_lab()
    told, tell = os.pipe()
    said: list[str] = []
    teller = threading.Thread(target=show, args=(told, said))
    teller.start()
    try:
        done = ask(question, stderr=tell)
    finally:
        os.close(tell)
        teller.join()
    done.stderr = "".join(said)
    need_ssh(done)
    # Escaped here too: what the agent's machine says is not this terminal's to obey.
    sys.stdout.write(visible_text(done.stdout))
    sys.exit(done.returncode)


def show(told: int, said: list[str]) -> None:
    """Show on stderr what is said on the way, line by line: that a call waits for an approval has to be seen then."""
    with os.fdopen(told, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            said.append(line)
            sys.stderr.write(visible_text(line))
            sys.stderr.flush()


if __name__ == "__main__":
    run(main)
