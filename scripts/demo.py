"""make demo: build the lab, ask the sample question, show its frames and what the agent could not reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dotenv import dotenv_values

from lab import BIN, LAB_ID, ROOT, STATE, ask, fail, read_log

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
    # The key reaches the lab as a file (model_key below); no child needs it.
    for secret in ("MODEL_API_KEY", "OPENAI_API_KEY"):
        environment.pop(secret, None)
    done = subprocess.run(  # noqa: S603
        [str(BIN / "ansible-playbook"), path, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        fail(
            f"{path} stopped; mend what is said above and run the same command again: it goes on from there",
            done.returncode,
        )


def model_key() -> None:
    """Put a real model's key where the inventory finds it (0600); it appears in no process list and in no log."""
    if not os.environ.get("MODEL_BASE_URL"):
        return
    files = [dotenv_values(Path("~/lab/.env").expanduser())] if Path("~/lab/.env").expanduser().is_file() else []
    places = [os.environ, *files]
    key = next((p[n] for p in places for n in ("MODEL_API_KEY", "OPENAI_API_KEY") if p.get(n)), None)
    path = next((p["MODEL_API_KEY_FILE"] for p in places if p.get("MODEL_API_KEY_FILE")), None)
    if key is None and path is not None:
        try:
            key = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"MODEL_API_KEY_FILE {path} cannot be read ({error}); give a file that holds the key")
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        fail("MODEL_API_KEY holds blanks, control or non-ASCII characters; check it")
    target = STATE / "secrets" / "model_api_key"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text((key or "no-key-needed") + "\n", encoding="utf-8")
    part.rename(target)


def question() -> dict[str, object]:
    """Ask the sample question; return the answer's object, or end with the agent's own line and exit code."""
    done = ask(QUESTION, "--json")
    if done.returncode or not done.stdout.strip():
        sys.stderr.write(done.stderr)
        fail(
            f"the agent gave no answer (exit {done.returncode}); `make trace` shows how far it came",
            done.returncode or 1,
        )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> None:
    """All of it, in order."""
    began = time.monotonic()
    os.chdir(ROOT)
    say(f"Building the lab {LAB_ID} (progress by stage; a rerun goes on where one stopped)")
    model_key()
    playbook("site.yml")
    answer = stage("The agent is asked", question)
    playbook("playbooks/verify.yml")
    session = str(answer["session_id"])
    say()
    say(f"Question: {QUESTION}")
    say(f"Answer:   {answer['answer']}")
    say(f"          {answer['turns']} turns in {answer['seconds']} s, session {session}")
    say()
    say("Every step, as the log acknowledged it before the next one ran:")
    if read_log("trace", session).returncode:
        fail("the session could not be read back from the log; `make trace` tries again", 1)
    say()
    say("What the agent's machine can reach:")
    sys.stdout.flush()
    table = [sys.executable, "roles/verify/files/isolation_table.py", str(STATE / "receipts" / "latest.json")]
    if subprocess.run(table, stdin=subprocess.DEVNULL, check=False).returncode:  # noqa: S603
        fail("the receipt could not be shown; `ansible-playbook playbooks/verify.yml` writes it", 1)
    say()
    say(f"Done in {time.monotonic() - began:.0f} s. What to try next:")
    say('  make ask QUESTION="What does the access policy require?"   another question')
    say("  make verify                                                the session's chains and signatures, checked")
    say("  make destroy                                               all of it gone, the machine as before")


if __name__ == "__main__":
    main()
