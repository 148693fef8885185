"""Certificates for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str) -> None:
    """Write a self-signed P-256 certificate for `name` (DNS:... or IP:...) to folder/crt, its key to folder/key."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=model", "-addext", f"subjectAltName={name}", "-out", str(folder / "crt")]
    argv += ["-keyout", str(folder / "key")]
    subprocess.run(argv, check=True, capture_output=True)
