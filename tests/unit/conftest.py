"""The roles' programs and plugins are no packages: they are found by their folders."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "roles/machine/filter_plugins",
    "roles/splunk/filter_plugins",
    "roles/network/files",
    "roles/network/filter_plugins",
    "roles/network/library",
    "roles/verify/files",
    "roles/witness/files",
    "tests/conformance",
    "tests/isolation",
    "packer",
    "roles/template/files",
    "scripts",
)
sys.path += [str(ROOT / folder) for folder in FOLDERS]
