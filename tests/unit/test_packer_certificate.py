"""What Packer verifies a node's certificate against: the copy that docs/proxmox.md makes, or the node's CA."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodecertificates
import seeds
import template
from packertools import PACKER, ROOT, packer


class Refusing(http.server.BaseHTTPRequestHandler):
    """Knows nobody: what comes as far as that has accepted the certificate."""

    def do_POST(self) -> None:
        self.send_response(401, "authentication failure")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is written to the test's output."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with nodecertificates.serving(tmp_path, Refusing) as where:
        yield where


@pytest.mark.parametrize(("trusted", "accepted"), [("leaf.pem", True), ("ca.pem", True), ("other.pem", False)])
def test_packer_accepts_the_copy_and_the_ca_and_nothing_else(
    port: int, tmp_path: Path, trusted: str, accepted: bool
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    nodecertificates.write(other)
    (tmp_path / "other.pem").write_bytes((other / "leaf.pem").read_bytes())
    seeds.key_pair(tmp_path)
    place = template.stage(tmp_path, (1, 6, 6))
    given = {
        "checkout": str(ROOT),
        "work": str(tmp_path),
        "output": str(tmp_path / "out"),
        "release": "0.1.0",
        "commit": "0123456789abcdef",
        "proxmox_url": f"https://127.0.0.1:{port}/api2/json",
        "node": "pve",
    }
    (tmp_path / "given.pkrvars.json").write_text(json.dumps(given), encoding="utf-8")
    files = [f"-var-file={PACKER}/agent.pkrvars.hcl", f"-var-file={tmp_path}/given.pkrvars.json"]
    done = packer(
        "build", "-only=template.proxmox-clone.template", *files, str(place), SSL_CERT_FILE=str(tmp_path / trusted)
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert ("x509" in said) is not accepted, said
    assert ("401 authentication failure" in said) is accepted, said
