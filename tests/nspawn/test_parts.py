"""The parts of the embedded lab's program that need no lab: names, topology, commands, configuration, ownership."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import build
import destroy
import kernel_modules
import keys
import lab as cli
import machine_fingerprint
import mirror
import netns
import preflight
import standins
import state
import topology
import webhosts
from errors import LabError, attempt, run

PROGRAM = Path(__file__).resolve().parents[2] / "roles/machine/files/nspawn/lab.py"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> topology.Lab:
    """A lab whose folders lie in a temporary one."""
    monkeypatch.setattr(topology.Lab, "state", property(lambda self: tmp_path / "state" / self.lab_id))
    monkeypatch.setattr(topology.Lab, "runtime", property(lambda self: tmp_path / "run" / self.lab_id))
    return topology.lab("unit")


@pytest.mark.parametrize("name", ["", "Lab", "a-b", "../x", "a" * 17, "1lab", "lab\n"])
def test_a_lab_id_that_cannot_be_a_name_everywhere_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lab id"):
        topology.lab(name)


def test_unknown_machine_is_named_with_the_known_ones() -> None:
    assert topology.machines("logs, pve") == ["pve", "logs"]
    with pytest.raises(LabError, match="unknown machine 'web': the embedded lab has pve, agent, logs"):
        topology.machines("web")


def test_an_inventory_with_other_addresses_is_refused() -> None:
    topology.compare("agent", {"address": "10.10.10.10", "mac": "02:10:00:00:00:10", "port": ""})
    with pytest.raises(LabError, match=r"machine_address of agent is '10.0.0.1'.*10.10.10.10"):
        topology.compare("agent", {"address": "10.0.0.1"})


def test_cables_join_namespaces_of_the_lab_and_no_interface_twice() -> None:
    ends = [end for cable in topology.CABLES for end in cable]
    assert {end.namespace for end in ends} <= set(topology.NAMESPACES)
    assert len({(end.namespace, end.interface) for end in ends}) == len(ends)
    assert len({end.mac for end in ends}) == len(ends)
    assert all(len(end.interface) < 16 for end in ends)


def test_taps_and_machines_agree_with_the_cables() -> None:
    by_port = {(far.namespace, far.interface): near for near, far in topology.CABLES}
    for tap in topology.TAPS:
        assert ("pve", tap.interface) in by_port
    for name in ("agent", "logs"):
        guest = topology.MACHINES[name]
        assert by_port["pve", guest.port] == topology.End(name, "eth0", guest.mac)


def test_hypervisor_ends_sort_after_guests_so_the_bridge_keeps_its_address() -> None:
    taps = [far.mac for _, far in topology.CABLES if far.interface in ("tap101i0", "tap102i0")]
    assert taps == sorted(taps)


def test_listeners_and_names_stand_on_addresses_that_exist() -> None:
    configured = {
        str(ipaddress.ip_interface(command.split()[2]).ip)
        for commands in topology.HOST_COMMANDS.values()
        for command in commands
        if command.startswith("address add")
    }
    wanted = {address for addresses, _ in topology.LISTENERS.values() for address in addresses}
    assert wanted | set(topology.NAMES.values()) | {topology.RESOLVER} <= configured


def test_namespaces_start_closed_whatever_the_machine_forwards() -> None:
    assert netns.FRESH_SYSCTLS["net/ipv4/ip_forward"] == "0"
    assert all(netns.FRESH_SYSCTLS[f"net/bridge/bridge-nf-call-{x}tables"] == "0" for x in ("ip", "ip6", "arp"))


def test_ssh_is_strict_and_goes_through_the_namespace(lab: topology.Lab) -> None:
    text = keys.configuration(lab)
    assert "StrictHostKeyChecking yes" in text
    assert "StrictHostKeyChecking no" not in text
    assert text.count("ProxyUseFdpass yes") == 1
    assert f"ssh_proxy.py {lab.lab_id} pve" in text
    for name in ("agent", "logs"):
        block = text.split(f"Host {name}\n")[1].split("Host ")[0]
        assert f"ProxyCommand ssh -F {lab.runtime}/ssh_config -W %h:%p pve" in block
    longest = f"/run/glasslab/{'x' * 16}/cm-agent.0123456789abcdef"  # ssh adds 17 characters while it makes it
    assert len(longest) < 104


def test_ssh_itself_reads_the_configuration(lab: topology.Lab) -> None:
    lab.runtime.mkdir(parents=True)
    (lab.runtime / "ssh_config").write_text(keys.configuration(lab))
    done = run(["ssh", "-G", "-F", str(lab.runtime / "ssh_config"), "logs"])
    assert "stricthostkeychecking true" in done
    assert "hostname 10.10.10.20" in done
    assert "hostkeyalias logs" in done


def test_keys_are_made_once_and_pinned_under_the_machines_names(lab: topology.Lab) -> None:
    assert keys.ensure(lab) is True
    before = {file.name: file.read_bytes() for file in lab.ssh.iterdir()}
    assert keys.ensure(lab) is False
    assert {file.name: file.read_bytes() for file in lab.ssh.iterdir()} == before
    assert [line.split()[0] for line in before["known_hosts"].decode().splitlines()] == ["pve", "agent", "logs"]
    assert len({line.split()[2] for line in before["known_hosts"].decode().splitlines()}) == 3
    assert (lab.ssh / "id").stat().st_mode & 0o077 == 0


def test_a_half_made_key_is_made_again(lab: topology.Lab) -> None:
    keys.ensure(lab)
    (lab.ssh / "host-agent").unlink()
    (lab.ssh / "host-agent.new").write_text("half")
    assert keys.ensure(lab) is True
    assert "PRIVATE KEY" in keys.host_key(lab, "agent")[0]


def test_resolver_answers_from_its_own_records_only() -> None:
    [resolver] = [one for one in standins.all_of(topology.lab("unit"), None) if one.name == "resolver"]
    assert {"--no-hosts", "--no-resolv", "--conf-file=/dev/null", "--local=/#/"} <= set(resolver.argv)
    assert not any(word.startswith("--server") for word in resolver.argv)


def test_model_api_is_a_command_inside_or_a_relay_outside(lab: topology.Lab) -> None:
    command = standins.model_api(lab, {"command": ["/bin/model", "--port", "443"]})
    assert command.command(lab)[:2] == ["nsenter", "--net=/run/netns/unit-internet"]
    relay = standins.model_api(
        lab, {"relay": {"base_url": "http://127.0.0.1:1/v1", "certificate": "/c", "key": "/k", "ca": ""}}
    )
    assert relay.namespace is None
    assert "--ca" not in relay.argv
    assert relay.command(lab) == list(relay.argv)


@pytest.mark.parametrize(
    "model",
    [{}, {"command": []}, {"command": "x"}, {"command": ["a"], "relay": {"base_url": "x"}}, {"relay": {"key": "x"}}],
)
def test_a_model_that_is_neither_is_refused(lab: topology.Lab, model: dict[str, object]) -> None:
    with pytest.raises(LabError, match="spec: model"):
        standins.model_api(lab, model)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 1}', '{"model": {}, "more": 1}'])
def test_a_bad_spec_file_is_one_line(lab: topology.Lab, tmp_path: Path, text: str) -> None:
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(LabError, match=r"spec .*spec\.json") as caught:
        build.read_spec(str(tmp_path / "spec.json"), lab)
    assert "\n" not in str(caught.value)


def test_a_spec_without_model_keeps_what_the_lab_has(lab: topology.Lab, tmp_path: Path) -> None:
    state.save(lab, {"model": {"command": ["x"]}})
    (tmp_path / "spec.json").write_text('{"model": null}')
    assert build.read_spec(str(tmp_path / "spec.json"), lab) == {"command": ["x"]}
    assert build.read_spec(None, lab) == {"command": ["x"]}


def test_a_lab_lives_as_long_as_its_lock_is_held(lab: topology.Lab) -> None:
    assert state.presence(lab) == "absent"
    lab.runtime.mkdir(parents=True)
    with state.supervisor_lock(lab).open("w") as lock:
        assert state.presence(lab) == "dead"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state.presence(lab) == "alive"
    assert state.presence(lab) == "dead"


def test_a_living_lab_of_another_checkout_is_refused_with_the_remedy(lab: topology.Lab, tmp_path: Path) -> None:
    state.save(lab, {"checkout": str(tmp_path)})
    lab.runtime.mkdir(parents=True)
    with state.supervisor_lock(lab).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state.refuse_foreign(lab, tmp_path, force=False)
        state.refuse_foreign(lab, Path("/home/mine"), force=True)
        with pytest.raises(
            LabError, match=rf"checkout {tmp_path}, use that one, or remove it with: make destroy FORCE=1 LAB_ID=unit"
        ):
            state.refuse_foreign(lab, Path("/home/mine"), force=False)
        state.save(lab, {"checkout": "/home/moved"})
        with pytest.raises(
            LabError, match=r"checkout /home/moved, which is gone: remove it with: make destroy FORCE=1 LAB_ID=unit"
        ):
            state.refuse_foreign(lab, Path("/home/mine"), force=False)
    state.refuse_foreign(lab, Path("/home/mine"), force=False)  # dead: whoever comes may take it


def test_state_that_was_cut_short_counts_as_none(lab: topology.Lab) -> None:
    state.save(lab, {"lab_id": "unit"})
    assert state.load(lab) == {"lab_id": "unit"}
    (lab.state / "state.json").write_text('{"lab')
    assert state.load(lab) == {}


def test_who_waited_for_a_destroyed_lab_holds_a_lock_that_others_see(lab: topology.Lab) -> None:
    where = lab.runtime.with_suffix(".lock")
    entered, leave = threading.Event(), threading.Event()

    def second_verb() -> None:
        with state.locked(lab):
            entered.set()
            leave.wait(5)

    waiting = threading.Thread(target=second_verb)
    with state.locked(lab):
        waiting.start()
        assert not entered.wait(0.2)
        where.unlink()  # as destroy ends
    assert entered.wait(5)
    with where.open() as third, pytest.raises(BlockingIOError):
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    leave.set()
    waiting.join()


def test_write_says_whether_it_changed_anything(tmp_path: Path) -> None:
    assert state.write(tmp_path / "f", "a") is True
    assert state.write(tmp_path / "f", "a") is False
    assert state.write(tmp_path / "f", "b") is True
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_missing_tools_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        preflight.shutil, "which", lambda tool, path: None if "mmdeb" in tool or "dns" in tool else tool
    )
    with pytest.raises(LabError, match=r"apt-get install dnsmasq-base mmdebstrap$"):
        preflight.tools()


def test_too_little_disk_and_memory_are_told_with_figures(
    lab: topology.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight.image, "CACHE", tmp_path / "cache")
    free = [0]
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free[0]}))
    for built, needed in ((False, 1500), (True, 500)):  # image and disks on one file system: both must fit
        monkeypatch.setattr(preflight.image, "ready", lambda built=built: built)
        free[0] = (needed << 20) - 1
        with pytest.raises(LabError, match=rf"{needed - 1} MB free in {tmp_path}, {needed} MB needed"):
            preflight.disk(lab)
        free[0] += 1
        preflight.disk(lab)
    monkeypatch.setattr(preflight, "MEMORY", 1 << 50)
    with pytest.raises(LabError, match="MB of memory free"):
        preflight.memory()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_disk_is_looked_at_where_the_disks_will_lie(
    lab: topology.Lab, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/var/lib/glasslab may be a mount or a link of its own, small where /var is large."""
    monkeypatch.setattr(preflight.image, "ready", lambda: True)
    lab.state.parent.symlink_to(small)
    with pytest.raises(LabError, match=rf"[01] MB free in {lab.state.parent}, 500 MB needed"):
        preflight.disk(lab)


