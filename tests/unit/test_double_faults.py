"""The test double's faults: where they were asked for, as Proxmox shows them, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from doubleplace import Place, Refused, running

CONFIG = "/nodes/{node}/qemu/{vmid}/config"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with running(tmp_path, seed={"vms": [{"vmid": 100, "name": "one"}, {"vmid": 101, "name": "two"}]}) as found:
        yield found


def test_a_500_comes_as_often_as_asked_and_does_nothing(place: Place) -> None:
    place.break_(at=f"PUT {CONFIG}", kind="500", times=2)
    before = place.states()
    for _ in range(2):
        with pytest.raises(Refused, match=r"^500 got no worker upid"):
            place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    assert place.states() == before
    place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    assert place.config(100)["cores"] == 2
    assert [entry.get("fault") for entry in place.log()] == ["500", "500", None, None]


def test_a_fault_is_bound_to_the_number_of_a_request(place: Place) -> None:
    place.break_(at=3, kind="500")
    answers = []
    for _ in range(4):
        try:
            answers.append(place.call("GET", "/version")["version"])
        except Refused as refused:
            answers.append(refused.status)
    assert answers == ["9.0.10", "9.0.10", 500, "9.0.10"]


def test_a_fault_waits_for_the_second_call_and_meets_only_its_own_path(place: Place) -> None:
    place.break_(at="PUT /nodes/pve/qemu/101/config", kind="500", skip=1)
    place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    place.call("PUT", "/nodes/pve/qemu/101/config", cores=2)
    place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    with pytest.raises(Refused, match=r"^500"):
        place.call("PUT", "/nodes/pve/qemu/101/config", cores=2)


def test_a_time_out_holds_the_connection_and_then_closes_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        held.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("double.server.asyncio.sleep", noted)
    place.break_(at=f"PUT {CONFIG}", kind="timeout", hold=0.3, times=2)
    began = time.monotonic()
    with pytest.raises(requests.ConnectionError):
        place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    assert time.monotonic() - began >= 0.3
    assert [seconds for seconds in held if seconds >= 0.1] == [0.3]
    with pytest.raises(requests.ReadTimeout):
        place.call("PUT", "/nodes/pve/qemu/100/config", timeout=0.1, cores=2)
    assert "cores" not in json.loads(place.states()["100.json"])["config"] or place.config(100)["cores"] == 1
    assert place.log()[0]["status"] == 0


def test_an_answer_can_be_lost_though_the_call_was_done(place: Place) -> None:
    place.break_(at=f"PUT {CONFIG}", kind="timeout", hold=0, done=True)
    with pytest.raises(requests.ConnectionError):
        place.call("PUT", "/nodes/pve/qemu/100/config", cores=3)
    assert place.config(100)["cores"] == 3


def test_a_failed_task_is_an_answer_whose_task_fails(place: Place) -> None:
    place.break_(at="POST /nodes/{node}/qemu/{vmid}/status/start", kind="failed_task")
    assert place.task("POST", "/nodes/pve/qemu/100/status/start").startswith("command failed")
    assert place.call("GET", "/nodes/pve/qemu/100/status/current")["status"] == "stopped"
    tasks = place.call("GET", "/nodes/pve/tasks")
    assert (tasks[0]["type"], tasks[0]["id"]) == ("qmstart", "100")
    assert place.task("POST", "/nodes/pve/qemu/100/status/start") == "OK"


@pytest.mark.parametrize(("kind", "at"), [("failed_task", f"PUT {CONFIG}"), ("lock", f"GET {CONFIG}")])
def test_a_fault_that_a_call_cannot_have_is_passed_over_and_said(place: Place, kind: str, at: str) -> None:
    place.break_(at=at, kind=kind)
    place.call(at.split()[0], "/nodes/pve/qemu/100/config", **({"cores": 2} if at.startswith("PUT") else {}))
    assert "not applicable" in place.log()[0]["fault"]


def test_a_locked_vm_says_so_once_and_is_as_it_was(place: Place) -> None:
    before = place.states()
    place.break_(at=f"PUT {CONFIG}", kind="lock")
    with pytest.raises(Refused, match=r"^500 VM is locked \(backup\)"):
        place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)
    place.break_(at="POST /nodes/{node}/qemu/{vmid}/status/start", kind="lock")
    assert place.task("POST", "/nodes/pve/qemu/100/status/start") == "VM is locked (backup)"
    assert place.states() == before
    assert place.task("POST", "/nodes/pve/qemu/100/status/start") == "OK"


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("/nodes/pve/qemu", {"vmid": 102}, "unable to create VM 102 - can't lock file"),
        ("/nodes/pve/storage/local/download-url", {}, "cfs-lock 'storage-local' error: got lock request timeout"),
        ("/access/roles", {"roleid": "A"}, "cfs-lock 'file-user_cfg' error: got lock request timeout"),
    ],
)
def test_what_is_no_vm_has_locks_of_its_own(place: Place, path: str, given: dict[str, object], said: str) -> None:
    place.break_(at=f"POST {path}", kind="lock")
    with pytest.raises(Refused, match=said):
        place.call("POST", path, **given)


def test_a_refusal_for_lack_of_rights_uses_up_no_fault(place: Place) -> None:
    token = place.somebody("weak", "VM.Audit")
    place.break_(at=f"PUT {CONFIG}", kind="500")
    with pytest.raises(Refused, match=r"^403"):
        place.call("PUT", "/nodes/pve/qemu/100/config", token, cores=2)
    with pytest.raises(Refused, match=r"^500 got no worker upid"):
        place.call("PUT", "/nodes/pve/qemu/100/config", cores=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"at": 1}', "no object with 'at' and 'kind'"),
        ('{"at": 1, "kind": "flood"}', "kind 'flood' is none of 500, timeout, failed_task, lock"),
        ('{"at": 1, "kind": "500", "time": 2}', "unknown key 'time'"),
    ],
)
def test_a_wrong_fault_file_is_told_at_the_next_call(place: Place, text: str, said: str) -> None:
    place.faults.write_text(text)
    with pytest.raises(Refused, match=said):
        place.call("GET", "/version")
