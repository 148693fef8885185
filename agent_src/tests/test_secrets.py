"""Secrets that are looked for wherever something of the lab can be seen: frames, output, crashes.

In the environments and memories of the appliance's processes: tests/lab/test_appliance.py.
"""

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_lab import QUESTION, bare_environment, scripted_model, turn
from conftest import Certificates
from faulty_hec import FaultyHec
from glasslab.keys import load_signing_key

CANARIES = {
    "MODEL_API_KEY": "canary-model-5f1e0c7a9b",
    "HEC_TOKEN": "canary-agent-71c2d93e04",
    "HEC_TOKEN_MCP": "canary-server-2b8f6a4d15",
}
# What is left to go wrong, and where: a fault that no handler knows, a crash of the interpreter itself.
BOOM = "def boom(*_, **__): raise SystemError('a fault that nobody foresaw')\n"
CRASHES = {
    "in the command": f"import glasslab.agent\n{BOOM}glasslab.agent.Agent.ask = boom",
    "in the session": f"import glasslab.agent\n{BOOM}glasslab.agent.Session.connect = boom",
    "in the model's thread": f"import glasslab.models.endpoint\n{BOOM}glasslab.models.endpoint._receive = boom",
    "in the recorder's thread": f"import glasslab.hec\n{BOOM}glasslab.hec.HecConnection._exchange = boom",
    "in the settings": f"import glasslab.settings\n{BOOM}glasslab.settings.Settings.hec = boom",
    "of the interpreter": "import ctypes, glasslab.agent as a\na.Session.connect = lambda *_: ctypes.string_at(1)",
}


@dataclass
class Place:
    """Where the command runs, and what it may not show there."""

    environment: dict[str, str]
    home: Path

    def run(self, patch: str = "", *arguments: str, log: str = "full") -> subprocess.CompletedProcess[bytes]:
        """Run `glasslab` with a patch, faulthandler on, and cores allowed by whoever started it."""
        code = f"import sys\n{patch}\nfrom glasslab.cli import main\nsys.argv[0] = 'glasslab'\nsys.exit(main())"
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
            env={**self.environment, "LAB_TRACE": log}, cwd=self.home, capture_output=True, check=False, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2),
        )  # fmt: skip

    def secrets(self) -> list[bytes]:
        """The canaries, and each line of the signing keys as they were made."""
        keys = [file.read_bytes().splitlines()[1:-1] for file in self.home.rglob("*.pem")]
        assert keys, "the command made its keys"
        return [value.encode() for value in CANARIES.values()] + [line for key in keys for line in key]

    def assert_none_in(self, *places: bytes) -> None:
        """Look for each in each, and among the files that were left behind (but the keys' own)."""
        left = [file.read_bytes() for file in self.home.rglob("*") if file.is_file() and file.suffix != ".pem"]
        assert [secret for secret in self.secrets() for place in (*places, *left) if secret in place] == []


@pytest.fixture
def place(hec: FaultyHec, certificates: Certificates, tmp_path: Path) -> Iterator[Place]:
    home = tmp_path / "home"
    home.mkdir()
    script = {"turns": [turn(("read_file", '{"path": "access-policy.md"}')), turn(content="The answer.")]}
    with scripted_model(script, tmp_path) as model:
        environment = {
            **bare_environment(),
            "HOME": str(home),
            "HEC_URL": hec.url,
            "HEC_CA": str(certificates.ca),
            "MODEL_BASE_URL": model.url,
            "MODEL_SECONDS": "1",  # a thread that died answers nobody: the wait is for the deadline
            "MODEL_RETRIES": "0",
            **CANARIES,
        }
        yield Place(environment, home)


def test_in_no_frame_and_no_output(place: Place, hec: FaultyHec) -> None:
    done = place.run("", "ask", "--json", QUESTION)
    assert done.returncode == 0, done.stderr
    bodies = b"".join(hec.bodies)
    assert b"agent.final" in bodies
    assert b"server.read_file" in bodies
    place.assert_none_in(bodies, done.stdout, done.stderr)


def test_nor_in_what_a_check_of_everything_says(place: Place) -> None:
    done = place.run("", "doctor")
    assert done.stdout
    place.assert_none_in(done.stdout, done.stderr)


@pytest.mark.parametrize("where", CRASHES)
def test_nor_in_what_a_crash_leaves(place: Place, hec: FaultyHec, where: str) -> None:
    for name in ("agent", "mcp"):
        load_signing_key(place.home / ".local" / "state" / "glasslab" / f"{name}.pem", make=True)
    done = place.run(CRASHES[where], "ask", QUESTION)
    assert done.returncode not in (0, 2), "it went wrong, and not for its usage"
    if where == "of the interpreter":
        assert done.returncode == -signal.SIGSEGV
        assert b"Fatal Python error: Segmentation fault" in done.stderr
        assert not list(place.home.glob("core*"))
    place.assert_none_in(b"".join(hec.bodies), done.stdout, done.stderr)