def test_mounts_below_a_link_are_found(lab: topology.Lab, small: Path) -> None:
    lab.state.parent.symlink_to(small)
    root = lab.machine("pve") / "root"
    root.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "disk", str(root)], check=True)
    destroy.unmount(lab.state)
    assert not os.path.ismount(root)
    destroy.remove_state(lab)
    assert lab.state.parent.is_symlink()
    assert list(small.iterdir()) == []


def test_a_killed_removal_removes_nothing_more(lab: topology.Lab) -> None:
    """What the next verb makes in the same place must not be caught by an rm that lives on."""
    folders = [lab.state / str(number) for number in range(60)]
    for folder in folders:
        folder.mkdir(parents=True)
        for number in range(250):
            (folder / str(number)).touch()
    script = (
        "import sys; sys.path.append(sys.argv[1]); import destroy, pathlib, types; "
        "destroy.remove_state(types.SimpleNamespace(state=pathlib.Path(sys.argv[2])))"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(PROGRAM.parent), str(lab.state)])
    end = time.monotonic() + 10
    while all(folder.exists() for folder in folders):
        assert time.monotonic() < end, "rm has not begun"
    child.kill()
    child.wait()
    time.sleep(0.05)
    left = sum(1 for _ in lab.state.rglob("*"))
    time.sleep(0.2)
    assert sum(1 for _ in lab.state.rglob("*")) == left > 0


