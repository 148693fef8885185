"""Disks as files: what a kill leaves in between the next verb ends or undoes, and nothing that was whole is lost."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cgroups
import control
import disks
import image
import lab as cli
import lifecycle
import topology
from errors import LabError


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, and no `finally` may make up for it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's folder with a disk in which something is written."""
    monkeypatch.setattr(image, "identity", lambda: "image-1 7")
    monkeypatch.setattr(topology.Lab, "state", property(lambda self: tmp_path))
    monkeypatch.setattr(topology.Lab, "runtime", property(lambda self: tmp_path / "run"))
    place = tmp_path / "machines" / "agent"
    for part in ("upper/etc", "work", "root"):
        (place / part).mkdir(parents=True)
    (place / "seeded").write_text("image-1 7\n")
    (place / "upper/etc/motd").write_text("as it was")
    return place


def motd(folder: Path) -> str:
    return (folder / "upper/etc/motd").read_text()


def snapshot(folder: Path, name: str = "clean") -> None:
    disks.take(folder, name)
    disks.publish(folder, name, {"version": "v", "description": ""})


def rolled_back(folder: Path, name: str = "clean") -> None:
    disks.bring(folder, name)
    disks.exchange(folder)


def killed_at_every_step(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], after: Callable[[], None]) -> int:
    """Run `work` once for each rename and removal in it, ended just before that one; returns how many there were."""
    replace, discard = Path.replace, disks.discard
    number = 0
    while True:
        number += 1
        left = [number]

        def step(real: Callable[..., object], left: list[int] = left) -> Callable[..., object]:
            def counted(*arguments: object) -> object:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
                return real(*arguments)

            return counted

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", step(replace))
            patched.setattr(disks, "discard", step(discard))
            try:
                work()
            except Killed:
                pass
            else:
                return number - 1
        after()


@pytest.mark.parametrize("name", ["", "a", "1st", "current", "a b", "../x", "-x", "a" * 41, "clean\n", ".hidden"])
def test_a_name_that_no_snapshot_can_have_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="snapshot name"):
        disks.check_name(name)


def test_a_snapshot_is_the_disk_with_all_that_an_overlay_keeps(folder: Path) -> None:
    upper = folder / "upper"
    os.mknod(upper / "etc/removed", stat.S_IFCHR, os.makedev(0, 0))  # a white-out: removed from the base image
    os.setxattr(upper / "etc", "trusted.overlay.opaque", b"y")
    os.link(upper / "etc/motd", upper / "etc/motd.2")
    os.chown(upper / "etc/motd", 101, 102)
    snapshot(folder)
    (upper / "etc/motd").write_text("damaged")
    (upper / "etc/removed").unlink()
    rolled_back(folder)
    assert motd(folder) == "as it was"
    assert stat.S_ISCHR((upper / "etc/removed").stat().st_mode)
    assert os.getxattr(upper / "etc", "trusted.overlay.opaque") == b"y"
    assert (upper / "etc/motd").stat().st_nlink == 2
    assert ((upper / "etc/motd").stat().st_uid, (upper / "etc/motd").stat().st_gid) == (101, 102)


def test_snapshots_are_told_the_oldest_first_and_removed_by_name(folder: Path) -> None:
    assert disks.snapshots(folder) == []
    snapshot(folder, "zz-first")
    snapshot(folder, "a-second")
    assert [one["name"] for one in disks.snapshots(folder)] == ["zz-first", "a-second"]
    assert abs(disks.snapshots(folder)[0]["at"] - time.time()) < 60
    assert disks.remove(folder, "zz-first") is True
    assert disks.remove(folder, "zz-first") is False
    assert [one["name"] for one in disks.snapshots(folder)] == ["a-second"]


def test_an_unknown_snapshot_is_one_line_with_those_that_there_are(folder: Path) -> None:
    with pytest.raises(LabError, match="agent has no snapshot: `make snapshot LAB_ID="):
        disks.find(folder, "clean")
    snapshot(folder, "first")
    with pytest.raises(LabError, match="agent has no snapshot 'clean': it has first"):
        disks.bring(folder, "clean")


