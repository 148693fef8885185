"""playbooks/build.yml: opens, runs apt, and closes whatever happens."""

from __future__ import annotations

import json

from changetools import armed, differing, everything, kill, long, running, until_settled
from isolationtools import LOADER, PLACES, playbook_lines, pve, run, wait_for
from labtools import playbook

GUARD = 15
BUILD = "playbooks/build.yml"
PACKAGE = "glasslab-sample"


def loaded_mode() -> str:
    """The mode of the rules that stand; nothing while they are being replaced."""
    stand = pve(f"{LOADER} check", check=False) == "as loaded\n"
    found: str = json.loads(pve("cat /etc/glasslab/network/settings.json"))["mode"]
    return found if stand else ""


@long
def test_build_opens_installs_and_closes() -> None:
    before = everything()
    try:
        done = playbook(BUILD, "--extra-vars", f"build_packages={PACKAGE}")
        assert done.returncode == 0, playbook_lines(done)
        assert run(PLACES["agent"], "cat", f"/usr/share/{PACKAGE}/here").stdout == "from the mirror\n"
    finally:
        run(PLACES["agent"], "apt-get", "purge", "--yes", PACKAGE, check=False)
    assert "closed again: mode allowlist; open meanwhile: packages.glasslab.test has an address" in done.stdout
    assert differing(before, everything()) == {}


def test_build_closes_when_a_package_fails() -> None:
    before = everything()
    done = playbook(BUILD, "--extra-vars", "build_packages=no-such-package")
    assert done.returncode != 0
    assert "No package matching 'no-such-package' is available" in playbook_lines(done)
    assert "closed again: mode allowlist" in done.stdout
    assert armed() is None
    assert differing(before, everything()) == {}


@long
def test_build_closes_by_itself_when_the_play_is_killed() -> None:
    """At the end of the lease; or, killed before the host was seen to be reached, at the end of the guard."""
    before = everything()
    given = {"build_packages": PACKAGE, "build_seconds": GUARD, "network_confirm_seconds": GUARD}
    with running(BUILD, "--extra-vars", json.dumps(given)) as play:
        wait_for("it is open", lambda: loaded_mode() == "build", 60)
        kill(play)
    until_settled(GUARD + 20)
    assert loaded_mode() == "allowlist"
    assert differing(before, everything()) == {}
