"""The Splunk app: check it, and write what is made from it.

Usage: splunk_app.py check [DIRECTORY]   each fault on a line of its own; exit 1 when there is one
       splunk_app.py docs [--check]      docs/searches.md and the tool baseline (lookups/glasslab_tools.csv)
       splunk_app.py inspect             splunk-appinspect and ksconf check, from an environment of their own

--check writes nothing and exits 1 when a file is not as it would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab import ROOT
from lab import run as run_script
from splunkcheck import app, docs, inspect

APP = ROOT / "roles/splunk/files/app"


def main() -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["check"]:
            check(APP)
        case ["check", directory]:
            check(Path(directory))
        case ["docs"]:
            docs.write(ROOT, APP)
        case ["docs", "--check"]:
            stale = docs.stale(ROOT, APP)
            if stale:
                sys.exit(f"splunk_app: not as the app gives them: {', '.join(stale)}; run scripts/splunk_app.py docs")
        case ["inspect"]:
            inspect.run(ROOT, APP)
        case _:
            sys.exit(__doc__)


def check(directory: Path) -> None:
    """Print an app's faults. Exits 1 when there is one."""
    if not (directory / "default").is_dir():
        sys.exit(f"splunk_app: {directory} is no Splunk app: it has no folder default")
    findings = app.check(directory)
    for finding in findings:
        print(finding)
    if findings:
        sys.exit(f"splunk_app: {len(findings)} faults in {directory}")


if __name__ == "__main__":
    run_script(main)
