"""make demo: build the lab, ask the sample question, show its frames and what the agent could not reach."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import real_model
from children import child
from glasslab.guardrails import visible_text
from lab import BIN, LAB_ID, ROOT, STATE, ask, fail, make, need_ssh, read_log, run

LAB_PY = ROOT / "roles" / "machine" / "files" / "nspawn" / "lab.py"

QUESTION = "What was the root cause of the September incident?"
WIDTH = 42


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def stage[T](name: str, work: Callable[[], T]) -> T:
    """Run one stage and print its duration, as the stages of Ansible print theirs."""
    began = time.monotonic()
    result = work()
    say(f"  {name:<{WIDTH}} {time.monotonic() - began:6.1f} s")
    return result


def playbook(path: str, *arguments: str) -> None:
    """Run a playbook with a line a stage; end as it ends when it fails."""
    environment = os.environ | {
        "ANSIBLE_STDOUT_CALLBACK": "stages",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        "LC_ALL": "C.UTF-8",
        "LAB_ID": LAB_ID,
    }
    # The key reaches the lab as a file (real_model.py); no child needs it.
    for secret in real_model.KEY_NAMES:
        environment.pop(secret, None)
    with child([str(BIN / "ansible-playbook"), path, *arguments], environment) as process:
        code = process.wait()
    if code:
        fail(f"{path} stopped; mend what is said above and run the same command again: it goes on from there", code)


def preflight() -> None:
    """End with one line when this machine cannot carry the lab, or the lab is another checkout's. Changes nothing."""
    command = [sys.executable, str(LAB_PY), "preflight", f"--lab-id={LAB_ID}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)


def question() -> dict[str, object]:
    """Ask the sample question; return the answer's object, or end with the agent's own line and exit code."""
    done = ask(QUESTION, "--json")
    need_ssh(done)
    if done.returncode or not done.stdout.strip():
        sys.stderr.write(visible_text(done.stderr))
        fail(
            f"the agent gave no answer (exit {done.returncode}); `{make('trace')}` shows how far it came",
            done.returncode or 1,
        )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def folded(text: str) -> str:
    """A text of the agent's machine for a terminal: shown and never obeyed, broken between words."""
    text = visible_text(text)
    if not sys.stdout.isatty():
        return text
    return "\n          ".join(textwrap.wrap(text, max(shutil.get_terminal_size().columns - 11, 20)))


def main() -> None:
    """All of it, in order."""
    began = time.monotonic()
    os.chdir(ROOT)
    if inventory := os.environ.get("INVENTORY", "").strip():
        fail(f"make demo builds the embedded lab; that of {inventory}: ansible-playbook -i {inventory} site.yml")
    say(f"Building the lab {LAB_ID} (progress by stage; a rerun goes on where one stopped)")
    real_model.check()
    preflight()
    real_model.keep_key()
    playbook("site.yml")
    answer = stage("The agent is asked", question)
    session = str(answer["session_id"])
    asked = {"session_id": session, "status": answer["status"]}
    playbook("playbooks/verify.yml", "--extra-vars", json.dumps({"verify_answered": asked}))
    say()
    say(f"Question: {QUESTION}")
    say(f"Answer:   {folded(str(answer['answer']))}")
    say(f"          {answer['turns']} turns in {answer['seconds']} s, session {session}")
    say()
    say("Every step, as the log acknowledged it before the next one ran:")
    if read_log("trace", session).returncode:
        fail(f"the session could not be read back from the log; `{make('trace')}` tries again", 1)
    say()
    say("What can be reached, and what cannot:")
    sys.stdout.flush()
    table = [sys.executable, "roles/verify/files/isolation_table.py", str(STATE / "receipts" / "latest.json")]
    if subprocess.run(table, stdin=subprocess.DEVNULL, check=False).returncode:
        fail("the receipt could not be shown; `ansible-playbook playbooks/verify.yml` writes it", 1)
    say()
    say(f"Done in {time.monotonic() - began:.0f} s. What to try next:")
    model = "for it" if os.environ.get("MODEL_BASE_URL") else "(the scripted model has one answer)"
    next_ones = {
        make('ask QUESTION="..."'): f"another question {model}",
        make("verify"): "the session's chains and signatures, checked",
        make("destroy"): "the lab removed; the image and wheels stay cached",
    }
    for command, what in next_ones.items():
        say(f"  {command:<{max(map(len, next_ones)) + 2}} {what}")


if __name__ == "__main__":
    run(main)
