"""A change on somebody's hypervisor: shown before, all of it or nothing, and back again unless it is confirmed."""

from __future__ import annotations

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
    running,
    until_armed,
    until_settled,
)
from isolationtools import LOADER, managed, playbook_lines, pve, wait_for
from labtools import playbook

NETWORK = "playbooks/network.yml"
# A change of one rule file that no probe notices.
LIMIT = ("--extra-vars", "network_connection_limit=199")
LIMITED = "--connlimit-above 199"
GUARD = 12
GUARDED = ("--extra-vars", f"network_confirm_seconds={GUARD}")


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
    changed = [line for line in done.stdout.splitlines() if re.match(r"\+(?!\+\+)|-(?!--)", line)]
    assert len(changed) == 2, changed
    assert changed[0].startswith("--A GLASSLAB-ROUTE ")
    assert "--connlimit-above 256" in changed[0]
    assert changed[1] == "+" + changed[0][1:].replace("256", "199")
    assert "changed in /etc/glasslab/network: rules.v4" in done.stdout
    assert differing(before, everything()) == {}
    assert backups() == kept


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


def test_file_that_its_tool_refuses_stops_all_of_them() -> None:
    before, kept = everything(), backups()
    stanza = {
        "path": "/etc/network/interfaces",
        "interface": "vmbr1",
        "signature": "glasslab",
        "content": "auto vmbr1\niface vmbr1 inet nonsense\n# glasslab\n",
        "validate": "ifup --syntax-check --interfaces %s vmbr1",
    }
    done = playbook(NETWORK, *LIMIT, "--extra-vars", json.dumps({"network_stanza": [stanza]}))
    assert done.returncode != 0
    assert "/etc/network/interfaces is refused by ifup: error: " in playbook_lines(done)
    assert "nothing was changed" in playbook_lines(done)
    assert differing(before, everything()) == {}
    assert backups() == kept


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
