"""Mode `enterprise` against the stand-in's package, on the lab's log machine.

The tests are one story, in order: what is refused, an install that is cut off and finished, reruns, a change, a
password changed, an upgrade, failures. Behind them the machine serves the lab with its collector again.
GLASSLAB_SOAK=1: an install cut off before every task, and what a template has of the role.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

import lab
from enterprise import (
    BACKUPS,
    INTERRUPTED,
    Splunk,
    admin_password,
    calls,
    changed,
    one_line,
    purge,
    set_admin_password,
    starts,
)
from labtools import LAB_ID, STATE, ask, events, on, playbook
from rotating import token, under_a_question

SOAK = os.environ.get("GLASSLAB_SOAK") == "1"
QUESTION = "What was the root cause of the September incident?"
FRAMES = 33
EVENTS = "/opt/splunk/var/lib/splunk/standin-events.jsonl"
TOKEN = STATE / "secrets/search_token"
# Asked on the log machine: may this address use the HEC?
KNOCK = """
import ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/opt/splunk/etc/auth/glasslab/ca.pem")
try:
    print(urllib.request.urlopen(sys.argv[1], context=context, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
# The password is on no command line of this machine either: by stdin.
FIND = "grep -rlF -f - /opt/splunk /etc /var/log"


@pytest.fixture(scope="module")
def splunk(tmp_path_factory: pytest.TempPathFactory) -> Splunk:
    return Splunk(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module", autouse=True)
def collector_again() -> Iterator[None]:
    """The log machine as the lab has it: its collector, and its own search token on the control node."""
    kept = TOKEN.read_text(encoding="utf-8")
    yield
    purge()
    TOKEN.write_text(kept, encoding="utf-8")
    done = playbook("playbooks/splunk.yml", "-e", f"lab_id={LAB_ID}")
    assert done.returncode == 0, done.stdout[-2000:]


def recorded() -> None:
    """A question is answered, and all of its session is in the log."""
    answered, result = ask(QUESTION)
    assert answered.returncode == 0, answered.stderr
    assert len(events(result["session_id"])) == FRAMES
    assert lab.read_log("verify", result["session_id"], capture=True).returncode == 0


NAMED = "give the path or https address of Splunk's .deb, and sha512:"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no checksum": ("10.4.4", {"splunk_deb_checksum": ""}, NAMED),
    "plain http": ("10.4.4", {"splunk_deb": "http://example.invalid/splunk.deb"}, NAMED),
    "another file": ("10.4.4", {"splunk_deb_checksum": f"sha512:{'0' * 128}"}, "is there and is what was published"),
    "Splunk's Python": ("10.4.4", {"ansible_python_interpreter": "/opt/splunk/bin/python3"}, "set /usr/bin/python3"),
    "disk": ("10.4.4", {"splunk_min_free_mb": 999999999}, "MB free, and below 999999999 MB (splunk_min_free_mb)"),
    "another package": ("other", {}, "it is the package 'splunkforwarder', not splunk"),
    "another machine's": ("arm", {}, "it is for arm64, and this machine is amd64"),
    "too old": ("10.2.8", {}, "version 10.2.8 is older than 10.2.9; supported are 10.0.12, 10.2.9, 10.4.4"),
}


@pytest.mark.parametrize(("package", "settings", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused(package: str, settings: dict[str, Any], said: str, splunk: Splunk) -> None:
    done = splunk.play(package, **settings)
    assert done.returncode == 2
    assert said in one_line(done)
    assert on("logs", "dpkg-query -W -f '${Version}' splunk", check=False).stdout == ""


def test_a_processor_without_avx_is_refused(splunk: Splunk) -> None:
    on("logs", "sed 's/ avx / /' /proc/cpuinfo >/run/cpuinfo; mount --bind /run/cpuinfo /proc/cpuinfo")
    try:
        done = splunk.play("10.4.4")
    finally:
        on("logs", "umount /proc/cpuinfo")
    assert done.returncode == 2
    assert "has no AVX, which the KV store needs: on Proxmox VE give the machine the CPU type host" in one_line(done)


def test_a_port_that_is_taken_is_named(splunk: Splunk) -> None:
    on("logs", "systemd-run -q --unit=taken python3 -m http.server --bind 127.0.0.1 8000")
    try:
        done = splunk.play("10.4.4")
    finally:
        on("logs", "systemctl stop taken.service")
    assert done.returncode == 2
    assert "port 8000 is taken by something that is not Splunk" in one_line(done)


# One install, cut off twice: with the package brought, and once it runs.
CUTS = ("Install it", "The user that reads")


def test_an_install_that_is_cut_off_leaves_nothing_that_runs(splunk: Splunk) -> None:
    done = splunk.play("10.4.4", cut=CUTS[0])
    assert done.returncode == INTERRUPTED, one_line(done)[-2000:]
    assert f"interrupted before {CUTS[0]}" in done.stdout
    assert starts() == 0


def test_it_is_installed_and_takes_a_session(splunk: Splunk) -> None:
    cut = splunk.play("10.4.4", cut=CUTS[1])
    assert cut.returncode == INTERRUPTED, one_line(cut)[-2000:]
    done = splunk.play("10.4.4")
    assert done.returncode == 0, one_line(done)[-3000:]
    assert starts() == 1
    assert "60 days and 500 MB a day" in one_line(done)
    assert on("logs", "find /opt/splunk ! -user splunk -o ! -group splunk").stdout == ""
    recorded()


def test_the_system_is_as_splunk_asks() -> None:
    limits = on("logs", "systemctl show Splunkd.service -p LimitNOFILE,LimitNPROC,User").stdout
    assert {"LimitNOFILE=65536", "LimitNPROC=16000", "User=splunk"} <= set(limits.split())
    assert on("logs", "systemctl is-enabled Splunkd.service glasslab-thp-off.service").stdout == "enabled\n" * 2
    pages = on("logs", "systemctl show glasslab-thp-off.service -p ExecStart,Before,ActiveState").stdout
    assert "enabled defrag" in pages
    assert "echo never" in pages
    assert "Splunkd.service" in pages
    assert "ActiveState=active" in pages
    server = on("logs", "cat /opt/splunk/etc/apps/glasslab/local/server.conf").stdout
    assert "minFreeSpace = 100\n" in server
    assert "active_group = Trial\n" in server


def test_its_hec_is_open_to_the_writers_alone_also_on_the_machine_itself() -> None:
    def knock(host: str) -> str:
        return on("logs", f"python3 - https://{host}:8088/services/collector/health", stdin=KNOCK).stdout.strip()

    assert knock("localhost") == "200"
    assert knock("10.10.10.20") == "403"


def test_the_password_is_nowhere_but_hashed() -> None:
    password = admin_password()
    assert len(password) == 32
    assert on("logs", "ls /opt/splunk/etc/system/local/user-seed.conf", check=False).returncode == 2
    assert on("logs", "cut -d: -f3 /opt/splunk/etc/passwd | head -1").stdout.startswith("$6$")
    assert password not in json.dumps(calls())
    assert on("logs", FIND, check=False, stdin=password).stdout == ""


def test_the_licence_was_accepted_and_systemd_starts_it() -> None:
    first = calls()[0]["argv"]
    assert first[:4] == ["enable", "boot-start", "-systemd-managed", "1"]
    assert {"--accept-license", "--answer-yes", "--no-prompt"} <= set(first)
    assert first[first.index("-user") + 1] == "splunk"


def test_a_second_run_changes_nothing(splunk: Splunk) -> None:
    before = starts()
    done = splunk.play("10.4.4")
    assert done.returncode == 0, one_line(done)[-3000:]
    assert changed(done) == 0
    assert starts() == before


def test_a_change_is_one_restart_also_when_the_run_was_cut_off_before_it(splunk: Splunk) -> None:
    before = starts()
    change = {"splunk_index_max_mb": 2048, "splunk_index_days": 30, "splunk_licence": "free"}
    assert splunk.play("10.4.4", cut="Restart the log", **change).returncode == INTERRUPTED
    assert starts() == before
    done = splunk.play("10.4.4", **change)
    assert done.returncode == 0, one_line(done)[-3000:]
    assert starts() == before + 1
    assert "no log-in, so that whoever reaches its ports may do everything; no alerts" in one_line(done)
    written = on("logs", "cat /opt/splunk/etc/apps/glasslab/local/*.conf").stdout
    assert "maxTotalDataSizeMB = 2048\n" in written
    assert "frozenTimePeriodInSecs = 2592000\n" in written
    assert "active_group = Free\n" in written


def test_a_token_is_rotated_under_a_running_question_without_a_restart(splunk: Splunk) -> None:
    before, old = starts(), token("hec_token_agent")
    count = f'grep -c \'"kind": "llm.request"\' {EVENTS} || true'
    words = ("-e", json.dumps({"lab_id": LAB_ID, "splunk_mode": "enterprise", "splunk_rotate": "agent"}))
    rotated, done, result = under_a_question(
        QUESTION,
        lambda: int(on("logs", count).stdout),
        lambda: playbook("playbooks/rotate.yml", *words),
        lambda: on("agent", "cat /etc/glasslab/agent/hec_token").stdout.strip() != old,
        lambda: None,
    )
    assert rotated.returncode == 0, one_line(rotated)[-3000:]
    assert (done.returncode, len(events(result["session_id"]))) == (0, FRAMES), done.stderr
    inputs = on("logs", "cat /opt/splunk/etc/apps/glasslab/local/inputs.conf").stdout
    assert token("hec_token_agent") in inputs
    assert old not in inputs
    assert starts() == before
    recorded()


def test_a_password_that_was_changed_there_is_no_obstacle_and_a_new_token_says_how(splunk: Splunk) -> None:
    set_admin_password("changed in Splunk Web")
    done = splunk.play("10.4.4")
    assert done.returncode == 0, one_line(done)[-3000:]
    kept = TOKEN.read_text(encoding="utf-8")
    TOKEN.write_text("lost\n", encoding="utf-8")
    done = splunk.play("10.4.4")
    assert done.returncode == 2
    assert "no longer takes the password of admin that it was installed with" in one_line(done)
    done = splunk.play("10.4.4", splunk_admin_password="changed in Splunk Web")
    assert done.returncode == 0, one_line(done)[-3000:]
    assert TOKEN.read_text(encoding="utf-8") not in ("lost\n", kept)


def test_an_upgrade_keeps_etc_aside_and_the_tokens(splunk: Splunk) -> None:
    token, before = TOKEN.read_text(encoding="utf-8"), starts()
    assert splunk.play("10.4.5", cut="Install it").returncode == INTERRUPTED
    done = splunk.play("10.4.5")
    assert done.returncode == 0, one_line(done)[-3000:]
    assert on("logs", "dpkg-query -W -f '${Version}' splunk").stdout == "10.4.5"
    assert starts() == before + 1
    kept = on("logs", f"tar -tzf {BACKUPS}/splunk-etc-10.4.4.tar.gz etc/passwd && stat -c %a {BACKUPS}/*").stdout
    assert kept == "etc/passwd\n600\n"
    assert TOKEN.read_text(encoding="utf-8") == token
    recorded()


def test_there_is_no_way_back_to_an_older_one(splunk: Splunk) -> None:
    done = splunk.play("10.4.4")
    assert done.returncode == 2
    assert "it is 10.4.4, and 10.4.5 is installed: Splunk cannot go back" in one_line(done)
    assert on("logs", "systemctl is-active Splunkd.service").stdout == "active\n"


def test_one_that_does_not_start_says_why_and_does_once_that_is_mended(splunk: Splunk) -> None:
    broken = "/opt/splunk/etc/system/local/server.conf"
    on("logs", f"systemctl stop Splunkd.service; printf '[sslConfig]\\nserverCert = /nowhere.pem\\n' >{broken}")
    done = splunk.play("10.4.5", splunk_ready_seconds=5)
    assert done.returncode == 2
    assert "Splunkd.service does not answer as it should after 5 s" in one_line(done)
    assert "cannot serve port 8089 with /nowhere.pem" in one_line(done)
    # What a run that died between two tasks may leave behind: files that are root's, and no note of what was started.
    on("logs", f"rm {broken} /etc/glasslab/splunk/started; chown root /opt/splunk/etc/apps")
    done = splunk.play("10.4.5")
    assert done.returncode == 0, one_line(done)[-3000:]
    assert on("logs", "find /opt/splunk ! -user splunk -o ! -group splunk").stdout == ""


def test_another_mode_does_not_set_up_its_collector_over_it() -> None:
    done = playbook("playbooks/splunk.yml", "-e", f"lab_id={LAB_ID}")
    assert done.returncode == 2
    assert "splunk_mode is collector, and this machine has Splunk Enterprise 10.4.5" in one_line(done)


if SOAK:

    @pytest.mark.parametrize("task", range(1, 80))
    def test_an_install_that_is_cut_off_before_any_task_is_finished_by_the_next(task: int, splunk: Splunk) -> None:
        purge()
        cut = splunk.play("10.4.4", cut=str(task))
        assert cut.returncode in (0, INTERRUPTED), one_line(cut)[-2000:]
        done = splunk.play("10.4.4")
        assert done.returncode == 0, one_line(done)[-3000:]
        assert changed(splunk.play("10.4.4")) == 0
        assert starts() == 1

    def test_a_template_has_it_installed_and_never_started(splunk: Splunk) -> None:
        purge()
        done = splunk.play("10.4.4", path="tests/splunk/template.yml")
        assert done.returncode == 0, one_line(done)[-3000:]
        assert on("logs", "dpkg-query -W -f '${db:Status-Status}' splunk").stdout == "installed"
        assert on("logs", "ls /opt/splunk/etc/instance.cfg /opt/splunk/etc/passwd", check=False).stdout == ""
        done = splunk.play("10.4.4")
        assert done.returncode == 0, one_line(done)[-3000:]
        assert starts() == 1
        assert on("logs", "cat /opt/splunk/etc/instance.cfg").stdout.startswith("[general]\nguid = ")
