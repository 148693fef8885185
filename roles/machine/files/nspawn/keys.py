"""SSH identities of a lab: a key for the control side, a host key a machine, and the configuration that uses them."""

from __future__ import annotations

import sys
from pathlib import Path

from errors import attempt, run
from topology import MACHINES, Lab


def _generate(where: Path, comment: str) -> None:
    """Make an Ed25519 key pair; a half-made one (killed in between) is never taken for a whole one."""
    partial = where.with_name(f"{where.name}.new")
    for leftover in (partial, partial.with_name(f"{partial.name}.pub")):
        leftover.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(partial)])
    partial.with_name(f"{partial.name}.pub").replace(f"{where}.pub")
    partial.replace(where)


def ensure(lab: Lab) -> bool:
    """Make what is missing of the lab's keys, known hosts and SSH configuration; True when a key was made."""
    lab.ssh.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = False
    for name in ("id", *(f"host-{machine}" for machine in MACHINES)):
        if not (lab.ssh / name).exists():
            _generate(lab.ssh / name, f"{lab.lab_id} {name}")
            made = True
    known = "".join(f"{machine} {host_key(lab, machine)[1]}" for machine in MACHINES)
    (lab.ssh / "known_hosts").write_text(known)
    return made


def host_key(lab: Lab, machine: str) -> tuple[str, str]:
    """A machine's private and public host key."""
    return (lab.ssh / f"host-{machine}").read_text(), (lab.ssh / f"host-{machine}.pub").read_text()


def public_key(lab: Lab) -> str:
    """The control side's public key."""
    return (lab.ssh / "id.pub").read_text()


def interpreter() -> str:
    """A Python that stays where it is: the system's rather than that of a virtual environment, which may go."""
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else sys.executable


def configuration(lab: Lab) -> str:
    """The text of the lab's ssh_config.

    pve is reached through a helper that opens the connection inside the namespace `ctl`, guests through pve. Host keys
    are pinned under the machines' names. A control socket that outlived its machine is given up within 6 seconds.
    """
    here = lab.runtime / "ssh_config"
    common = f"""\
Host *
  User root
  IdentityFile {lab.ssh}/id
  IdentitiesOnly yes
  UserKnownHostsFile {lab.ssh}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  PasswordAuthentication no
  BatchMode yes
  ConnectTimeout 5
  ServerAliveInterval 2
  ServerAliveCountMax 3
  ControlMaster auto
  ControlPath {lab.runtime}/cm-%n
  ControlPersist 60s
  LogLevel ERROR
"""
    helper = f"{interpreter()} -S {lab.runtime}/program/ssh_proxy.py {lab.lab_id}"
    hosts = []
    for name, machine in MACHINES.items():
        reach = (
            f"  ProxyCommand {helper} {name}\n  ProxyUseFdpass yes\n"
            if name == "pve"
            else f"  ProxyCommand ssh -F {here} -W %h:%p pve\n"
        )
        hosts.append(f"Host {name}\n  HostName {machine.address}\n  HostKeyAlias {name}\n{reach}")
    return "".join(hosts) + common


def forget_connections(lab: Lab, machine: str) -> None:
    """Take away the sockets of ssh's shared connections that lead to a machine which has just gone down.

    Through pve they all do; which of Ansible's (in cp/) lead where cannot be told, and a new one costs little.
    """
    for shared in _shared_connections(lab):
        if machine == "pve" or shared.parent.name == "cp" or shared.name == f"cm-{machine}":
            shared.unlink(missing_ok=True)


def end_connections(lab: Lab) -> None:
    """End ssh's shared connections: they outlive the commands that opened them and would hold the lab's namespaces."""
    for shared in _shared_connections(lab):
        attempt(["ssh", "-F", "/dev/null", "-o", f"ControlPath={shared}", "-O", "exit", "lab"], timeout=3.0)


def _shared_connections(lab: Lab) -> list[Path]:
    return [place for place in (*lab.runtime.glob("cm-*"), *lab.runtime.glob("cp/*")) if place.is_socket()]
