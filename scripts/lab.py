"""What the scripts share: where the standing lab is, and how its machines and its log are reached from here."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from inventory_lab import InventoryError, Standing, standing

if TYPE_CHECKING:  # the verbs that ask nothing need none of it
    from glasslab.inquiry import Inquiry

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"


def fail(text: str, code: int = 2) -> NoReturn:
    """End with one line on stderr."""
    sys.stderr.write(f"glasslab: {text}\n")
    sys.exit(code)


DEFAULT_LAB = "glasslab"
LAB_ID = os.environ.get("LAB_ID") or DEFAULT_LAB
if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", LAB_ID):
    fail(f"LAB_ID={LAB_ID!r}: use 1 to 16 lower-case letters and digits, beginning with a letter")

STATE = Path("/var/lib/glasslab") / LAB_ID
RUN = Path("/run/glasslab") / LAB_ID
SSH_CONFIG = RUN / "ssh_config"
SOCKET = "/run/glasslab-agent/agent.sock"
GLASSLAB = "/opt/glasslab/venv/bin/glasslab"
SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
INTERRUPTED = 130
SSH_FAILED = 255


def make(words: str) -> str:
    """`make WORDS` as it is typed for this lab: without its name, or its inventory, the default one would be meant."""
    named = [] if LAB_ID == DEFAULT_LAB else [f"LAB_ID={LAB_ID}"]
    if inventory := os.environ.get("INVENTORY", "").strip():
        named.append(f"INVENTORY={shlex.quote(inventory)}")
    return " ".join(["make", words, *named])


def run(work: Callable[[], None]) -> None:
    """Run a script's work; Ctrl-C and `kill` end it with one line, a reader that went away with none."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        fail("interrupted; the same command goes on from there", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain again when it flushes
        sys.exit(1)


@cache
def lab_of_inventory() -> Standing | None:
    """The lab that INVENTORY names; None: the embedded one. Ends with the remedy when it does not stand."""
    inventory = os.environ.get("INVENTORY", "").strip()
    if not inventory:
        return None
    try:
        return standing(inventory)
    except InventoryError as error:
        fail(str(error))


def need_lab() -> None:
    """End with the remedy when no lab stands here, or none of the inventory's."""
    if not lab_of_inventory() and not SSH_CONFIG.is_file():
        fail(f"no lab {LAB_ID} stands on this machine; `{make('demo')}` builds one")


def ssh(machine: str, *command: str) -> list[str]:
    """The command line that runs `command` on a machine of the lab."""
    return ["ssh", "-F", str(SSH_CONFIG), machine, "--", *command]


def agents_glasslab(*words: str) -> list[str]:
    """The command line that runs glasslab on the agent's machine. A shell there reads the words."""
    other = lab_of_inventory()
    return [*other.ssh, "--", GLASSLAB, *words] if other else ssh("agent", GLASSLAB, *words)


def ask(
    question: str, *options: str, stderr: int = subprocess.PIPE, asked: Inquiry | None = None
) -> subprocess.CompletedProcess[str]:
    """Put a question to the lab's agent, or all of `asked`. By stdin: it is nobody's business in a process list.

    `stderr` is a descriptor to write to what is said on the way, which may be long: a call can wait for an approval.
    """
    try:
        question.encode()
    except UnicodeEncodeError:
        fail("the question is not UTF-8; write it in a UTF-8 terminal, or convert it with iconv")
    given, how = (json.dumps(asked.as_json()), "--request") if asked else (question, "-")
    command = agents_glasslab("ask", "--socket", SOCKET, *options, how)
    return subprocess.run(command, input=given, text=True, stdout=subprocess.PIPE, stderr=stderr, check=False)


def need_ssh(done: subprocess.CompletedProcess[str]) -> None:
    """End with the remedy when it was SSH that failed, and not what it was to run."""
    if done.returncode == SSH_FAILED:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        other = lab_of_inventory()
        remedy = other.remedy if other else make("demo")
        fail(f"the lab's machine agent does not answer ({last}); `{remedy}` brings the lab up again")


def log_environment() -> dict[str, str]:
    """The environment in which `glasslab trace` and `verify` read this lab's log, through SSH to its hypervisor."""
    names = ("HOME", "PATH", "LANG", "LC_ALL", "TERM", "COLUMNS", "NO_COLOR", "PYTHONPYCACHEPREFIX")
    keep = {k: v for k, v in os.environ.items() if k in names}
    if other := lab_of_inventory():
        return keep | other.log
    return keep | {
        "SPLUNK_URL": "https://10.10.10.20:8089",
        "SPLUNK_TOKEN_FILE": str(STATE / "secrets" / "search_token"),
        "SPLUNK_SSH": f"-F {SSH_CONFIG} pve",
        "HEC_CA": str(STATE / "ca" / "ca.crt"),
        "VERIFY_KEYS": str(STATE / "verify_keys"),
    }


def verifier_environment() -> dict[str, str]:
    """What `glasslab verify --index` needs beside: where it writes, a token and a key of the verifier's own.

    For that verb alone. Ends with the remedy when the lab has no such token.
    """
    other = lab_of_inventory()
    hec, secrets = (other.hec, Path(other.secrets)) if other else ("https://10.10.10.20:8088", STATE / "secrets")
    token = given_token(other.tokens) if other and other.tokens is not None else own_token(secrets, bool(other))
    return {"HEC_URL": hec, "HEC_TOKEN_VERIFY": token, "SIGNING_KEY_VERIFY": str(secrets / "verifier.pem")}


def own_token(secrets: Path, by_inventory: bool) -> str:
    """The token that the lab made for those who check. Ends with the remedy when there is none."""
    file = secrets / "hec_token_verifier"
    try:
        digits = file.read_text(encoding="ascii").strip()
    except OSError as error:
        which = f" -i {os.environ['INVENTORY']}" if by_inventory else ""
        remedy = f"`ansible-playbook{which} playbooks/splunk.yml` makes one"
        fail(f"the lab has no token for those who check ({file}: {error.strerror}); {remedy}")
    # A HEC token has the form of a GUID; the file holds its digits, as the inventory makes them.
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[begin:end] for begin, end in itertools.pairwise(cuts))


def given_token(tokens: Mapping[str, str]) -> str:
    """The one that a Splunk that stands elsewhere has for those who check. Ends with the remedy when none is given."""
    if not tokens.get("verifier"):
        which = f"splunk_existing_tokens of INVENTORY={os.environ['INVENTORY']}"
        fail(f"{which} has no token for those who check; make one there for the lab's index, and give it as `verifier`")
    return tokens["verifier"]


def verify(session: str, *, index: bool = False, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Check a session, or `--last`; with `index` what is found goes into the log, signed by the verifier's key."""
    if not index:
        return read_log("verify", session, capture=capture)
    more = verifier_environment()
    done = read_log("verify", session, "--index", capture=capture, more=more)
    made = Path(more["SIGNING_KEY_VERIFY"]).with_suffix(".pub")
    kept = Path(log_environment().get("VERIFY_KEYS", "")) / made.name
    if (
        made.is_file() and "VERIFY_KEYS" in log_environment() and not kept.is_file()
    ):  # what it signs can be checked, too
        shutil.copyfile(made, kept)
    return done


def read_log(
    verb: str, *arguments: str, capture: bool = False, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `glasslab VERB` on this machine against the lab's log, with `more` in its environment."""
    return subprocess.run(
        [str(BIN / "glasslab"), verb, *arguments],
        env=log_environment() | dict(more or {}),
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=capture,
        check=False,
    )