def test_names_of_a_lab_that_begins_at_this_moment_are_its_own(
    lab: topology.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two `up` at once: between one's look at the state and its look at the names, the other has made both."""
    monkeypatch.setattr(preflight, "_names_in_use", lambda lab: "network namespace unit-pve exists")
    with pytest.raises(LabError, match="network namespace unit-pve exists"):
        preflight.foreign_names(lab)

    def meanwhile(lab: topology.Lab) -> str:
        state.save(lab, {"lab_id": lab.lab_id})
        return "network namespace unit-pve exists"

    monkeypatch.setattr(preflight, "_names_in_use", meanwhile)
    preflight.foreign_names(lab)


def test_control_groups_that_cannot_be_made_are_told(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    monkeypatch.setattr(preflight.cgroups, "roots", lambda: [small])
    with pytest.raises(LabError, match=rf"{small} is read-only"):
        preflight.control_groups()


def test_a_folder_that_is_no_labs_is_neither_used_nor_removed(lab: topology.Lab) -> None:
    lab.state.mkdir(parents=True)
    state.refuse_unknown(lab)  # empty: a verb was killed at once
    (lab.state / "thesis.tex").touch()
    with pytest.raises(LabError, match=r"holds 'thesis.tex' and nothing of a lab: .*FORCE=1"):
        state.refuse_unknown(lab)
    (lab.state / "machines").mkdir()  # half removed
    state.refuse_unknown(lab)


@pytest.mark.parametrize("place", ["state", "runtime"])
def test_a_file_where_a_folder_belongs_is_named(lab: topology.Lab, place: str) -> None:
    where: Path = getattr(lab, place)
    where.parent.mkdir(parents=True)
    where.touch()
    with pytest.raises(LabError, match=rf"{where} is there and is no folder"):
        state.refuse_unknown(lab)


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/glasslab/x")

    monkeypatch.setitem(cli.VERBS, "status", full)
    assert cli.main(["status"]) == 2
    said = capsys.readouterr().err
    assert said == "glasslab: /var/lib/glasslab/x: No space left on device: mend that and run the same again\n"


@pytest.mark.parametrize(("there", "said"), [("stopped", "would be removed"), ("absent", "nothing there to remove")])
def test_destroy_removes_nothing_when_it_is_to_say_what_it_would(
    there: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def remove(*_: object) -> None:
        pytest.fail("something was removed")

    monkeypatch.setattr(cli.state, "presence", lambda lab: there)
    monkeypatch.setattr(cli.state, "refuse_unknown", lambda lab: None)
    for step in ("take_down", "remove_state", "remove_cache"):
        monkeypatch.setattr(cli.destroy, step, remove)
    assert cli.main(["destroy", "--lab-id", "unit", "--check", "--text", "--cache"]) == 0
    assert capsys.readouterr().out == f"lab unit: {said}\n"


def test_a_file_system_that_cannot_hold_disks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = "1 0 8:1 / / rw - ext4 a rw\n2 1 0:5 / /var rw - overlay b rw\n3 1 8:1 / /srv/disks rw - ext4 a rw\n"
    monkeypatch.setattr(Path, "read_text", lambda self: mounts)
    preflight.file_system(Path("/srv/disks/lab"))
    with pytest.raises(LabError, match="/var has the file system overlay"):
        preflight.file_system(Path("/var/lib/glasslab/unit"))


def test_not_root_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match=r"not root \(uid 1000\): run this as root or with sudo"):
        preflight.check(topology.lab("unit"))


def test_errors_of_the_program_are_one_line_and_exit_2() -> None:
    for arguments in (["status", "--lab-id", "No"], ["up", "--machines", "web"], ["exec", "pve"]):
        done = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("glasslab: ")
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""


def test_a_command_that_fails_becomes_one_line_with_its_last_words() -> None:
    with pytest.raises(LabError, match=r"command failed: sh -c .*: second$"):
        run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])
    with pytest.raises(LabError, match="command not found: /nonexistent"):
        run(["/nonexistent"])
    assert attempt(["false"]) is False
    assert attempt(["/nonexistent"]) is False
    assert attempt(["true"]) is True


