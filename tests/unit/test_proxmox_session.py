"""The session with a Proxmox VE host: certificates as such hosts have them, and failures as one line with a remedy."""

from __future__ import annotations

import http.server
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nodecertificates

FILE = Path(__file__).resolve().parents[2] / "roles" / "machine" / "module_utils" / "proxmox_session.py"
SPEC = importlib.util.spec_from_file_location("glasslab_proxmox_session", FILE)
assert SPEC is not None
assert SPEC.loader is not None
session = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(session)

ANSWERS: dict[str, tuple[int, str, Any]] = {
    "/api2/json/version": (200, "OK", {"version": "9.0.3"}),
    "/api2/json/denied": (403, "Permission check failed (/pool/glasslab, VM.Clone)", None),
    "/api2/json/unknown": (401, "no such token 'lab' for user 'glasslab@pve'", None),
    "/api2/json/broken": (500, "unable to parse\tsomething", None),
}


class Node(http.server.BaseHTTPRequestHandler):
    """Answers as the table says, a list of tasks' states one after the other."""

    states: list[dict[str, str]] = []  # noqa: RUF012 - one server a test, and each sets its own

    def do_GET(self) -> None:
        status, reason, data = ANSWERS.get(self.path, (200, "OK", None))
        if self.path.endswith("/status"):
            data = Node.states.pop(0)
        if self.path.split("?")[0].endswith("/log"):
            data = [{"n": 1, "t": "copying disk"}, {"n": 2, "t": "TASK ERROR: no space left"}]
        body = json.dumps({"data": data}).encode()
        self.send_response(status, reason)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is written to the test's output."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("node")
    own = "leaf.pem" if sys.version_info >= (3, 13) else "ca.pem"
    with nodecertificates.serving(folder, Node) as port:
        yield {
            "folder": folder,
            "api": {
                "api_host": "127.0.0.1",
                "api_port": port,
                "api_user": "glasslab@pve",
                "api_token_id": "lab",
                "api_token_secret": "s3cr3t-of-the-token",
                "ca_path": str(folder / own),
                "api_timeout": 5,
            },
        }


def refusal(api: dict[str, Any], path: str) -> str:
    with pytest.raises(session.Refused) as refused:
        session.Session(api).call("get", path)
    line = str(refused.value)
    assert "\n" not in line
    assert "s3cr3t" not in line
    return line


def test_the_certificate_of_a_host_is_accepted_by_the_copy_that_the_documentation_names(node: dict[str, Any]) -> None:
    assert session.Session(node["api"]).call("get", "version") == {"version": "9.0.3"}


@pytest.mark.parametrize("place", [None, "another"])
def test_a_certificate_that_nothing_vouches_for_is_refused_with_the_file_to_copy(
    node: dict[str, Any], place: str | None
) -> None:
    other = node["folder"] / "other"
    other.mkdir(exist_ok=True)
    nodecertificates.write(other)
    line = refusal({**node["api"], "ca_path": str(other / "ca.pem") if place else None}, "version")
    assert "/etc/pve/local/pve-ssl.pem" in line
    assert "machine_proxmox_ca" in line


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("denied", ["glasslab@pve!lab lacks VM.Clone on /pool/glasslab", "playbooks/proxmox_access.yml"]),
        ("unknown", ["does not accept glasslab@pve!lab", "no such token", "machine_proxmox_token_secret"]),
        ("broken", ["answers 500", "unable to parse something"]),
    ],
)
def test_an_answer_that_refuses_is_one_line_with_a_remedy(node: dict[str, Any], path: str, words: list[str]) -> None:
    line = refusal(node["api"], path)
    for word in words:
        assert word in line


def test_nobody_there_is_told_with_the_address(node: dict[str, Any]) -> None:
    assert "https://127.0.0.1:1 does not answer" in refusal({**node["api"], "api_port": 1}, "version")


def test_a_task_is_followed_to_its_end_and_for_so_many_seconds_only(node: dict[str, Any]) -> None:
    upid = "UPID:pve:0000:0000:0000:qmclone:101:glasslab@pve!lab:"
    Node.states = [{"status": "running"}, {"status": "stopped", "exitstatus": "no space left"}]
    one = session.Session(node["api"])
    assert one.follow(upid, 10) == {"exit": "no space left", "log": ["copying disk", "TASK ERROR: no space left"]}
    Node.states = [{"status": "running"}]
    assert one.follow(upid, 0) is None


def test_a_copy_that_is_not_there_is_told_with_what_to_copy(node: dict[str, Any]) -> None:
    line = refusal({**node["api"], "ca_path": "/nowhere/pve.pem"}, "version")
    assert "machine_proxmox_ca /nowhere/pve.pem is no file" in line
    assert "/etc/pve/local/pve-ssl.pem" in line
