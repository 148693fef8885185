"""Boots a finished agent image in software emulation and proves what it is for: packer/prove.py IMAGE

A first boot makes keys and identity, and the services wait for their credentials. Then the lab's own role brings those,
a question is answered with every frame acknowledged by a collector, MemoryMax and TasksMax are run into, and a reboot
is survived. Prints one JSON object with what was seen and the seconds; exit code 1 when something is not right.
Where nothing else is at work, --quick takes a third of the time; on a busy machine the services' own deadlines pass.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import limitscheck
from prooflab import BIN, LOG, MODEL, ROOT, Guest, ProofError, Surroundings

QUESTION = "What was the root cause of the September incident?"
FRAMES = 25
UNITS = ("glasslab-agent.service", "glasslab-files.service", "glasslab-files.socket")
ASK = "/opt/glasslab/venv/bin/glasslab ask --socket /run/glasslab-agent/agent.sock --json -"
STARTED_SECONDS = 300


class Proof:
    """What was seen, and how long each part took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.seen: dict[str, Any] = {}
        self.began = time.monotonic()

    def part(self, name: str) -> None:
        """The part that ends now."""
        now = time.monotonic()
        self.seconds[name] = round(now - self.began, 1)
        self.began = now
        print(f"proof: {name} {self.seconds[name]} s", file=sys.stderr, flush=True)

    def is_so(self, what: str, right: object, found: object) -> None:
        """Note what was found. Raises ProofError when it is not what is right."""
        self.seen[what] = found
        if found != right:
            raise ProofError(f"{what}: {found!r}, and it has to be {right!r}")


def first_boot(guest: Guest, proof: Proof) -> None:
    """Keys and identity are new, nothing has failed, the services wait."""
    proof.is_so("cleaned", "clean", guest.say("cat /usr/share/glasslab/cleaned"))
    proof.is_so("host keys", "yes", guest.say("test -s /etc/ssh/ssh_host_ed25519_key && echo yes"))
    proof.is_so("machine id", "32", guest.say("tr -d '\\n' </etc/machine-id | wc -c"))
    for unit in UNITS:
        state = guest.say(f"systemctl show -P ActiveState -P ConditionResult {unit}").split()
        proof.is_so(f"{unit} without credentials", ["inactive", "no"], state)
    proof.is_so("failed units", "", guest.say("systemctl --failed --plain --no-legend"))


def bring_credentials(guest: Guest, surroundings: Surroundings) -> None:
    """The lab's own play, as for a machine that was just cloned. Raises ProofError with its last words."""
    variables = {
        "agent_model_base_url": f"https://{MODEL}/v1",
        "agent_model_ca": f"{surroundings.place}/ca.crt",
        "agent_model_api_key": "scripted",
        "agent_hec_url": f"https://{LOG}:8088",
        "agent_hec_ca": f"{surroundings.place}/ca.crt",
        "agent_hec_tokens": surroundings.tokens,
        "agent_ip_allow": [LOG, MODEL],
        "agent_log_ip_allow": [LOG],
        "agent_lab_trace": "full",
        # Not the lab's five seconds: an emulated processor is slow at TLS.
        "agent_hec_deadline": 30.0,
        "agent_verify_keys": f"{surroundings.place}/verify_keys",
        "ansible_host": "127.0.0.1",
        "ansible_port": guest.port,
        "ansible_user": "root",
        "ansible_ssh_common_args": " ".join(guest.ssh_options()),
    }
    inventory = guest.place / "inventory.json"
    inventory.write_text(json.dumps({"agents": {"hosts": {"proof": variables}}}), encoding="utf-8")
    environment = os.environ | {"ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg", "LC_ALL": "C.UTF-8", "ANSIBLE_TIMEOUT": "60"}
    argv = [BIN / "ansible-playbook", "-i", inventory, ROOT / "playbooks/agent.yml"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    (guest.place / "role.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise ProofError(f"playbooks/agent.yml failed: see {guest.place}/role.log")


def wait_for_service(guest: Guest) -> None:
    """Wait until the agent takes questions. Raises ProofError."""
    deadline = time.monotonic() + STARTED_SECONDS
    while guest.run("systemctl is-active --quiet glasslab-agent.service glasslab-files.socket").returncode:
        if time.monotonic() > deadline:
            raise ProofError(f"glasslab-agent.service is not up within {STARTED_SECONDS} s")
        time.sleep(1)


def ask(guest: Guest, surroundings: Surroundings, proof: Proof, when: str) -> None:
    """The sample question is answered, and the log has every frame."""
    wait_for_service(guest)
    done = guest.run(ASK, QUESTION)
    if done.returncode:
        raise ProofError(f"{when}: ask ended with {done.returncode}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    proof.is_so(f"{when}: status", "answered", answer["status"])
    proof.is_so(f"{when}: frames in the log", FRAMES, len(surroundings.session(answer["session_id"])))


def limits(guest: Guest, proof: Proof) -> None:
    """TasksMax and MemoryMax of the agent's unit, run into."""
    program = limitscheck.PROGRAM.read_text(encoding="utf-8")
    shown = json.loads(guest.say(f"python3 - {limitscheck.UNIT}", program))
    proof.seen["limits"] = shown
    for fact in limitscheck.facts(shown):
        proof.is_so(*fact)


def prove(image: Path, work: Path, *, quick: bool) -> Proof:
    """Everything, in order. Raises ProofError."""
    if not image.is_file():
        raise ProofError(f"no image at {str(image)!r}: packer/template.py agent --source qemu builds one")
    proof = Proof()
    surroundings = Surroundings(work)
    guest = Guest(image, work, surroundings, quick=quick)
    try:
        surroundings.begin()
        guest.start()
        proof.part("collector and model")
        boot = guest.wait()
        proof.part("first boot to SSH")
        first_boot(guest, proof)
        proof.part("first boot looked at")
        bring_credentials(guest, surroundings)
        proof.part("credentials by the role")
        ask(guest, surroundings, proof, "first question")
        proof.part("first question")
        limits(guest, proof)
        proof.part("limits")
        ask(guest, surroundings, proof, "after the limits")
        proof.part("question after the limits")
        guest.run("systemctl reboot")
        guest.wait(unlike=boot)
        proof.part("reboot to SSH")
        ask(guest, surroundings, proof, "after the reboot")
        proof.part("question after the reboot")
    finally:
        guest.end()
        surroundings.end()
    return proof


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="the clock of this machine, and a thread for each processor"
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs and the disk, also when all is well")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="glasslab-proof-"))
    # Also when it is killed by hand, nothing that it started stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        proof = prove(options.image, work, quick=options.quick)
    except KeyboardInterrupt:
        sys.exit(f"proof: interrupted (kept: {work})")
    except (ProofError, subprocess.TimeoutExpired) as error:
        sys.exit(f"proof: {error} (kept: {work})")
    if not options.keep:
        shutil.rmtree(work)
    print(json.dumps({"seen": proof.seen, "seconds": proof.seconds}, indent=1))


if __name__ == "__main__":
    main()