def test_a_snapshot_of_another_base_image_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(folder)
    monkeypatch.setattr(image, "identity", lambda: "image-2 8")
    with pytest.raises(LabError, match="another base image"):
        disks.bring(folder, "clean")
    assert motd(folder) == "as it was"


def test_a_full_disk_is_one_line_and_leaves_no_half_snapshot(folder: Path) -> None:
    small = folder / "snapshots"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        (folder / "upper/large").write_bytes(b"x" * 200_000)
        with pytest.raises(LabError, match=r"No space left.*make room") as caught:
            disks.take(folder, "clean")
        assert "\n" not in str(caught.value)
        disks.settle(folder)
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_snapshot_that_is_replaced_is_never_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(folder)
    (folder / "upper/etc/motd").write_text("newer")

    def replaced() -> None:
        disks.take(folder, "clean")
        disks.publish(folder, "clean", {})

    def after() -> None:
        disks.settle(folder)
        assert (folder / "snapshots/clean/upper/etc/motd").read_text() in ("as it was", "newer")
        assert sorted(one.name for one in (folder / "snapshots").iterdir()) == ["clean"]

    assert killed_at_every_step(monkeypatch, replaced, after) == 3
    assert (folder / "snapshots/clean/upper/etc/motd").read_text() == "newer"


def test_a_rollback_that_is_killed_has_happened_or_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(folder)

    def damaged_and_rolled_back() -> None:
        (folder / "upper/etc/motd").write_text("damaged")
        rolled_back(folder)

    def after() -> None:
        disks.settle(folder)
        assert motd(folder) in ("as it was", "damaged")
        left = {one.name for one in folder.iterdir()}
        assert left <= {"upper", "work", "root", "seeded", "snapshots"}

    assert killed_at_every_step(monkeypatch, damaged_and_rolled_back, after) == 5
    assert motd(folder) == "as it was"
    assert (folder / "work").is_dir()


def test_a_machine_that_is_set_aside_is_kept_until_it_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LabError, match="nothing to put back"):
        disks.put_back(folder)

    def set_aside_and_put_back() -> None:
        disks.set_aside(folder)
        assert disks.set_aside(folder) is False
        (folder / "upper").mkdir(parents=True, exist_ok=True)  # the successor
        disks.put_back(folder)

    def after() -> None:
        disks.settle(folder)
        assert "as it was" in [motd(one) for one in (folder, disks.previous(folder)) if (one / "upper/etc").exists()]
        if disks.previous(folder).exists():
            disks.put_back(folder)

    assert killed_at_every_step(monkeypatch, set_aside_and_put_back, after) == 4
    assert motd(folder) == "as it was"
    disks.set_aside(folder)
    assert disks.let_go(folder) is True
    assert disks.let_go(folder) is False
    assert list(folder.parent.iterdir()) == []


def test_a_name_that_is_taken_is_refused_unless_an_interrupted_run_left_some_without(folder: Path) -> None:
    lab = topology.lab("unit")
    other = folder.with_name("logs")
    (other / "upper").mkdir(parents=True)
    guests = ["agent", "logs"]
    assert lifecycle.lacking(lab, guests, "clean", replace=False) == guests
    snapshot(folder)
    assert lifecycle.lacking(lab, guests, "clean", replace=False) == ["logs"]
    snapshot(other)
    with pytest.raises(LabError, match=r"the name 'clean' is taken by a snapshot of agent, logs: .*REPLACE=1"):
        lifecycle.lacking(lab, guests, "clean", replace=False)
    assert lifecycle.lacking(lab, guests, "clean", replace=True) == guests


