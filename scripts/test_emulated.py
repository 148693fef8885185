"""make test-emulated: a real machine behind the Proxmox API's double, from Packer's build to its destruction.

Packer builds the agent's template; the double, which stands for a Proxmox VE host, makes the agent's virtual machine of
it in software emulation, plugged into the embedded lab; it answers the sample question with 25 frames in the log (with
--proof it also runs into its limits and reboots); a snapshot is taken, the machine damaged, reset, rebuilt, destroyed.
The inventory is inventories/proxmox. A template of the same sources is kept in the lab's cache and not built again
(--fresh: it is); --template IMAGE takes another one;
--figures FILE writes the seconds of each step as JSON; --logs FOLDER keeps what each command said, with the seconds of
its tasks. The lab is its own: glemu.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAB_ID = os.environ["LAB_ID"] = "glemu"

import kept_template
import lab
from lab import ROOT, fail

sys.path += [str(ROOT / "tests" / "proxmox"), str(ROOT / "packer")]

import emulated
import limitscheck
import pvehost
from emulatedrun import Run

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
# The embedded lab has cables of these ids' names in its hypervisor.
TAKEN = (101, 102, 201)


def programs() -> None:
    """See that what emulation takes is there, or end with the names of what is missing."""
    missing = sorted(package for program, package in PROGRAMS.items() if not shutil.which(program))
    if missing:
        fail(
            f"these packages are missing: {' '.join(missing)}; make test-emulated, or scripts/setup.sh --with-emulation"
        )


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


def limits(run: Run) -> None:
    """TasksMax and MemoryMax of the agent's unit, run into; it answers afterwards."""
    said = run.on_agent(f"python3 - {limitscheck.UNIT}", stdin=limitscheck.PROGRAM.read_text(encoding="utf-8"))
    for what, right, found in limitscheck.facts(json.loads(said)):
        assert found == right, f"{what}: {found!r}: {said}"


def reboot(run: Run) -> None:
    """The machine boots again, by itself, and answers."""
    boot = run.on_agent("cat /proc/sys/kernel/random/boot_id")
    run.on_agent("systemd-run --on-active=1 systemctl reboot")
    run.wait_for_boot(unlike=boot)
    question(run)


def damage(run: Run) -> None:
    """What a user may do to a machine in a bad hour."""
    run.on_agent("systemctl stop glasslab-agent.service && rm -rf /opt/glasslab /srv/glasslab && touch /damaged")


def reset(run: Run) -> None:
    """Back to the snapshot, proven by the play itself; nothing of the damage is left."""
    before = run.agent_vmid()
    run.seconds |= emulated.reset_seconds(run.play("reset.yml"))
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


def everything(run: Run, *, figures: bool, fresh: bool, proof: bool) -> None:
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
    if proof:
        run.step("MemoryMax and TasksMax, run into", lambda: limits(run))
        run.step("reboot, the question again", lambda: reboot(run))
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
    parser.add_argument("--proof", action="store_true", help="also run into the limits, and reboot")
    parser.add_argument("--logs", type=Path, help="folder for what each command said")
    parser.add_argument("--keep", action="store_true", help="leave lab and double standing when it fails")
    options = parser.parse_args()
    if options.template and not options.template.is_file():
        fail(f"--template {options.template}: there is no such file")
    began = time.monotonic()
    programs()
    run = Run(Path(tempfile.mkdtemp(prefix="glasslab-emulated-", dir="/var/tmp")), options.template)
    kept = options.keep
    try:
        everything(run, figures=bool(options.figures), fresh=options.fresh, proof=options.proof)
        kept = False
    except AssertionError as error:
        fail(f"test-emulated: {error}", 1)
    finally:
        if kept:
            print(f"     kept: lab {LAB_ID}, {run.folder}; the double ends with this program", flush=True)
            input("     Enter ends it ") if sys.stdin.isatty() else None
        if run.double:
            run.double.stop()
        if options.logs:
            run.keep_logs(options.logs)
        clear()
    if options.figures:
        options.figures.write_text(json.dumps(run.seconds, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(run.folder)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    lab.run(main)
