"""The agent's machine through its life, as a user drives it: snapshot, damage, reset, rebuild, and a kill in between.

The tests run in order on the lab that stands, and leave it as good as they found it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import lab
from labtools import ANSIBLE, LAB_ID, LAB_PY, ROOT, STATE, Done, ask, events, on, playbook

QUESTION = "What was the root cause of the September incident?"
DOCUMENTS = ROOT / "agent_src" / "glasslab" / "samples" / "documents"
BROKEN = "/etc/systemd/system/glasslab-agent.service.d/broken.conf"
SOAK = os.environ.get("GLASSLAB_SOAK") == "1"


def answered() -> str:
    """Ask the sample question; the session, whose 25 frames are in the log."""
    done, result = ask(QUESTION)
    assert done.returncode == 0, done.stderr
    session = str(result["session_id"])
    assert len([one for one in events(session) if one["sourcetype"] == "agent:trace"]) == 25
    return session


def whole(session: str) -> bool:
    """Whether the log's record of a session verifies, with the keys that the control node keeps."""
    done = lab.read_log("verify", session, "--json", capture=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def status() -> dict[str, dict[str, Any]]:
    """What `make status JSON=1` prints, by machine."""
    done = subprocess.run(
        ["make", "status", "JSON=1", f"LAB_ID={LAB_ID}"], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {one["machine"]: one for one in json.loads(done.stdout)["machines"]}


def played(name: str, **variables: object) -> Done:
    """Run one of the plays as `make` runs it, with a line a stage."""
    done = play(name, **variables)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done


def play(name: str, *arguments: str, **variables: object) -> Done:
    """Run one of the plays to its end, good or bad."""
    return playbook(f"playbooks/{name}.yml", "--extra-vars", json.dumps(variables), *arguments)


def refused(name: str, said: str, **variables: object) -> None:
    """The play ends at once with one line that says what to do."""
    done = play(name, **variables)
    assert done.returncode != 0
    found = re.findall(r'"msg": "([^"]*)"', done.stdout + done.stderr)
    assert any(said in line for line in found), done.stdout[-2000:]


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """A session from before all that follows, and what the machine's identity was then."""
    return {"session": answered(), **identity()}


def identity() -> dict[str, str]:
    """All that a successor must not have in common with the machine it replaces."""
    known = (STATE / "ssh" / "known_hosts").read_text(encoding="utf-8")
    kept = {
        "host key": "".join(line for line in known.splitlines() if line.startswith("agent ")),
        "hec token": (STATE / "secrets" / "hec_token_agent").read_text(encoding="utf-8"),
        "hec token of the tools": (STATE / "secrets" / "hec_token_mcp").read_text(encoding="utf-8"),
        "public key": (STATE / "verify_keys" / "agent.pub").read_text(encoding="utf-8"),
        "public key of the tools": (STATE / "verify_keys" / "mcp.pub").read_text(encoding="utf-8"),
    }
    words = "cat /etc/machine-id; cat /etc/glasslab/agent/hec_token; sha256sum </etc/glasslab/agent/signing_key"
    names = ("machine id", "hec token there", "signing key")
    return kept | dict(zip(names, on("agent", words).stdout.splitlines(), strict=True))


def test_a_snapshot_is_taken_and_told_by_status(before: dict[str, str]) -> None:
    play("snapshot", snapshot_state="absent")  # a run of these tests that was killed may have left one
    began = time.time()
    played("snapshot", snapshot_description="before the tests")
    machines = status()
    assert {name: one["state"] for name, one in machines.items()} == dict.fromkeys(("pve", "agent", "logs"), "running")
    for name in ("agent", "logs"):
        assert [one["name"] for one in machines[name]["snapshots"]] == ["clean"]
        assert machines[name]["snapshots"][0]["at"] >= began
        assert machines[name]["version"] != "unknown"
    assert machines["pve"]["snapshots"] == []


def test_what_cannot_be_done_is_one_line(before: dict[str, str]) -> None:
    refused("snapshot", "the name 'clean' is taken by a snapshot of agent", lifecycle_hosts="agents")
    refused("reset", "agent has no snapshot 'nosuch': it has clean", snapshot_name="nosuch")
    refused("reset", "lifecycle_hosts is logs", lifecycle_hosts="logs")
    refused("rebuild", "no predecessor of agent is kept", rebuild_revert=True)
    refused("resize", "machine_backend is 'nspawn'")
    refused("destroy", "nothing was removed")
    assert whole(before["session"])


def test_check_mode_says_what_a_reset_would_do_and_does_nothing(before: dict[str, str]) -> None:
    boot = on("agent", "cat /proc/sys/kernel/random/boot_id").stdout
    done = play("reset", "--check")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "changed=1" in done.stdout
    assert on("agent", "cat /proc/sys/kernel/random/boot_id").stdout == boot


def test_a_reset_takes_the_damage_away_and_proves_that_the_agent_works(before: dict[str, str]) -> None:
    on("agent", "cd /srv/glasslab/documents && rm access-policy.md && echo forged >incident-report-2026-09.md")
    on("agent", f"touch /root/planted && mkdir -p $(dirname {BROKEN})")
    on("agent", f"cat >{BROKEN}", stdin="[Service]\nExecStart=\nExecStart=/bin/false\n")
    on("agent", "systemctl daemon-reload; systemctl restart glasslab-agent.service", check=False)
    assert ask(QUESTION)[0].returncode != 0
    began = time.time()
    done = played("reset")
    print(re.findall(r"agent is back at clean: [^\"]*", done.stdout))
    assert re.search(
        r"agent is back at clean: \d+\.\d s to the first acknowledged frame, \d+\.\d s to the first answer, every",
        done.stdout,
    )
    assert on("agent", f"ls /root/planted {BROKEN}", check=False).stdout == ""
    for document in DOCUMENTS.iterdir():
        assert on("agent", f"cat /srv/glasslab/documents/{document.name}").stdout == document.read_text(
            encoding="utf-8"
        )
    receipt = json.loads((STATE / "receipts" / "latest.json").read_text(encoding="utf-8"))
    assert receipt["as_expected"], receipt["problems"]
    assert (STATE / "receipts" / "latest.json").stat().st_mtime > began
    assert receipt["session"]["whole"]
    assert whole(answered())
    assert whole(before["session"]), "the log was not reset"


def kill_rebuild_in_the_middle() -> None:
    """Start a rebuild and end it with kill -9 when the old machine has been set aside and a successor is being made."""
    process = subprocess.Popen(
        [str(lab.BIN / "ansible-playbook"), "playbooks/rebuild.yml"],
        cwd=ROOT,
        env=ANSIBLE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while not (STATE / "machines" / "agent.previous").exists():
        assert process.poll() is None, "the rebuild ended before a machine was set aside"
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def hec_answer(token: str) -> int:
    """What the log's collector answers to an event with that token, sent from the agent's machine."""
    code = f"""
import ssl, urllib.error, urllib.request
to = "https://10.10.10.20:8088/services/collector/event"
request = urllib.request.Request(to, b'{{"event": {{}}}}', {{"Authorization": "Splunk {token}"}})
context = ssl.create_default_context(cafile="/etc/glasslab/ca/hec.crt")
try:
    print(urllib.request.urlopen(request, context=context, timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
    return int(on("agent", "python3 -", stdin=code).stdout)


@pytest.mark.parametrize("way", ["back", "on"] if SOAK else ["on"])
def test_a_rebuild_that_was_killed(before: dict[str, str], way: str) -> None:
    on("agent", "touch /root/planted")
    kill_rebuild_in_the_middle()
    assert status()["agent"]["predecessor"] is True
    began = time.time()
    played("rebuild", rebuild_revert=way == "back")
    now = identity()
    receipt = json.loads((STATE / "receipts" / "latest.json").read_text(encoding="utf-8"))
    assert receipt["as_expected"], receipt["problems"]
    assert whole(answered())
    told = status()["agent"]
    assert told["predecessor"] is False
    assert [one["name"] for one in told["snapshots"]] == ["clean"]
    assert not list((STATE / "secrets").glob("*.predecessor"))
    if way == "back":
        assert now == {name: value for name, value in before.items() if name != "session"}
        assert on("agent", "ls /root/planted").returncode == 0
        assert whole(before["session"])
    else:
        assert [name for name in now if now[name] == before[name]] == [], "nothing is the predecessor's"
        assert on("agent", "ls /root/planted", check=False).returncode != 0
        assert told["snapshots"][0]["at"] > began, "a snapshot of the successor"


def test_what_the_predecessor_signed_still_verifies_and_its_token_writes_no_more(before: dict[str, str]) -> None:
    assert whole(before["session"])
    keys = {file.name for file in (STATE / "verify_keys").iterdir()}
    retired = {name for name in keys if re.fullmatch(r"(agent|mcp)\.\d{8}T\d{6}Z\.pub", name)}
    assert {name.split(".")[0] for name in retired} == {"agent", "mcp"}
    for name in retired:  # without them it does not
        (STATE / "verify_keys" / name).rename(STATE / name)
    try:
        assert not whole(before["session"])
    finally:
        for name in retired:
            (STATE / name).rename(STATE / "verify_keys" / name)
    assert hec_answer(before["hec token there"]) in (401, 403)
    assert hec_answer(identity()["hec token there"]) == 200


@pytest.mark.parametrize("moment", [0.1, 0.3, 0.6, 1.0] if SOAK else [0.3])
def test_a_snapshot_that_was_killed_leaves_the_machine_running_and_nothing_half(moment: float) -> None:
    argv = [str(lab.BIN / "python"), str(LAB_PY), "snapshot", f"--lab-id={LAB_ID}", "--machines=agent", "--name=killed"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as taking:
        time.sleep(moment)
        taking.kill()
    assert whole(answered())  # it is not frozen
    subprocess.run([*argv, "--replace"], check=True, capture_output=True)
    subprocess.run([*argv, "--remove"], check=True, capture_output=True)
    assert [file.name for file in Path(STATE / "machines/agent/snapshots").iterdir()] == ["clean"]
