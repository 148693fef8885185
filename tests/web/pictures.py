"""Pictures of the log's page, to look at and for docs/images.

Usage: pictures.py FOLDER   PAGE-WIDTH[-dark].png of each page, of a log with a real session and what detections are for
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from pagelab import PROBE, PageLab

LOG = PROBE | {"target": "log", "expected": "reachable", "observed": "reachable"}
PROBES = [PROBE, PROBE | {"port": 80}, LOG | {"port": 8088}, LOG | {"target": "model API", "port": 443}]
LOOKS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]


def main(folder: Path) -> None:
    """Take them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="glasslab-pictures-") as temporary:
        place = PageLab(Path(temporary) / "page")
        try:
            session = place.ask()
            place.receipt({"counts": {"blocked": 2, "reachable": 2, "unproven": 0}, "probes": PROBES})
            place.found()
            take(place, session, Path(temporary) / "home", folder)
        finally:
            place.stop()


def take(place: PageLab, session: str, home: Path, folder: Path) -> None:
    """Take the pictures in a browser that trusts the log's CA."""
    store = home / ".pki" / "nssdb"
    store.mkdir(parents=True)
    for command in (["-N", "--empty-password"], ["-A", "-n", "lab", "-t", "C,,", "-i", str(place.ca)]):
        subprocess.run(["certutil", "-d", f"sql:{store}", *command], check=True, capture_output=True)
    pages = {"sessions": "/", "session": f"/sessions/{session}", "receipts": "/receipts", "detections": "/detections"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            env={**os.environ, "HOME": str(home)},
            args=["--no-sandbox"] if os.geteuid() == 0 else [],  # Chromium's own sandbox refuses root
        )
        for width, scheme in LOOKS:
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            context.set_extra_http_headers({"Authorization": f"Bearer {place.token}"})
            page = context.new_page()
            for name, path in pages.items():
                page.goto(place.url + path)
                dark = "-dark" if scheme == "dark" else ""
                page.screenshot(path=folder / f"{name}-{width}{dark}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
