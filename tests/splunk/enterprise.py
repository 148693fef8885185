"""What the tests of mode `enterprise` share: the stand-in's packages, the role run with one, what the stand-in kept."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from labtools import LAB_ID, ROOT, STATE, Done, on, playbook

sys.path.append(str(ROOT / "molecule/splunk/standin"))
from build import build

CALLS = "/opt/splunk/var/log/standin"
BACKUPS = "/var/backups/glasslab"
INTERRUPTED = 99
CALLBACKS = f"{ROOT}/plugins/callback:{ROOT}/tests/splunk/interrupting"
PURGE = (
    "systemctl disable -q --now Splunkd.service glasslab-thp-off.service; dpkg --purge splunk; "
    "rm -rf /etc/systemd/system/Splunkd.service* /etc/systemd/system/glasslab-thp-off.service /etc/glasslab/splunk "
    f"{CALLS} {BACKUPS} /var/cache/glasslab/splunk-* /opt/splunk/etc /opt/splunk/var/standin* /opt/splunk/bin "
    "/opt/splunk/var/lib/splunk/standin-events.jsonl; systemctl daemon-reload"
)


class Splunk:
    """Splunk Enterprise on the lab's log machine, as the role makes it of the stand-in's packages."""

    def __init__(self, place: Path) -> None:
        self.packages = {version: build(place, version) for version in ("10.4.4", "10.4.5", "10.2.8")}
        self.packages |= {
            "other": build(place, "10.4.4", "splunkforwarder"),
            "arm": build(place, "10.4.4", architecture="arm64"),
        }

    def play(self, package: str, *, cut: str = "", path: str = "playbooks/splunk.yml", **settings: Any) -> Done:
        """Run the role with a package. `cut`: the task before which the run ends at once, by its name or number."""
        deb = self.packages[package]
        digest = f"sha512:{hashlib.sha512(deb.read_bytes()).hexdigest()}"
        given = {"splunk_mode": "enterprise", "splunk_deb": str(deb), "splunk_deb_checksum": digest}
        given |= {"lab_id": LAB_ID, "splunk_min_free_mb": 100, "splunk_ready_seconds": 20}
        words = (path, "-e", json.dumps(given | settings))
        if not cut:
            return playbook(*words)
        also = {"ANSIBLE_CALLBACK_PLUGINS": CALLBACKS, "ANSIBLE_CALLBACKS_ENABLED": "interrupt"}
        return playbook(*words, **also, GLASSLAB_INTERRUPT_AT=cut)


def purge() -> None:
    """Nothing of Splunk Enterprise is left on the log machine."""
    on("logs", PURGE, check=False)


def one_line(done: Done) -> str:
    """What a play said, without line breaks: Ansible wraps its messages."""
    return " ".join((done.stdout + done.stderr).split())


def changed(done: Done) -> int:
    """How much a play changed on the log machine."""
    line = next(line for line in done.stdout.splitlines() if line.startswith("logs ") and "changed=" in line)
    return int(line.split("changed=")[1].split()[0])


def starts() -> int:
    """How often the stand-in's splunkd has been started."""
    return int(on("logs", f"cat {CALLS}/starts 2>/dev/null | wc -l").stdout)


def calls() -> list[dict[str, Any]]:
    """Every call of the splunk command line."""
    return [json.loads(line) for line in on("logs", f"cat {CALLS}/argv.jsonl").stdout.splitlines()]


def admin_password() -> str:
    """The password that Splunk was installed with."""
    return (STATE / "secrets/splunk_admin").read_text(encoding="utf-8").strip()


def set_admin_password(password: str) -> None:
    """As somebody does it in Splunk Web: afterwards etc/passwd holds another hash."""
    command = ["openssl", "passwd", "-6", "-stdin"]
    made = subprocess.run(command, input=password, capture_output=True, text=True, check=True).stdout.strip()
    on("logs", r"h=$(cat); sed -i 's|^:admin:[^:]*:|:admin:'$h':|' /opt/splunk/etc/passwd", stdin=made)
