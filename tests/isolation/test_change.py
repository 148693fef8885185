"""A change on somebody's hypervisor: shown before, all of it or nothing, and back again unless it is confirmed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pytest

from changetools import (
    armed,
    backups,
    cut_off,
    differing,
    everything,
    is_pending,
    kill,
    long,
    running,
    until_armed,
    until_settled,
    until_task,
)
from guieditor import rewritten
from isolationtools import LOADER, PLACES, answers, door, managed, playbook_lines, pve, reboot, rules, run, wait_for
from labtools import playbook

NETWORK = "playbooks/network.yml"
# A change of one rule file that no probe notices.
LIMIT = ("--extra-vars", "network_connection_limit=199")
LIMITED = "--connlimit-above 199"
GUARD = 15
GUARDED = ("--extra-vars", f"network_confirm_seconds={GUARD}")


MODEL = door("203.0.113.10", tcp=[443])
RULES = "/etc/glasslab/network/rules.v4"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Each test begins and ends with the lab's own settings, confirmed."""
    yield
    wait_for("the hypervisor can be managed", managed, 20)
    if limited() or is_pending() or pve(f"{LOADER} check", check=False) != "as loaded\n":
        done = playbook(NETWORK)
        assert done.returncode == 0, playbook_lines(done)
    assert armed() is None
    assert pve(f"{LOADER} check") == "as loaded\n"


def limited() -> bool:
    return LIMITED in pve("iptables-save -t mangle")


def test_shown_exactly_and_nothing_changed() -> None:
    before, kept = everything(), backups()
    done = playbook(NETWORK, "--check", "--diff", *LIMIT)
    assert done.returncode == 0, playbook_lines(done)
    removed, added = (
        [line[1:] for line in done.stdout.splitlines() if re.match(sign, line)] for sign in (r"-(?!--)", r"\+(?!\+\+)")
    )
    assert [line for line in removed if "--connlimit-above 256" in line]
    assert added == [re.sub(r"\b256\b", "199", line) for line in removed]
    files = {line.split()[-1] for line in done.stdout.splitlines() if line.startswith("+++ after: ")}
    assert files == {"/etc/glasslab/network/rules.v4", "/etc/glasslab/network/proxy.cfg"}
    assert "changed in /etc/glasslab/network: rules.v4, proxy.cfg" in done.stdout
    assert differing(before, everything()) == {}
    assert backups() == kept


def test_a_second_run_changes_and_arms_nothing() -> None:
    kept = backups()
    done = playbook(NETWORK)
    assert "changed=0" in done.stdout, playbook_lines(done)
    assert backups() == kept


def test_whose_backup_is_lost_takes_bridge_and_rules_away_and_the_play_brings_all_of_it_back() -> None:
    """Nothing can go back. What was stopped is started again although no file differs: watcher and services, too."""
    words = json.dumps({"paths": [RULES], "folders": [], "bridge": "vmbr1"})
    pve(f"echo '{words}' | {LOADER} arm --seconds 2; rm -r /var/lib/glasslab-network/backup")
    until_settled()
    wait_for("the rules are gone", lambda: "GLASSLAB" not in rules(), 20)
    assert "vmbr1" not in pve("ip -brief link")
    assert managed()
    said = pve("journalctl --unit glasslab-network-rollback --lines 5 --output cat")
    assert "the bridge vmbr1 and the rules are taken away; run playbooks/network.yml again" in said
    done = playbook(NETWORK)
    assert done.returncode == 0, playbook_lines(done)
    assert pve(f"{LOADER} check") == "as loaded\n"
    watchers = "glasslab-network-watch.service glasslab-network-heal.timer"
    assert pve(f"systemctl is-active {watchers}").split() == ["active"] * 2


@long
def test_confirmed_change_stays_and_a_second_run_arms_nothing() -> None:
    done = playbook(NETWORK, *LIMIT)
    assert done.returncode == 0, playbook_lines(done)
    assert limited()
    assert armed() is None
    assert "rollback" not in pve("systemctl list-timers --all")
    kept = backups()
    again = playbook(NETWORK, *LIMIT)
    assert "changed=0" in again.stdout
    assert backups() == kept
    assert len(kept) <= 10


@long
def test_file_that_its_tool_refuses_stops_all_of_them() -> None:
    before, kept = everything(), backups()
    stanza = {
        "path": "/etc/network/interfaces",
        "interface": "vmbr1",
        "signature": "glasslab",
        "content": "auto vmbr1\niface vmbr1 inet nonsense\n# glasslab\n",
        "validate": "ifup --syntax-check --interfaces %s vmbr1",
        "errors": "^error:",
    }
    done = playbook(NETWORK, *LIMIT, "--extra-vars", json.dumps({"network_stanza": [stanza]}))
    assert done.returncode != 0
    assert "/etc/network/interfaces is refused by ifup: error: " in playbook_lines(done)
    assert "nothing was changed" in playbook_lines(done)
    assert differing(before, everything()) == {}
    assert backups() == kept


