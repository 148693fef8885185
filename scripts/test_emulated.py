"""make test-emulated: a real machine behind the Proxmox API's double, from Packer's build to its destruction.

Packer builds the agent's template; the double, which stands for a Proxmox VE host, makes the agent's virtual machine of
it in software emulation, plugged into the embedded lab; it answers the sample question with 25 frames in the log; a
snapshot is taken, the machine damaged, reset, rebuilt, destroyed. The inventory is inventories/proxmox. A template of
the same sources is kept in the lab's cache and not built again (--fresh: it is); --template IMAGE takes another one;
--figures FILE writes the seconds of each step as JSON. The lab is its own: glemu.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

LAB_ID = os.environ["LAB_ID"] = "glemu"

import kept_template
import lab
from lab import BIN, ROOT, fail

sys.path.append(str(ROOT / "tests" / "proxmox"))

import emulated
import pvehost

LAB_PY = ROOT / "roles" / "machine" / "files" / "nspawn" / "lab.py"
DOUBLE_FOLDER = ROOT / "molecule" / "proxmox"
# program -> the Debian package that has it
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "packer": "packer",
    "xorriso": "xorriso",
    "mmdebstrap": "mmdebstrap",
}
QUESTION = "What was the root cause of the September incident?"
FRAMES = 25
IMAGE = "agent.qcow2"
LIMIT_SECONDS = 900.0
# The embedded lab has cables of these ids' names in its hypervisor.
TAKEN = (101, 102, 201)


class Run:
    """One pass through all of it: its folder, its double, the seconds of its steps."""

    def __init__(self, folder: Path, template: Path | None) -> None:
        self.folder = folder
        self.template = template
        self.inventory = folder / "inventory"
        self.double: pvehost.Double | None = None
        self.seconds: dict[str, float] = {}

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Do one step and say how long it took."""
        began = time.monotonic()
        work()
        self.seconds[name] = round(time.monotonic() - began, 1)
        print(f"ok   {name:<58} {self.seconds[name]:6.1f} s", flush=True)

    def command(self, *words: str | Path, **environment: str) -> str:
        """Run a command; what it says goes into a file, and of a failure the end is shown."""
        texts = [str(word) for word in words]
        number = len(list(self.folder.glob("*.log")))
        log = self.folder / f"{number:02}-{Path(texts[0]).name}-{Path(texts[1]).name.partition('.')[0]}.log"
        own = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{BIN}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        }
        with log.open("w", encoding="utf-8") as out:
            done = subprocess.run(
                texts,
                cwd=ROOT,
                env=os.environ | own | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=LIMIT_SECONDS,
            )
        if done.returncode:
            with log.open(encoding="utf-8", errors="replace") as lines:
                for line in deque(lines, 60):
                    print(f"     | {line.rstrip()}")
            fail(f"test-emulated: {' '.join(texts)} ended with {done.returncode}; all of it is in {log}", 1)
        return log.read_text(encoding="utf-8", errors="replace")

    def play(self, path: str, *arguments: str) -> str:
        """Run a playbook on inventories/proxmox, as it is laid over this machine's lab."""
        return self.command(*self.playing(f"playbooks/{path}"), *arguments)

    def playing(self, path: str) -> list[str | Path]:
        """The command that runs a playbook."""
        return ["ansible-playbook", path, "-i", emulated.BASE, "-i", self.inventory]

    def on_agent(self, *command: str, stdin: str = "") -> str:
        """What a command on the agent's machine prints; it has to succeed."""
        words = ["ssh", "-F", str(emulated.ssh_config(self.inventory)), "agent", "--", *command]
        done = subprocess.run(words, input=stdin, text=True, capture_output=True, check=False, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, f"agent: {' '.join(command)}: {done.returncode}: {done.stderr or done.stdout}"
        return done.stdout

    def agent_vmid(self) -> int:
        """The id of the agent's virtual machine, which runs."""
        assert self.double
        found = pvehost.machines(self.double.host.api())
        own = [vmid for vmid, one in found.items() if one["name"] == f"{LAB_ID}-agent" and one["status"] == "running"]
        assert len(own) == 1, found
        return own[0]

    def host_key(self) -> str:
        """The agent machine's host key, asked of itself."""
        return self.on_agent("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1]


def packages() -> None:
    """Install what emulation takes, and say so."""
    missing = sorted(package for program, package in PROGRAMS.items() if not shutil.which(program))
    if missing:
        print(f"     installing distribution packages: {' '.join(missing)} (make destroy leaves them)", flush=True)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode:
            fail(f"these packages could not be installed: {' '.join(missing)}; run apt-get update, then this again")


def clear() -> None:
    """Remove what an earlier run has left of this lab."""
    command = [sys.executable, str(LAB_PY), "destroy", "--lab-id", LAB_ID, "--force"]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def build_template(run: Run, *, fresh: bool) -> None:
    """Packer's build of the agent's template, by QEMU; or the one that was built of the same sources."""
    said = run.command(sys.executable, "-m", "double.image", PYTHONPATH=str(DOUBLE_FOLDER)).splitlines()
    base = Path(said[-1])
    run.template = kept_template.place(base)
    if run.template.is_file() and not fresh:
        print(f"     built of the same sources before: {run.template}", flush=True)
        return
    output = run.folder / "packer"
    words = ["packer/template.py", "agent", "--source", "qemu", "--base", base, "--output", output]
    run.command(sys.executable, *words, "memory=1024", "upgrade=false", "qemu_restrict=true")
    kept_template.keep(output / "agent-qemu" / IMAGE, run.template)


def surroundings(run: Run) -> None:
    """The double, then the hypervisor that it plugs its guests into, and the log's machine."""
    # The namespaces are made before the inventory: it names the lab's key.
    run.command("ansible-playbook", "playbooks/hypervisor.yml", "-i", "inventories/local", "--limit=pve")
    state = run.folder / "double"
    (state / "images").mkdir(parents=True)
    assert run.template
    (state / "images" / IMAGE).symlink_to(run.template.resolve())
    seed = run.folder / "seed.json"
    seed.write_text(json.dumps({"vms": [{"vmid": vmid, "name": f"other-{vmid}"} for vmid in TAKEN]}), encoding="utf-8")
    run.double = pvehost.Double(state, "--guests", "qemu", "--lab-id", LAB_ID, "--seed", str(seed))
    run.double.host.api().pools.post(poolid="glasslab")
    checksum = hashlib.sha512(run.template.read_bytes()).hexdigest()
    emulated.write(run.inventory, run.double.ready, f"https://images.glasslab.test/{IMAGE}", f"sha512:{checksum}")


def machines(run: Run) -> None:
    """The agent's clone gets its id, the walls are put up for its port, then it starts; the log's machine beside it."""
    run.play("hypervisor.yml", "--limit=agent")
    run.play("network.yml")
    run.play("machines.yml", "--limit=logs")
    run.play("machines.yml", "--limit=agent")


def services(run: Run) -> None:
    """Log, agent and witness."""
    run.play("runtime.yml")
    run.play("services.yml")


def question(run: Run) -> None:
    """The sample question, answered, and every frame of it in the log."""
    command = (lab.GLASSLAB, "ask", "--socket", lab.SOCKET, "--json", "-")
    answer = json.loads(run.on_agent(*command, stdin=QUESTION))
    assert answer["status"] == "answered", answer
    done = lab.read_log("trace", str(answer["session_id"]), "--json", capture=True)
    assert done.returncode == 0, done.stderr
    frames = [one for one in json.loads(done.stdout)["events"] if one["sourcetype"] == "agent:trace"]
    assert len(frames) == FRAMES, f"{len(frames)} frames"


def damage(run: Run) -> None:
    """What a user may do to a machine in a bad hour."""
    run.on_agent("systemctl stop glasslab-agent.service && rm -rf /opt/glasslab /srv/glasslab && touch /damaged")


def reset(run: Run) -> None:
    """Back to the snapshot, proven by the play itself; nothing of the damage is left."""
    before = run.agent_vmid()
    said = re.findall(r"([\d.]+) s to the first answer", run.play("reset.yml"))
    assert said
    run.seconds["reset to answer"] = float(said[-1])
    assert run.agent_vmid() == before
    run.on_agent("test -d /srv/glasslab && ! test -e /damaged")
    question(run)


def rebuild(run: Run) -> None:
    """Another machine of the same name: with another id and another host key."""
    before = (run.agent_vmid(), run.host_key())
    run.play("rebuild.yml")
    after = (run.agent_vmid(), run.host_key())
    assert before[0] != after[0]
    assert before[1] != after[1]
    question(run)


def destroy(run: Run) -> None:
    """Nothing is left: no machine and template on the double, no lab on this machine."""
    assert run.double
    run.play("destroy.yml", f"--extra-vars={json.dumps({'confirm': True, 'machine_destroy_cache': False})}")
    assert set(pvehost.machines(run.double.host.api())) == set(TAKEN)
    assert not lab.STATE.exists()
    assert not lab.RUN.exists()


def everything(run: Run, *, figures: bool, fresh: bool) -> None:
    """All steps in order; for figures also a second run of the whole lab."""
    run.step("what an earlier run left", clear)
    if run.template is None:
        run.step("Packer builds the agent's template", lambda: build_template(run, fresh=fresh))
    began = time.monotonic()
    run.step("the hypervisor and the Proxmox API", lambda: surroundings(run))
    cloned = time.monotonic()
    run.step("template, clone, walls, boot", lambda: machines(run))
    run.step("log, agent, witness", lambda: services(run))
    run.step("the sample question: 25 frames", lambda: question(run))
    run.seconds["clone to answer"] = round(time.monotonic() - cloned, 1)
    run.seconds["full build"] = round(time.monotonic() - began, 1)
    if figures:  # for bench/proxmox.py; the API's own second run is the Molecule scenario's
        run.step("second run", lambda: run.command(*run.playing("site.yml")))
    run.step("snapshot", lambda: run.play("snapshot.yml", "--extra-vars=lifecycle_hosts=agent"))
    run.step("damage", lambda: damage(run))
    run.step("reset, proven", lambda: reset(run))
    run.step("rebuild, proven", lambda: rebuild(run))
    run.step("destroy", lambda: destroy(run))


def main() -> None:
    """Run it; what was made is removed also when it fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", type=Path, help="a finished image of the agent's template")
    parser.add_argument("--fresh", action="store_true", help="build the template also when it is kept")
    parser.add_argument("--figures", type=Path, help="where to write the seconds of each step")
    parser.add_argument("--keep", action="store_true", help="leave lab and double standing when it fails")
    options = parser.parse_args()
    if options.template and not options.template.is_file():
        fail(f"--template {options.template}: there is no such file")
    began = time.monotonic()
    packages()
    run = Run(Path(tempfile.mkdtemp(prefix="glasslab-emulated-", dir="/var/tmp")), options.template)
    kept = options.keep
    try:
        everything(run, figures=bool(options.figures), fresh=options.fresh)
        kept = False
    except AssertionError as error:
        fail(f"test-emulated: {error}", 1)
    finally:
        if kept:
            print(f"     kept: lab {LAB_ID}, {run.folder}; the double ends with this program", flush=True)
            input("     Enter ends it ") if sys.stdin.isatty() else None
        if run.double:
            run.double.stop()
        clear()
    if options.figures:
        options.figures.write_text(json.dumps(run.seconds, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(run.folder)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    lab.run(main)
