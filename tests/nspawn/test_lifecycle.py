"""The embedded lab's life on a real machine (root): built, used, rebooted, killed, taken over, removed without a trace.

The tests run in order and share one lab, called LAB_ID in the environment (gltest without it).
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import machine_fingerprint
import netns
import topology
from certificates import self_signed
from kernel_modules import load_br_netfilter

LAB = topology.lab(os.environ.get("LAB_ID") or "gltest")
PROGRAM = Path(__file__).resolve().parents[2] / "roles/machine/files/nspawn/lab.py"
VMBR1 = """\
auto vmbr1
iface vmbr1 inet static
\taddress 10.10.10.1/24
\tbridge-ports none
\tbridge-ports-condone-regex ^tap
\tbridge-stp off
\tbridge-fd 0
"""


def program(*arguments: str, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a verb of the program and see that it ends with `code`."""
    argv = [sys.executable, str(PROGRAM), arguments[0], "--lab-id", LAB.lab_id, *arguments[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def result(*arguments: str) -> dict[str, Any]:
    """What a verb answers."""
    answer = json.loads(program(*arguments).stdout)
    assert isinstance(answer, dict)
    return answer


def ssh(machine: str, command: str, deadline: float = 30.0) -> str:
    """Run a command on a machine, asking again while it cannot be reached."""
    end = time.monotonic() + deadline
    argv = ["ssh", "-F", str(LAB.runtime / "ssh_config"), machine, "--", command]
    while True:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=30)
        if done.returncode != 255:
            assert done.returncode == 0, f"{machine}: {command}: {done.stderr}"
            return done.stdout
        assert time.monotonic() < end, f"{machine} does not answer: {done.stderr}"
        time.sleep(0.1)


def bring_up_all() -> None:
    """pve first, a plain vmbr1 on it as roles/network would make one, then the guests."""
    result("up", "--machines", "pve")
    ssh("pve", f"printf %s '{VMBR1}' >/etc/network/interfaces.d/vmbr1 && ifreload -a")
    result("up", "--machines", "agent,logs")
    for machine in topology.MACHINES:
        assert ssh(machine, "hostname").strip() == machine


def answer(address: str, port: int, kind: socket.SocketKind) -> bytes:
    """What a listener answers when asked from the namespace `ctl`."""
    with netns.inside(netns.path(LAB, "ctl")):
        probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    with probe:
        probe.settimeout(3)
        probe.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            probe.send(b"hello")
        return probe.recv(300)


def resolve(name: str) -> tuple[int, list[str]]:
    """Response code and addresses that the lab's resolver gives for a name."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0" + b"\0\1\0\1"
    with netns.inside(netns.path(LAB, "ctl")):
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with probe:
        probe.settimeout(3)
        probe.connect((topology.RESOLVER, 53))
        probe.send(struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + question)
        reply = probe.recv(512)
    code, count = reply[3] & 15, struct.unpack(">H", reply[6:8])[0]
    return code, [socket.inet_ntoa(reply[-4:])] if count == 1 else []


def boot_id(machine: str) -> str:
    """Changes with each boot."""
    return ssh(machine, "cat /proc/sys/kernel/random/boot_id").strip()


def reboot(machine: str) -> None:
    """Reboot a machine from inside and wait until it has come back."""
    before = boot_id(machine)
    ssh(machine, "systemctl reboot")
    end = time.monotonic() + 30
    while boot_id(machine) == before:
        assert time.monotonic() < end, f"{machine} did not reboot"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def untouched() -> Iterator[str]:
    """The machine's picture without the lab; the lab is removed at both ends."""
    result("destroy", "--force")
    load_br_netfilter()
    yield machine_fingerprint.text(LAB.lab_id)
    result("destroy", "--force")


def running_commands() -> list[str]:
    """The command line of every process on this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


def traces(untouched: str) -> str:
    """What is left of the lab."""
    places = [LAB.state, LAB.runtime, LAB.runtime.with_suffix(".lock")]
    left = [str(place) for place in places if place.exists()]
    left += [str(place) for place in Path("/run/systemd/nspawn").glob(f"*/{LAB.lab_id}-*")]
    left += [command for command in running_commands() if str(LAB.runtime) in command or str(LAB.state) in command]
    return "\n".join(left) + machine_fingerprint.difference(untouched, machine_fingerprint.text(LAB.lab_id))


def test_machines_come_up_one_after_the_other(untouched: str) -> None:
    would = result("up", "--check")
    assert would["changed"] is True
    assert traces(untouched) == ""  # --check has done nothing
    bring_up_all()
    states = {name: one["state"] for name, one in result("status", "--json")["machines"].items()}
    assert states == dict.fromkeys(topology.MACHINES, "running")
    assert program("exec", "agent", "--", "hostname").stdout.strip() == "agent"
    assert program("ns-exec", "lan", "--", "sh", "-c", "exit 7", code=7).stderr == ""


def test_second_up_changes_nothing(untouched: str) -> None:
    assert result("up", "--check") == {"changed": False, "lab_id": LAB.lab_id, "would": []}
    again = result("up")
    assert (again["changed"], again["did"]) == (False, [])


def test_root_namespace_takes_no_part(untouched: str) -> None:
    now = machine_fingerprint.text(LAB.lab_id)
    for section in ("links", "addresses", "routes", "routes6", "rules", "rules6", "nft", "iptables", "sysctls"):
        own = [picture.split(f"[{section}]\n")[1].split("\n[")[0] for picture in (untouched, now)]
        assert machine_fingerprint.difference(*own) == ""
    for name in topology.NAMESPACES:
        links = json.loads(program("ns-exec", name, "--", "ip", "-d", "-j", "link", "show").stdout)
        kinds = {link.get("linkinfo", {}).get("info_kind") for link in links if link["ifname"] != "lo"}
        assert kinds <= {"veth", "bridge"}


def test_a_machine_reaches_nothing_outside_the_lab(untouched: str) -> None:
    found = program("ns-exec", "internet", "--", "ip", "route", "get", "9.9.9.9", code=2)
    assert "unreachable" in found.stderr
    assert program("ns-exec", "lan", "--", "ip", "route", "get", "9.9.9.9", code=2).stdout == ""


def test_resolver_knows_the_labs_names_and_nothing_else(untouched: str) -> None:
    assert topology.NAMES["model.glasslab.test"] == topology.NAMES["other.glasslab.test"] == "203.0.113.10"
    for name, address in topology.NAMES.items():
        assert resolve(name) == (0, [address])
    for name in ("example.com", "localhost", socket.gethostname(), "pve", "sub.model.glasslab.test"):
        assert resolve(name) == (3, [])


def test_listeners_answer_from_the_address_that_was_asked(untouched: str) -> None:
    wanted = {
        (address, port) for addresses, ports in topology.LISTENERS.values() for address in addresses for port in ports
    }
    wanted |= {(address, 8006) for address in ("192.168.50.2", "10.20.20.1", "10.10.10.1", "fd50::2", "fd20::1")}
    for address, port in sorted(wanted):
        assert f"tcp {port}".encode() in answer(address, port, socket.SOCK_STREAM)
        assert f"udp {port} hello".encode() in answer(address, port, socket.SOCK_DGRAM)
    assert b"OpenSSH" in answer("192.168.50.2", 22, socket.SOCK_STREAM)


def test_only_keys_open_a_machine(untouched: str) -> None:
    shown = ssh("agent", "sshd -T")
    for line in ("passwordauthentication no", "kbdinteractiveauthentication no", "permitrootlogin without-password"):
        assert line in shown


def test_hypervisor_looks_like_one(untouched: str) -> None:
    assert ssh("pve", "sysctl -n net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables").split() == ["1", "0"]
    assert ssh("pve", "sysctl -n net.ipv6.conf.all.forwarding net.ipv6.conf.vmbr0.accept_ra").split() == ["1", "2"]
    installed = ssh("pve", "systemctl is-enabled haproxy ulogd2; systemctl is-active haproxy ulogd2; true").split()
    assert installed == ["disabled", "disabled", "inactive", "inactive"]
    assert "source /etc/network/interfaces.d/*" in ssh("pve", "cat /etc/network/interfaces")
    masters = {link["ifname"]: link.get("master") for link in json.loads(ssh("pve", "ip -j link show"))}
    plugged = {tap.interface: masters[tap.interface] for tap in topology.TAPS}
    assert plugged == {"tap101i0": "vmbr1", "tap102i0": "vmbr1", "tap201i0": "vmbr2"}


def test_a_port_that_was_taken_out_stays_out_and_a_new_bridge_gets_its_ports(untouched: str) -> None:
    ssh("pve", "ip link set tap102i0 nomaster; ip link set tap102i0 down; ip link set vmbr1 down; ip link set vmbr1 up")
    time.sleep(0.5)
    assert "master" not in ssh("pve", "ip link show tap102i0")
    ssh("pve", "ip link delete vmbr1; ip link add vmbr1 type bridge")
    time.sleep(0.5)
    assert "master" not in ssh("pve", "ip link show tap101i0")  # the bridge is there, but down
    ssh("pve", "ip link delete vmbr1; ifup vmbr1")
    time.sleep(0.5)
    assert ssh("pve", "ip -br link show master vmbr1").count("tap10") == 2
    assert ssh("logs", "hostname").strip() == "logs"


def test_guest_survives_a_reboot_with_an_empty_network(untouched: str) -> None:
    ssh("agent", "touch /root/kept; sysctl -qw net.ipv4.conf.all.rp_filter=1; ip link add leftover type bridge")
    reboot("agent")
    assert ssh("agent", "ls /root/kept; sysctl -n net.ipv4.conf.all.rp_filter").split() == ["/root/kept", "0"]
    assert "leftover" not in ssh("agent", "ip -br link")
    assert "10.10.10.10/24" in ssh("agent", "ip -br address show eth0")


def disk(machine: str) -> dict[str, Any]:
    """What `status` says of a machine's disk."""
    found: dict[str, Any] = result("status", "--json")["disks"][machine]
    return found


def test_guests_go_back_to_a_snapshot_of_one_moment(untouched: str) -> None:
    assert result("snapshot", "--machines", "agent,logs", "--check")["machines"] == ["agent", "logs"]
    assert disk("agent")["snapshots"] == []
    assert result("snapshot", "--machines", "agent,logs")["machines"] == ["agent", "logs"]
    assert [[one["name"] for one in disk(name)["snapshots"]] for name in ("agent", "logs")] == [["clean"], ["clean"]]
    assert "is taken by a snapshot of agent, logs" in program("snapshot", "--machines", "agent,logs", code=2).stderr
    before, other = boot_id("agent"), boot_id("logs")
    ssh("agent", "rm /root/kept /etc/hostname; touch /root/planted; sync")
    assert result("rollback", "--machines", "agent")["changed"] is True
    assert ssh("agent", "cat /etc/hostname; ls /root/kept; ls /root | grep -c planted || true").split() == [
        "agent",
        "/root/kept",
        "0",
    ]
    assert (boot_id("agent") != before, boot_id("logs") == other) == (True, True)
    assert ssh("agent", "ping -c 1 -W 2 10.10.10.20 >/dev/null && echo through").strip() == "through"
    said = program("rollback", "--machines", "agent", "--name", "nosuch", code=2).stderr
    assert said == "glasslab: agent has no snapshot 'nosuch': it has clean\n"


def test_a_machine_whose_snapshot_is_killed_goes_on(untouched: str) -> None:
    argv = [sys.executable, str(PROGRAM), "snapshot", "--lab-id", LAB.lab_id, "--machines", "agent", "--name", "cut"]
    for tree in Path("/sys/fs/cgroup").rglob(f"glasslab.{LAB.lab_id}/agent/cgroup.events"):
        events = tree
    ssh("agent", "dd if=/dev/urandom of=/root/large bs=1M count=100 status=none")
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as taking:
        end = time.monotonic() + 20
        while "frozen 1" not in events.read_text():
            assert taking.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < end
        taking.kill()
    assert ssh("agent", "rm /root/large; hostname", deadline=5).strip() == "agent"
    assert "frozen 0" in events.read_text()
    assert [one["name"] for one in disk("agent")["snapshots"]] == ["clean"]
    result("snapshot", "--machines", "agent", "--name", "cut")
    assert result("snapshot", "--machines", "agent", "--name", "cut", "--remove")["changed"] is True
    assert sorted(file.name for file in (LAB.machine("agent") / "snapshots").iterdir()) == ["clean"]


def test_a_successor_is_another_machine_and_its_predecessor_can_come_back(untouched: str) -> None:
    key, machine_id = (LAB.ssh / "host-agent.pub").read_text(), ssh("agent", "cat /etc/machine-id")
    assert result("renew", "--machines", "agent")["machines"] == ["agent"]
    assert (LAB.ssh / "host-agent.pub").read_text() != key
    assert ssh("agent", "cat /etc/machine-id") != machine_id
    assert ssh("agent", "ls /root").strip() == ""
    assert disk("agent")["predecessor"] is True
    assert result("renew", "--machines", "agent")["machines"] == []
    assert result("put-back", "--machines", "agent")["machines"] == ["agent"]
    assert (LAB.ssh / "host-agent.pub").read_text() == key
    assert ssh("agent", "cat /etc/machine-id; ls /root/kept").split() == [machine_id.strip(), "/root/kept"]
    assert [one["name"] for one in disk("agent")["snapshots"]] == ["clean"]
    assert "there is nothing to put back" in program("put-back", "--machines", "agent", code=2).stderr
    result("renew", "--machines", "logs")
    assert result("let-go", "--machines", "logs")["machines"] == ["logs"]
    assert sorted(file.name for file in (LAB.state / "machines").iterdir()) == ["agent", "logs", "pve"]
    assert ssh("logs", "hostname").strip() == "logs"


def test_hypervisor_survives_a_reboot_with_an_empty_network(untouched: str) -> None:
    ssh("pve", "nft add table inet forgotten; ip rule add from 1.2.3.4 table 77; ip route add unreachable 1.2.3.0/24")
    reboot("pve")
    assert "forgotten" not in ssh("pve", "nft list tables")
    assert "77" not in ssh("pve", "ip rule")
    assert "1.2.3" not in ssh("pve", "ip route show table all")
    assert ssh("agent", "ping -c 1 -W 2 10.10.10.20 >/dev/null && echo through").strip() == "through"
    assert result("status", "--json")["machines"]["pve"]["reboots"] == 1


def test_a_machine_that_was_switched_off_is_booted_by_up(untouched: str) -> None:
    ssh("logs", "systemctl poweroff")
    end = time.monotonic() + 20
    while result("status", "--json")["machines"]["logs"]["state"] != "stopped":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "booted logs" in result("up", "--machines", "logs")["did"]
    assert ssh("logs", "hostname").strip() == "logs"


def test_a_stand_in_that_dies_is_started_again(untouched: str) -> None:
    before = result("status", "--json")["standins"]["lan"]["pid"]
    os.kill(before, signal.SIGKILL)
    time.sleep(1)
    now = result("status", "--json")["standins"]["lan"]
    assert (now["state"], now["restarts"]) == ("running", 1)
    assert now["pid"] != before
    assert answer("192.168.50.10", 80, socket.SOCK_STREAM)


def model_api(tmp_path: Path, path: str) -> bytes:
    """What the model API answers inside the lab, over TLS that is verified."""
    with netns.inside(netns.path(LAB, "ctl")):
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    plain.settimeout(5)
    plain.connect((topology.MODEL_ADDRESS, 443))
    context = ssl.create_default_context(cafile=str(tmp_path / "crt"))
    with context.wrap_socket(plain, server_hostname="model.glasslab.test") as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_model_api_is_relayed_to_this_machine_then_replaced(untouched: str, tmp_path: Path) -> None:
    self_signed(tmp_path, "DNS:model.glasslab.test")
    (tmp_path / "models").write_text("a model of this machine")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    outside = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # in the root namespace
    threading.Thread(target=outside.serve_forever, daemon=True).start()
    relay = {"base_url": f"http://127.0.0.1:{outside.server_port}", "certificate": "crt", "key": "key"}
    relay |= {name: str(tmp_path / relay[name]) for name in ("certificate", "key")}
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"model": {"relay": relay}}))
    assert result("up", "--spec", str(spec))["did"] == ["started stand-ins"]
    assert model_api(tmp_path, "/v1/models").endswith(b"a model of this machine\r\n0\r\n\r\n")
    assert b" 404 " in model_api(tmp_path, "/models").splitlines()[0]
    outside.shutdown()
    outside.server_close()
    assert b" 502 " in model_api(tmp_path, "/v1/models").splitlines()[0]
    assert result("up", "--spec", str(spec))["changed"] is False

    server = [sys.executable, str(PROGRAM.parent / "listeners.py"), "command", "203.0.113.10:443"]
    spec.write_text(json.dumps({"model": {"command": server}}))
    assert result("up", "--spec", str(spec))["did"] == ["started stand-ins"]
    assert answer("203.0.113.10", 443, socket.SOCK_STREAM) == b"glasslab command tcp 443\n"
    assert result("up")["changed"] is False  # without a spec it keeps what it has