@long
def test_controller_that_is_cut_off_gets_its_host_back_as_it_was() -> None:
    before = everything()
    with running(NETWORK, *LIMIT, *GUARDED) as play:
        until_armed()
        with cut_off():
            said = play.communicate(timeout=90)[0]
            until_settled(GUARD + 15)
    assert play.returncode != 0
    assert f"cannot be reached since the change: it puts itself back within {GUARD} seconds" in said, said
    assert differing(before, everything()) == {}
    assert "files are as they were before" in pve("journalctl --unit glasslab-network-rollback --lines 20")


def of_the_network(found: dict[str, str]) -> list[str]:
    """Lines that speak of the lab's network; the hypervisor's witness is a role of its own, and may be there."""
    lines = [line for text in found.values() for line in text.splitlines() if line != "/etc/glasslab"]
    ours = [line for line in lines if re.search(r"glasslab|vmbr1|fwmark|blackhole", line)]
    return [line for line in ours if not re.search(r"witness|glasslab/hypervisor", line)]


def test_first_change_of_all_goes_back_to_a_bare_host() -> None:
    """Torn down, shown, installed by a controller that is cut off: three times the same bytes.

    Then installed by one that is killed, and by a second that finishes what the first began.
    """
    interfaces = pve("cat /etc/glasslab/network/interfaces.before")
    former = json.loads(pve("cat /run/glasslab-network/former.json"))
    done = playbook(NETWORK, "--extra-vars", "network_state=absent")
    assert done.returncode == 0, playbook_lines(done)
    bare = everything()
    assert of_the_network(bare) == []
    assert pve("ls -d /var/lib/glasslab-network /run/glasslab-network 2>/dev/null", check=False) == ""
    assert pve("cat /etc/network/interfaces") == interfaces
    assert pve("nft list tables") == "".join(f"table {table}\n" for table in former["tables"])
    sysctls = {path: value for path, value in former["sysctl"].items() if "/vmbr1/" not in path}
    assert pve(f"cd /proc/sys; cat {' '.join(sysctls)}").split() == list(sysctls.values())
    shown = playbook(NETWORK, "--check", "--diff")
    assert shown.returncode == 0, playbook_lines(shown)
    assert {"+-A GLASSLAB-FORWARD -j DROP", "+auto vmbr1", "+++ after: /etc/glasslab/network/rules.v4"} <= set(
        shown.stdout.splitlines()
    )
    assert differing(bare, everything()) == {}
    with running(NETWORK, *GUARDED) as play:
        until_armed()
        wait_for("the bridge is there", lambda: "vmbr1" in pve("ls /sys/class/net"), 40)
        with cut_off():
            play.communicate(timeout=90)
            until_settled(GUARD + 25)
            wait_for("nothing of ours is left", lambda: pve("ls -d /run/glasslab-network", check=False) == "", 20)
    assert play.returncode != 0
    assert differing(bare, everything()) == {}
    with running(NETWORK) as play:
        until_armed()
        kill(play)
    done = playbook(NETWORK)
    assert done.returncode == 0, playbook_lines(done)
    wait_for("the model can be reached again", lambda: answers("agent", MODEL) == ["open"], 10)


def changed_and_armed(seconds: int) -> None:
    """A rule file changed, loaded and armed, as the role does it."""
    words = json.dumps({"paths": [RULES], "folders": [], "bridge": "vmbr1"})
    run(PLACES["hypervisor"], LOADER, "arm", f"--seconds={seconds}", stdin=words)
    pve(f"sed -i 's/--connlimit-above 256/{LIMITED}/' {RULES}")
    run(PLACES["hypervisor"], LOADER, "activate", stdin=words)
    assert limited()


def test_reboot_undoes_what_nobody_has_confirmed() -> None:
    before = everything()
    changed_and_armed(900)
    reboot()
    until_settled(20)
    wait_for("the walls stand", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 20)
    now = everything()
    assert differing({"files": before["files"], "rules": before["rules"]}, now) == {}


def test_minutes_round_undoes_it_where_the_timer_is_dead() -> None:
    before = everything()
    changed_and_armed(900)
    pve("systemctl stop glasslab-network-rollback.timer; systemctl start glasslab-network-heal.service")
    assert limited(), "its time has not come yet"
    pve('sed -i \'s/"deadline": [0-9.]*/"deadline": 1.0/\' /var/lib/glasslab-network/pending.json')
    pve("systemctl start glasslab-network-heal.service")
    assert armed() is None
    assert differing(before, everything()) == {}


