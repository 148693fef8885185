"""make ask QUESTION="...": put a question to the lab's agent, show its answer and how to see the session."""

import os
import sys

from glasslab.guardrails import visible_text
from lab import ask, fail, need_lab, need_ssh, run


def main() -> None:
    """Ask, and end as the agent does."""
    question = os.environ.get("QUESTION", "").strip()
    if not question:
        fail('QUESTION is empty; ask like this: make ask QUESTION="What does the access policy say?"')
    need_lab()
    done = ask(question)
    need_ssh(done)
    # Escaped here too: what the agent's machine says is not this terminal's to obey.
    sys.stdout.write(visible_text(done.stdout))
    sys.stderr.write(visible_text(done.stderr))
    sys.exit(done.returncode)


if __name__ == "__main__":
    run(main)