def test_a_model_command_that_does_not_listen_is_told_with_its_last_words(untouched: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"model": {"command": ["/bin/sh", "-c", "echo no such model >&2; exit 1"]}}))
    done = program("up", "--spec", str(spec), code=2)
    assert "stand-in model does not listen on 203.0.113.10:443: no such model" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_checkout_is_refused_while_the_lab_lives(untouched: str) -> None:
    for verb in ("up", "destroy", "down", "preflight"):
        done = program(verb, "--checkout", "/home/other", code=2)
        assert len(done.stderr.splitlines()) == 1
        assert f"make destroy FORCE=1 LAB_ID={LAB.lab_id}" in done.stderr
    assert ssh("agent", "hostname").strip() == "agent"


def test_a_killed_supervisor_is_taken_over_with_disks_and_keys(untouched: str) -> None:
    key = (LAB.ssh / "host-agent.pub").read_text()
    os.kill(int((LAB.runtime / "supervisor.pid").read_text()), signal.SIGKILL)
    time.sleep(0.2)
    assert result("status", "--json")["presence"] == "dead"
    again = result("up", "--checkout", "/home/other")  # dead: any checkout may
    assert again["did"][0] == "took over a lab without supervisor"
    assert ssh("agent", "ls /root/kept").strip() == "/root/kept"
    assert (LAB.ssh / "host-agent.pub").read_text() == key


