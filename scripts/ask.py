"""make ask QUESTION="...": put a question to the lab's agent, show its answer and how to see the session.

SESSION is a session that the lab's agent answered, to go on with; PROMPT is a tool server's prompt (NAME KEY=VALUE ...)
and RESOURCES are addresses beside the question, words as in a shell.
"""

import os
import shlex
import sys
import threading

from glasslab.guardrails import visible_line, visible_text
from glasslab.inquiry import Inquiry, InquiryError, attached
from lab import ask, fail, make, need_lab, need_ssh, run


def main() -> None:
    """Ask, and end as the agent does."""
    asked = inquiry()
    question = asked.question
    if not question and not asked.attached.prompt:
        like = make('ask QUESTION="What does the access policy say?"')
        fail(f"QUESTION is empty; ask like this: {like}")
    need_lab()
    more = {"asked": asked} if asked != Inquiry(question) else {}
    told, tell = os.pipe()
    said: list[str] = []
    teller = threading.Thread(target=show, args=(told, said))
    teller.start()
    try:
        done = ask(question, stderr=tell, **more)
    finally:
        os.close(tell)
        teller.join()
    done.stderr = "".join(said)
    need_ssh(done)
    # Escaped here too: what the agent's machine says is not this terminal's to obey.
    sys.stdout.write(visible_text(done.stdout))
    sys.exit(done.returncode)


def inquiry() -> Inquiry:
    """What the variables ask."""
    given = {name: os.environ.get(name, "").strip() for name in ("QUESTION", "SESSION", "PROMPT", "RESOURCES")}
    try:
        beside = attached(words("PROMPT", given["PROMPT"]) or None, words("RESOURCES", given["RESOURCES"]))
        return Inquiry(given["QUESTION"], given["SESSION"] or None, beside)
    except InquiryError as error:
        fail(visible_line(str(error)))


def words(name: str, text: str) -> list[str]:
    """The words of a variable, as a shell takes them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        fail(f"{name}={visible_line(text)}: {error}; give words as in a shell")


def show(told: int, said: list[str]) -> None:
    """Show on stderr what is said on the way, line by line: that a call waits for an approval has to be seen then."""
    with os.fdopen(told, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            said.append(line)
            sys.stderr.write(visible_text(line))
            sys.stderr.flush()


if __name__ == "__main__":
    run(main)
