"""Mode `enterprise` against the stand-in's package, on the lab's log machine: from the install to a change.

The tests are one story, in order. Behind them the machine serves the lab with its collector again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lab
from labtools import LAB_ID, ROOT, STATE, Done, ask, events, on, playbook

sys.path.append(str(ROOT / "molecule/splunk/standin"))
from build import build

QUESTION = "What was the root cause of the September incident?"
CALLS = "/opt/splunk/var/log/standin"
BACKUPS = "/var/backups/glasslab"
Play = Callable[..., Done]
PURGE = (
    "systemctl disable -q --now Splunkd.service glasslab-thp-off.service; dpkg --purge splunk; "
    "rm -rf /etc/systemd/system/Splunkd.service* /etc/systemd/system/glasslab-thp-off.service /etc/glasslab/splunk "
    f"{CALLS} {BACKUPS} /var/cache/glasslab/splunk-* /opt/splunk/etc /opt/splunk/var/standin* /opt/splunk/bin "
    "/opt/splunk/var/lib/splunk/standin-events.jsonl; systemctl daemon-reload"
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("packages")
    made = {version: build(place, version) for version in ("10.4.4", "10.4.5", "10.2.8")}
    return {
        **made,
        "other": build(place, "10.4.4", "splunkforwarder"),
        "arm": build(place, "10.4.4", architecture="arm64"),
    }


@pytest.fixture(scope="module", autouse=True)
def collector_again() -> Iterator[None]:
    """The log machine as the lab has it: its collector, and its own search token on the control node."""
    token = STATE / "secrets/search_token"
    kept = token.read_text(encoding="utf-8")
    yield
    on("logs", PURGE, check=False)
    token.write_text(kept, encoding="utf-8")
    done = playbook("playbooks/splunk.yml", "-e", f"lab_id={LAB_ID}")
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.fixture(scope="module")
def play(packages: dict[str, Path]) -> Play:
    """Run the role with a package; further settings as `name=value`."""

    def run(package: str, *settings: str, checksum: str = "") -> Done:
        path = packages[package]
        digest = checksum or f"sha512:{hashlib.sha512(path.read_bytes()).hexdigest()}"
        given = {"splunk_mode": "enterprise", "splunk_deb": str(path), "splunk_deb_checksum": digest}
        given |= {"lab_id": LAB_ID, "splunk_min_free_mb": 100, "splunk_ready_seconds": 20}
        extra = given | dict(setting.split("=", 1) for setting in settings)
        return playbook("playbooks/splunk.yml", "-e", json.dumps(extra))

    return run


def changed(done: Done) -> int:
    """How much a play changed on the log machine."""
    line = next(line for line in done.stdout.splitlines() if line.startswith("logs ") and "changed=" in line)
    return int(line.split("changed=")[1].split()[0])


def starts() -> int:
    """How often the stand-in's splunkd has been started."""
    return int(on("logs", f"wc -l <{CALLS}/starts").stdout)


def calls() -> list[dict[str, Any]]:
    """Every call of the splunk command line."""
    return [json.loads(line) for line in on("logs", f"cat {CALLS}/argv.jsonl").stdout.splitlines()]


REFUSED = {
    "no checksum": ("10.4.4", ["splunk_deb_checksum="], "give the path or https address of Splunk's .deb, and sha512:"),
    "plain http": ("10.4.4", ["splunk_deb=http://example.invalid/splunk.deb"], "give the path or https address"),
    "Splunk's Python": ("10.4.4", ["ansible_python_interpreter=/opt/splunk/bin/python3"], "set /usr/bin/python3"),
    "disk": ("10.4.4", ["splunk_min_free_mb=999999999"], "MB free, and below 999999999 MB"),
    "another package": ("other", [], "it is the package 'splunkforwarder', not splunk"),
    "another machine's": ("arm", [], "it is for arm64, and this machine is amd64"),
    "too old": ("10.2.8", [], "version 10.2.8 is older than 10.2.9; supported are 10.0.12, 10.2.9, 10.4.4"),
}


@pytest.mark.parametrize(("package", "settings", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused_with_its_reason(package: str, settings: list[str], said: str, play: Play) -> None:
    done = play(package, *settings)
    assert done.returncode == 2
    assert said in " ".join((done.stdout + done.stderr).split())
    assert on("logs", "dpkg-query -W -f '${Version}' splunk", check=False).stdout == ""


def test_another_file_than_was_published_is_refused(play: Play) -> None:
    done = play("10.4.4", checksum=f"sha512:{'0' * 128}")
    assert done.returncode == 2
    assert "is there and is what was published" in done.stdout


def test_a_port_that_is_taken_is_named(play: Play) -> None:
    on("logs", "systemd-run -q --unit=taken python3 -m http.server --bind 127.0.0.1 8000")
    try:
        done = play("10.4.4")
    finally:
        on("logs", "systemctl stop taken.service")
    assert done.returncode == 2
    assert "port 8000 is taken by something that is not Splunk" in done.stdout


def test_it_is_installed_and_takes_a_session(play: Play) -> None:
    done = play("10.4.4")
    assert done.returncode == 0, done.stdout[-3000:]
    assert starts() == 1
    assert "60 days and 500 MB a day" in done.stdout
    assert on("logs", "stat -c %U:%G /opt/splunk/etc/apps/glasslab/local/inputs.conf").stdout == "splunk:splunk\n"
    assert on("logs", "find /opt/splunk ! -user splunk").stdout == ""
    limits = on("logs", "systemctl show Splunkd.service -p LimitNOFILE,LimitNPROC,User").stdout
    assert {"LimitNOFILE=65536", "LimitNPROC=16000", "User=splunk"} <= set(limits.split())
    answered, result = ask(QUESTION)
    assert answered.returncode == 0, answered.stderr
    assert len(events(result["session_id"])) == 33
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0


def test_the_password_is_nowhere_but_hashed(play: Play) -> None:
    password = (STATE / "secrets/splunk_admin").read_text(encoding="utf-8").strip()
    assert len(password) == 32
    assert on("logs", "ls /opt/splunk/etc/system/local/user-seed.conf", check=False).returncode == 2
    assert on("logs", "cut -d: -f3 /opt/splunk/etc/passwd | head -1").stdout.startswith("$6$")
    assert password not in json.dumps(calls())
    found = on("logs", "grep -rlF -f - /opt/splunk /etc /var/log", check=False, stdin=password)
    assert found.stdout == ""


def test_the_licence_was_accepted_and_systemd_starts_it() -> None:
    first = calls()[0]["argv"]
    assert first[:4] == ["enable", "boot-start", "-systemd-managed", "1"]
    assert {"--accept-license", "--answer-yes", "--no-prompt"} <= set(first)
    assert first[first.index("-user") + 1] == "splunk"
    assert on("logs", "systemctl is-enabled Splunkd.service").stdout == "enabled\n"


def test_a_second_run_changes_nothing(play: Play) -> None:
    before = starts()
    done = play("10.4.4")
    assert done.returncode == 0, done.stdout[-3000:]
    assert changed(done) == 0
    assert starts() == before


def test_a_change_of_the_configuration_is_one_restart(play: Play) -> None:
    before = starts()
    done = play("10.4.4", "splunk_index_max_mb=2048", "splunk_index_days=30")
    assert done.returncode == 0, done.stdout[-3000:]
    assert starts() == before + 1
    written = on("logs", "cat /opt/splunk/etc/apps/glasslab/local/indexes.conf").stdout
    assert "maxTotalDataSizeMB = 2048\n" in written
    assert "frozenTimePeriodInSecs = 2592000\n" in written