def test_down_keeps_the_disks(untouched: str) -> None:
    assert result("down", "--checkout", "/home/other")["changed"] is True
    assert result("down")["changed"] is False
    assert not LAB.runtime.exists()
    bring_up_all()
    assert ssh("agent", "ls /root/kept").strip() == "/root/kept"


def test_destroy_leaves_the_machine_as_it_was(untouched: str) -> None:
    assert result("destroy")["changed"] is True
    assert traces(untouched) == ""
    assert result("destroy")["changed"] is False


@pytest.mark.parametrize("moment", [0.1, 0.2, 0.3, 0.45, 0.7])
def test_destroy_after_a_kill_in_the_middle_of_up(untouched: str, moment: float) -> None:
    argv = [sys.executable, str(PROGRAM), "up", "--lab-id", LAB.lab_id]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as building:
        time.sleep(moment)
        building.kill()
    result("destroy", "--checkout", "/home/other", "--force")
    assert traces(untouched) == ""


def test_up_after_kills_of_everything(untouched: str) -> None:
    argv = [sys.executable, str(PROGRAM), "up", "--lab-id", LAB.lab_id]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as building:
        time.sleep(0.25)
        building.kill()
    bring_up_all()
    machines = result("status", "--json")["machines"]
    os.kill(int((LAB.runtime / "supervisor.pid").read_text()), signal.SIGKILL)
    for one in machines.values():
        os.kill(one["pid"], signal.SIGKILL)
    result("destroy")
    assert traces(untouched) == ""


def test_names_in_use_by_something_else_are_refused(untouched: str) -> None:
    subprocess.run(["ip", "netns", "add", LAB.namespace("pve")], check=True)
    try:
        done = program("up", code=2)
        assert f"network namespace {LAB.namespace('pve')} exists and no lab" in done.stderr
        assert not LAB.state.exists()
        assert result("destroy")["changed"] is False
        assert netns.path(LAB, "pve").exists()
    finally:
        result("destroy", "--force")
    assert traces(untouched) == ""


def test_two_ups_at_once_make_one_lab(untouched: str) -> None:
    argv = [sys.executable, str(PROGRAM), "up", "--lab-id", LAB.lab_id, "--machines", "pve"]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(one.communicate(timeout=60)[0]) for one in both]
    assert sorted(one["changed"] for one in answers) == [False, True]
    with (LAB.runtime / "supervisor.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    result("destroy")
    assert traces(untouched) == ""