def test_br_netfilter_is_loaded_once_and_leaves_this_machines_bridges_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, loaded = tmp_path / "bridge", []

    def modprobe(argv: list[str], *, check: bool) -> None:
        loaded.append((argv, check))
        settings.mkdir()
        for name in ("iptables", "ip6tables", "arptables"):
            (settings / f"bridge-nf-call-{name}").write_text("1")

    monkeypatch.setattr(kernel_modules, "SETTINGS", settings)
    monkeypatch.setattr(kernel_modules.subprocess, "run", modprobe)
    kernel_modules.load_br_netfilter()
    kernel_modules.load_br_netfilter()
    assert loaded == [(["modprobe", "br_netfilter"], True)]
    assert [one.read_text() for one in settings.iterdir()] == ["0", "0", "0"]


def test_fingerprint_tells_a_changed_setting_and_forgives_a_loaded_module() -> None:
    before = "[sysctls]\nnet.ipv4.ip_forward = 0\n"
    after = "[sysctls]\nnet.ipv4.ip_forward = 0\nnet.bridge.bridge-nf-call-iptables = 1\n"
    assert machine_fingerprint.difference(before, after) == ""
    assert "ip_forward = 1" in machine_fingerprint.difference(before, after.replace("forward = 0", "forward = 1"))
    assert "iptables = 0" in machine_fingerprint.difference(after, after.replace("iptables = 1", "iptables = 0"))