@long
def test_run_that_is_killed_at_any_task_is_finished_by_the_next() -> None:
    killed = []
    for number in itertools.count(1):
        with running(NETWORK, *LIMIT) as play:
            task = until_task(play, number)
            kill(play)
        if not task:
            break
        killed.append(task)
        done = playbook(NETWORK, *LIMIT)
        assert done.returncode == 0, (task, playbook_lines(done))
        assert limited(), task
        assert armed() is None, task
        assert pve(f"{LOADER} check") == "as loaded\n", task
        back = playbook(NETWORK)
        assert back.returncode == 0, (task, playbook_lines(back))
        assert not limited(), task
    print(f"killed at {len(killed)} tasks")
    assert any("confirm" in task.lower() for task in killed)
    assert "changed=0" in playbook(NETWORK).stdout


def test_bridge_outlives_the_rewriting_of_interfaces_by_proxmox() -> None:
    """Its editor writes the whole file anew: our stanza is still ours, and the next run has nothing to do."""
    interfaces = pve("cat /etc/network/interfaces")
    after = rewritten(interfaces)
    assert after != interfaces
    try:
        run(PLACES["hypervisor"], "sh", "-c", "cat > /etc/network/interfaces", stdin=after)
        pve("ifreload -a")
        wait_for("the walls stand", lambda: pve(f"{LOADER} check", check=False) == "as loaded\n", 10)
        done = playbook(NETWORK)
        assert "changed=0" in done.stdout, playbook_lines(done)
    finally:
        run(PLACES["hypervisor"], "sh", "-c", "cat > /etc/network/interfaces", stdin=interfaces)
        pve("ifreload -a")


@long
def test_changes_that_wait_in_proxmox_are_not_run_over() -> None:
    pve("cp /etc/network/interfaces /etc/network/interfaces.new")
    try:
        done = playbook(NETWORK, *LIMIT)
    finally:
        pve("rm /etc/network/interfaces.new")
    assert done.returncode != 0
    assert "apply or revert them there first" in playbook_lines(done)
    assert not limited()


# The package made anew from what is installed; apt then has no other place to take it from.
REPACK = """
set -e
mkdir -p /srv/again/package/DEBIAN && cd /srv/again
dpkg-query -L haproxy | while read -r path; do [ -d "$path" ] || echo "$path"; done |
    tar -c --ignore-failed-read --files-from - 2>/dev/null | tar -x -C package
dpkg-query -s haproxy | grep -v -e ^Status -e ^Conffiles -e '^ /etc' > package/DEBIAN/control
for part in preinst postinst prerm postrm conffiles; do
    [ ! -e /var/lib/dpkg/info/haproxy.$part ] || cp /var/lib/dpkg/info/haproxy.$part package/DEBIAN/$part
done
dpkg-deb --build package haproxy.deb
{ cat package/DEBIAN/control; echo "Filename: ./haproxy.deb"; echo "Size: $(stat -c %s haproxy.deb)"
  echo "SHA256: $(sha256sum haproxy.deb | cut -d' ' -f1)"; } > Packages
mv /etc/apt/sources.list sources.list.away
echo 'deb [trusted=yes] file:/srv/again ./' > /etc/apt/sources.list
apt-get update
dpkg --purge haproxy
"""
PUT_BACK = """
dpkg --install /srv/again/haproxy.deb
systemctl disable --now haproxy
mv /srv/again/sources.list.away /etc/apt/sources.list
rm -r /srv/again
"""


@long
def test_package_that_is_missing_is_installed_without_its_service_and_goes_again() -> None:
    """What the role has installed it takes away; had the host had it before, it would stay."""
    state = (
        "systemctl is-enabled haproxy; systemctl is-active haproxy glasslab-proxy; dpkg-query -W -f '${Status}' haproxy"
    )
    pve(REPACK)
    try:
        done = playbook(NETWORK)
        assert done.returncode == 0, playbook_lines(done)
        assert "packages to install, their own services off: haproxy" in done.stdout
        assert pve(state, check=False).split()[:3] == ["disabled", "inactive", "active"]
        assert "changed=0" in playbook(NETWORK).stdout
        done = playbook(NETWORK, "--extra-vars", "network_state=absent")
        assert done.returncode == 0, playbook_lines(done)
        assert "install ok" not in pve(state, check=False)
    finally:
        pve(PUT_BACK)
    done = playbook(NETWORK)
    assert done.returncode == 0, playbook_lines(done)
    done = playbook(NETWORK, "--extra-vars", "network_state=absent")
    assert done.returncode == 0, playbook_lines(done)
    assert "install ok" in pve(state, check=False), "a package that the host had before is the host's"