@pytest.mark.parametrize(
    ("machines", "said"),
    [("", "no machine named"), ("pve,agent", "pve is the hypervisor"), ("agent", "no lab unit stands")],
)
def test_what_these_verbs_are_not_for_is_one_line(folder: Path, machines: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
        lifecycle.need(topology.lab("unit"), topology.machines(machines))


@pytest.mark.parametrize("verb", ["snapshot", "rollback", "renew", "put-back", "let-go"])
def test_without_a_lab_each_verb_is_one_line_and_changes_nothing(verb: str) -> None:
    argv = [sys.executable, str(Path(cli.__file__)), verb, "--lab-id", "nosuchlab", "--machines", "agent"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr == "glasslab: no lab nosuchlab stands on this machine: `make demo LAB_ID=nosuchlab` builds one\n"
    assert not Path("/var/lib/glasslab/nosuchlab").exists()
    assert not Path("/run/glasslab/nosuchlab").exists()


def test_status_tells_of_disks_without_a_lab(folder: Path) -> None:
    lab = topology.lab("unit")
    snapshot(folder)
    (folder / "built.json").write_text(json.dumps({"at": 1.0, "version": "abc"}))
    told = lifecycle.known(lab)
    assert list(told) == ["agent"]
    assert (told["agent"]["version"], told["agent"]["predecessor"]) == ("abc", False)
    assert [one["name"] for one in told["agent"]["snapshots"]] == ["clean"]


def test_a_host_key_comes_back_with_its_machine(folder: Path) -> None:
    lab = topology.lab("unit")
    lab.ssh.mkdir(parents=True)
    (lab.ssh / "host-agent").write_text("private 1")
    (lab.ssh / "host-agent.pub").write_text("public 1")
    lifecycle._keep_identity(lab, "agent")
    disks.set_aside(folder)
    lifecycle._forget_identity(lab, "agent")
    assert not (lab.ssh / "host-agent").exists()
    (lab.ssh / "host-agent").write_text("private 2")
    (lab.ssh / "host-agent.pub").write_text("public 2")
    lifecycle._forget_identity(lab, "agent")  # a rerun: it is the successor's, and stays
    assert (lab.ssh / "host-agent").read_text() == "private 2"
    disks.put_back(folder)
    lifecycle.settle(lab)  # as after a kill before the key was back
    assert (lab.ssh / "host-agent").read_text() == "private 1"
    assert (lab.ssh / "host-agent.pub").read_text() == "public 1"
    assert not (folder / "identity").exists()


def test_a_frozen_group_stands_still_and_goes_on() -> None:
    lab = topology.lab("gldisks")
    counting = "i=0; while :; do i=$((i + 1)); echo $i; done"
    with subprocess.Popen(cgroups.launcher(lab, "agent", ["/bin/sh", "-c", counting]), stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"1\n"
            assert cgroups.freeze(lab, "agent", on=True) is True
            os.set_blocking(child.stdout.fileno(), False)
            while child.stdout.read(1 << 20):
                pass
            time.sleep(0.2)
            assert not child.stdout.read(1 << 20)
            cgroups.freeze(lab, "agent", on=False)
            time.sleep(0.2)
            assert child.stdout.read(1 << 20)
            assert cgroups.freeze(lab, "logs", on=True) is False  # it does not run: there is nothing to freeze
        finally:
            cgroups.kill(lab)


def test_the_supervisor_is_in_its_control_group_from_its_first_instruction(folder: Path) -> None:
    """`up` may be killed right after it started it: a destroy must end it, and not be overtaken by it."""
    lab = topology.lab("gldisks")
    program = lab.runtime / "program/supervisor.py"
    program.parent.mkdir(parents=True)
    said = folder / "said"
    program.write_text(f"import pathlib\npathlib.Path({str(said)!r}).write_text(open('/proc/self/cgroup').read())\n")
    try:
        with pytest.raises(LabError, match="did not start"):
            control.start(lab)
        groups = [line.rpartition(":")[2] for line in said.read_text().splitlines()]
        assert groups.count("/glasslab.gldisks/supervisor") == len(cgroups.roots())
    finally:
        cgroups.kill(lab)
    assert cgroups.empty(lab)


def test_a_supervisor_that_is_not_there_is_one_line(folder: Path) -> None:
    with pytest.raises(LabError, match="supervisor of lab unit"), control.frozen(topology.lab("unit"), ["agent"]):
        pytest.fail("nothing is frozen")