def test_fingerprint_of_a_machine_at_rest_is_the_same_twice() -> None:
    lab_id = "nosuchlab"
    assert machine_fingerprint.difference(machine_fingerprint.text(lab_id), machine_fingerprint.text(lab_id)) == ""


def test_the_mirror_serves_a_package_that_dpkg_takes(tmp_path: Path) -> None:
    found = mirror.files()
    assert found == mirror.files()  # the same bytes each time: an index that was fetched stays true
    (tmp_path / "one.deb").write_bytes(found["/glasslab-sample_1.0_all.deb"])
    assert run(["dpkg-deb", "--show", str(tmp_path / "one.deb")]) == "glasslab-sample\t1.0\n"
    run(["dpkg-deb", "--extract", str(tmp_path / "one.deb"), str(tmp_path)])
    assert (tmp_path / "usr/share/glasslab-sample/here").read_text() == "from the mirror\n"


def test_dns_over_https_answers_queries_and_nothing_else() -> None:
    question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + b"\1a\0" + b"\0\1\0\1"
    answer = webhosts.dns_answer(question)
    assert answer[:2] == b"\x12\x34"
    assert answer[12:] == b"\1a\0\0\1\0\1" + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + bytes([203, 0, 113, 80])
    for other in (b"", b"hello", bytes(12), bytes(40)):
        with pytest.raises(ValueError, match="no DNS query"):
            webhosts.dns_answer(other)


def test_web_hosts_speak_tls_once_there_is_a_certificate(lab: topology.Lab) -> None:
    assert {one.name: one.ready for one in standins.all_of(lab, None)}["packages"] == (("203.0.113.82", 80),)
    (lab.state / "ca").mkdir(parents=True)
    for end in ("crt", "key"):
        (lab.state / f"ca/surroundings.{end}").touch()
    found = {one.name: one for one in standins.all_of(lab, None)}
    assert found["doh"].ready == (("203.0.113.81", 443),)
    assert found["packages"].ready == (("203.0.113.82", 443), ("203.0.113.82", 80))
    assert found["packages"].argv[-1] == str(lab.state / "ca/surroundings.key")
