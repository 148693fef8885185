"""splunk-appinspect and ksconf on the app, from an environment of their own: their needs are not the agent's."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

# What splunk-appinspect may find: the check's name, and why it is meant. Empty: it finds nothing.
ALLOWED: Final[dict[str, str]] = {}
FAULTS: Final = ("failure", "future_failure", "error", "warning")
DEADLINE: Final = 300.0


def environment(root: Path) -> Path:
    """Return the folder of the programs, made from requirements/appinspect.txt when it is not there or older."""
    lock, place = root / "requirements/appinspect.txt", root / ".venv/.appinspect"
    want, stamp = hashlib.sha256(lock.read_bytes()).hexdigest(), place / ".complete"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != want:
        python = str(place / "bin/python")
        # pip, for it reads this machine's own configuration of where packages come from; uv would have to be handed it.
        pip = [
            str(root / ".venv/.bootstrap/bin/pip"),
            "--disable-pip-version-check",
            "--python",
            python,
            "install",
            "-q",
        ]
        for command in (
            [str(root / ".venv/bin/python"), "-m", "venv", "--clear", "--without-pip", str(place)],
            [*pip, "--require-hashes", "-r", str(lock)],
        ):
            if subprocess.run(command, check=False).returncode:
                sys.exit("splunk_app: the environment of splunk-appinspect cannot be made; see above, and `make setup`")
        stamp.write_text(want, encoding="utf-8")
    return place / "bin"


def package(app: Path, place: Path) -> Path:
    """Return the app as a package for Splunk (.tar.gz), made in `place`: the folder is named after the app."""
    target = place / "glasslab.tar.gz"

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(target, "w:gz") as tar:
        tar.add(app, arcname="glasslab", filter=plain)
    return target


def run(root: Path, app: Path) -> None:
    """Run both; show what they find. Exits 1 when one finds something that is not allowed."""
    programs = environment(root)
    place = Path(tempfile.mkdtemp(prefix="glasslab-app-"))
    try:
        found = appinspect(programs, package(app, place), place / "report.json")
        confs = [str(path) for path in sorted([*app.rglob("*.conf"), *app.rglob("*.meta")])]
        ksconf = subprocess.run(
            [str(programs / "ksconf"), "check", *confs], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        if ksconf.returncode:
            found.append(f"ksconf check: {ksconf.stdout.strip()} {ksconf.stderr.strip()}")
    finally:
        shutil.rmtree(place)
    for line in found:
        print(line)
    if found:
        sys.exit(f"splunk_app: {len(found)} findings that are not allowed")


def appinspect(programs: Path, archive: Path, report: Path) -> list[str]:
    """Return what splunk-appinspect finds beside ALLOWED, and what of that it no longer finds."""
    command = [str(programs / "splunk-appinspect"), "inspect", str(archive), "--ci", "--skip-trusted-libraries-update"]
    command += ["--data-format", "json", "--output-file", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=report.parent)
    if not report.is_file():
        return [f"splunk-appinspect wrote no report: {(done.stderr or done.stdout).strip()[-300:]}"]
    result = json.loads(report.read_text(encoding="utf-8"))
    groups = [group for one in result["reports"] for group in one["groups"]]
    checks = [check for group in groups for check in group["checks"]]
    found = [check for check in checks if check["result"] in FAULTS]
    lines = [
        f"splunk-appinspect {check['name']}: {' '.join(message['message'] for message in check['messages'])[:400]}"
        for check in found
        if check["name"] not in ALLOWED
    ]
    gone = sorted(set(ALLOWED) - {check["name"] for check in found})
    if not any(check["result"] == "success" for check in checks):
        lines.append("splunk-appinspect checked nothing")
    return lines + [f"splunk-appinspect no longer finds {name}: take it out of ALLOWED" for name in gone]
